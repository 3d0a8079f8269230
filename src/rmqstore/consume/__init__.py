"""Consumers of groups: shares of queues, commits, retries."""
