"""Consumers of groups: what they take, commit, share and give back."""
