"""What is done to vectors: kernels, encoders, scans, exact search, evaluation."""
