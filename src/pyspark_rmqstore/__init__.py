"""Where PySpark finds the format ``"rmqstore"`` by itself.

PySpark imports each top-level module whose name begins with ``pyspark_`` and takes its
``DefaultSource``; one that raises hides all of them, so this one does not.

Source: pyspark, ``sql/worker/lookup_data_sources.py``.
"""

try:
    from rmqstore.spark.datasource import RmqStoreDataSource as DefaultSource
except ImportError:  # a pyspark without Python data sources, or none
    pass
else:
    __all__ = ["DefaultSource"]
