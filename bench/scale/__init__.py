"""Growth of cost: with messages, with queues, with bytes, with threads: ``make scale``."""
