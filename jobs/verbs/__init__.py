"""The verbs: one file per verb, each options, open, run."""
