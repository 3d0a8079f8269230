"""Sockets, TLS, connections, and answers that wait for the disk."""
