"""Directory of a store: log, owner, topics, recovery."""
