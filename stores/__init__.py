"""What lies on disk: vectors, codes, models, receipts and foreign formats."""
