"""How cost grows: with messages, with queues, with bytes, with threads: ``make scale``."""
