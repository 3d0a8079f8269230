"""Directory of a store: its log, its owner, its topics, its recovery."""
