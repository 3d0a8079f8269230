"""Accounts: authentication of requests, and permissions."""
