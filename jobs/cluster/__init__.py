"""Dask: clients, and the work of their workers."""
