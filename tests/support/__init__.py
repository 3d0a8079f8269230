"""Shared by tests of more than one folder."""
