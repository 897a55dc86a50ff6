"""The verb report: one page about a store of codes, or about a comparison."""
