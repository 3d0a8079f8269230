"""Consumers: clients, subscriptions, pulls, offsets, locks, look-ups."""
