"""Kernel nearest neighbours for data larger than memory: encoded, streamed, and proved exact."""
