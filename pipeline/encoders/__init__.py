"""Encoders: rows in, columns of codes out."""
