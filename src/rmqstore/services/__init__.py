"""What an open store does besides storing: delays, transactions, retention, snapshots, figures."""
