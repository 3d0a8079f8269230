"""Stores as Spark DataFrames and streams: ``spark.read.format("rmqstore").load(path)``.

With pyspark 4.2 or newer the format is found by itself; where it is not, as on a cluster whose
nodes got the package by ``addArtifacts``, :func:`register` names it.

Source: none.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqstore.spark.compaction import compact
    from rmqstore.spark.datasource import RmqStoreDataSource
    from rmqstore.spark.foreach import batch_appender
    from rmqstore.spark.lagging import Lag, LagListener, lag
    from rmqstore.spark.rebuild import rebuild
    from rmqstore.spark.store_writing import write_store
    from rmqstore.spark.verify import verify

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
    "Lag": "lagging",
    "LagListener": "lagging",
    "RmqStoreDataSource": "datasource",
    "batch_appender": "foreach",
    "compact": "compaction",
    "lag": "lagging",
    "rebuild": "rebuild",
    "verify": "verify",
    "write_store": "store_writing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


class _Package(ModuleType):
    """Keeps its functions where a module of the same name is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def register(spark: SparkSession) -> None:
    """Make the format ``"rmqstore"`` known to a session that did not find it by itself.

    Parameters
    ----------
    spark : SparkSession
        Also one of Spark Connect.

    Notes
    -----
    Source: none.
    """
    from rmqstore.spark.datasource import RmqStoreDataSource

    spark.dataSource.register(RmqStoreDataSource)
