"""Shared by reading, writing and the jobs: options, columns, errors, file names.

Uses pyspark and the public modules of rmqstore, and no other package of ``rmqstore.spark``.
"""
