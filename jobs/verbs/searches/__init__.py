"""The kinds of search: of codes or vectors, of sorted orders, exact, and within a threshold."""
