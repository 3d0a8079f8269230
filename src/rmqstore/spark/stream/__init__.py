"""Streaming queries: offsets, admission, progress of groups, lag.

Uses ``rmqstore.spark.common``, and the tasks of ``rmqstore.spark.read``.
"""
