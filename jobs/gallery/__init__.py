"""Pages of HTML: the verbs gallery and demo, and report in a folder of its own."""
