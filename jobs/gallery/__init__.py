"""The verb demo: real photographs searched from end to end."""
