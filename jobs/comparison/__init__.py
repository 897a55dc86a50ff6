"""The verb compare: encoders side by side."""
