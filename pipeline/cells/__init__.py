"""Cells of codes: their rows by the nearest centre of the points that codes stand for."""
