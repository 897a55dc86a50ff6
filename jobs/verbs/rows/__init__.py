"""Options about rows: which of them take part, and their labels."""
