"""Rates, and the metrics port with its page."""
