"""Checks of whole stores: ``verify``, and what it compares."""
