"""Streaming queries: offsets, what each batch takes, the progress of groups, the lag.

Uses ``rmqstore.spark.common``, and of ``rmqstore.spark.read`` what its tasks read.
"""
