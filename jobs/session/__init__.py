"""Stores that stay open in a Python session."""
