"""A kernel, an encoder and a format that entry points add to mercore."""
