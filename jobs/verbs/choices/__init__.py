"""Choices of an encode: of an encoder, of a bound, and of a transform."""
