"""Residual quantisation: a point is the sum of one centroid of each codebook of its group."""
