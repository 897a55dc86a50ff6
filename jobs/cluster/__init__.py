"""Dask: clients, and what workers do."""
