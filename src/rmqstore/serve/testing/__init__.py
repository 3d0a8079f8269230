"""A server under test, and what a test has happen to its requests."""
