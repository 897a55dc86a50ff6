"""Results on disk: hits, certificates, and the batches of an unfinished search."""
