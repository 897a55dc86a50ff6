"""One face: verbs are declared once, for Python and for the command line."""
