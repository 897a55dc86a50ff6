"""Background jobs: the queue, its runner, and what can be asked of a job."""
