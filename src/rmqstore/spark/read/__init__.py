"""Batch queries: selection, plan and tasks.

Uses ``rmqstore.spark.common``; ``rmqstore.spark.stream`` uses it.
"""
