"""User errors as the driver shows them: the message, without a worker's traceback.

Source: pyspark, ``util.py`` handle_worker_exception.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rmqstore.errors import StoreError
from rmqstore.spark.common.columns import SchemaError
from rmqstore.spark.common.options import OptionError
from rmqstore.spark.common.sight import note_host
from rmqstore.spark.common.versions import PySparkVersionError

__all__ = ["RowError", "one_line_errors"]


class RowError(ValueError):
    """A row rejected by the store; the message names partition, column and row."""


_PLAIN = (OptionError, SchemaError, RowError, PySparkVersionError, StoreError)
_CAUSES = (*_PLAIN, OSError, ValueError)  # their text is in the message


def _runs_task() -> bool:
    """Whether this process runs a task; imported late: an unsupported PySpark may lack it."""
    try:
        from pyspark import TaskContext
    except ImportError:
        return False
    return TaskContext.get() is not None


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Let a self-explanatory error reach the driver as its message alone.

    A worker process ends with such an error, so that no later error in it is shortened; other
    processes, and errors with unexpected causes, are unaffected.
    """
    try:
        yield
    except _PLAIN as error:
        if _runs_task():
            note_host(error)
        main = getattr(sys.modules["__main__"], "__spec__", None)
        foreseen = error.__cause__ is None or isinstance(error.__cause__, _CAUSES)
        if foreseen and main is not None and main.name.startswith("pyspark."):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
