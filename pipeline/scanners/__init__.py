"""Scanners: blocks of codes past a batch of queries, the best kept as they pass."""
