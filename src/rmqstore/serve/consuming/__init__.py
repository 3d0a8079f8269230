"""Consumers: who they are, what they want, pulls, offsets, locks, look-ups."""
