"""What work may use: threads, processes, memory, disk."""
