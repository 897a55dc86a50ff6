"""Resources that work may use: threads, processes, memory, disk."""
