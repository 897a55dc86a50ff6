"""A store of parts on disk: columns, header, receipts, and the store that ties them together."""
