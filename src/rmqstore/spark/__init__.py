"""Stores as Spark DataFrames and streams: ``spark.read.format("rmqstore").load(path)``.

With pyspark 4.2 or newer the format is found automatically; if not, as on a cluster whose nodes got
the package by ``addArtifacts``, :func:`register` it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqstore.base.lazy import loaded_on_use
from rmqstore.spark.common.versions import check_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqstore.spark.datasource import RmqStoreDataSource
    from rmqstore.spark.jobs.compact import compact
    from rmqstore.spark.jobs.rebuild import rebuild
    from rmqstore.spark.jobs.verify import verify
    from rmqstore.spark.jobs.write_store import write_store
    from rmqstore.spark.sink.foreach import batch_appender
    from rmqstore.spark.stream.lag import Lag, LagListener, lag

__all__ = [
    "Lag",
    "LagListener",
    "RmqStoreDataSource",
    "batch_appender",
    "compact",
    "lag",
    "rebuild",
    "register",
    "verify",
    "write_store",
]

_HOMES = {
    "Lag": "stream.lag",
    "LagListener": "stream.lag",
    "RmqStoreDataSource": "datasource",
    "batch_appender": "sink.foreach",
    "compact": "jobs.compact",
    "lag": "stream.lag",
    "rebuild": "jobs.rebuild",
    "verify": "jobs.verify",
    "write_store": "jobs.write_store",
}

_load, __dir__ = loaded_on_use(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        check_pyspark()
    return _load(name)


def register(spark: SparkSession) -> None:
    """Register the format ``"rmqstore"`` in a session that does not find it automatically.

    Also for ``df.write`` in a thread started by Python, where Spark finds no format of a Python
    source otherwise: call it first in each such thread.

    Parameters
    ----------
    spark : SparkSession
        Also one of Spark Connect.

    Raises
    ------
    ImportError
        PySpark is older than 4.2.
    """
    check_pyspark()
    from rmqstore.spark.datasource import RmqStoreDataSource

    spark.dataSource.register(RmqStoreDataSource)
    # Makes the session active in this thread, where ``df.write`` looks for the format.
    spark.createDataFrame([], "nothing int")
