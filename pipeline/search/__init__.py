"""Search: scans, reranking, and exact search with its answers."""
