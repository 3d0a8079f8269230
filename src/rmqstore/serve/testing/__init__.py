"""A server under test, with faults on demand."""
