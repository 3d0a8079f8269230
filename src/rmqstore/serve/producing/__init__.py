"""Producing: sends, replies, retries, ends of transactions."""
