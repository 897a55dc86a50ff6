"""Background jobs: the queue, the runner, and the status of jobs."""
