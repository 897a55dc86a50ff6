"""Encoders of binary codes, compared by Hamming distance."""
