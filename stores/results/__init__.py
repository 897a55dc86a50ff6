"""Results on disk: hits, certificates, and the answers of an unfinished search."""
