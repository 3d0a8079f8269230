"""Accounts: who has signed a request, and what it touches."""
