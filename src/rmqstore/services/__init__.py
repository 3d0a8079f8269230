"""Background services: delays, transactions, retention, snapshots, statistics."""
