"""Jobs over whole stores, done by the executors: rebuild, verify, write_store, compact.

Uses ``rmqstore.spark.common``, and ``rmqstore.offline`` for the store's files.
"""
