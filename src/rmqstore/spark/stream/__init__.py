"""Streaming queries: offsets, admission, the progress of groups, the lag.

Uses ``rmqstore.spark.common``, and the tasks of ``rmqstore.spark.read``.
"""
