"""Scans that list rows by upper bounds of their scores."""
