"""Sorted orders of binary codes: sublinear search (Charikar 2002; Kulis & Grauman 2012, §3.2)."""
