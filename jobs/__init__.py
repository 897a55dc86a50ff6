"""Who runs it: the command line, the Dask runner, progress and reports."""
