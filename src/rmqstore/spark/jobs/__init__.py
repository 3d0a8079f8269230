"""Jobs over whole stores, run by the executors: rebuild, verify, write_store, compact.

Uses ``rmqstore.spark.common``, and ``rmqstore.offline`` for the store's files.
"""
