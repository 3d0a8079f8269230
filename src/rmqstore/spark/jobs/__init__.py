"""Jobs over whole stores, done by the executors: rebuild, verify, write_store, compact.

Uses ``rmqstore.spark.common``, and of the store's files what ``rmqstore.offline`` has.
"""
