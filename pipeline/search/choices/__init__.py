"""Choices made on a sample: of a bound, of γ, and of a transform."""
