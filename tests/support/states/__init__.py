"""State machines that run mercore against small models: stores, and the queue of jobs."""
