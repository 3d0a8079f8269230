"""Messages that clients send, reply with, give back, and end transactions of."""
