"""Measures of hits: recall, recognition, coverage and overlap, by named definitions of papers."""
