"""Batch queries: what is asked for, how it is shared out to tasks, and what a task reads.

Uses ``rmqstore.spark.common``; ``rmqstore.spark.stream`` uses it.
"""
