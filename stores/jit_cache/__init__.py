"""Machine code of jitted functions on disk."""
