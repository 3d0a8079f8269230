"""Copies of stores and their differences: ``backup``, ``extract``, ``difference``."""
