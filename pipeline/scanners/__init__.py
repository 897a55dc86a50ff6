"""Scanners: score blocks of codes against a batch of queries and keep the k best."""
