"""The verbs gallery and demo: pages of queries beside their hits, and what they show."""
