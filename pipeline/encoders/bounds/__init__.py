"""Encoders whose scores bound the kernel from above."""
