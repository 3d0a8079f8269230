"""Version check of PySpark, before importing names that older versions lack."""

from __future__ import annotations

import re
from importlib import import_module

__all__ = ["PySparkVersionError", "check_pyspark"]

_MIN_VERSION = (4, 2)
# From the newest modules in use, as a platform's own PySpark may be numbered differently.
_USED = {
    "pyspark.sql.datasource": "DataSourceStreamArrowWriter",
    "pyspark.sql.streaming.datasource": "SupportsTriggerAvailableNow",
}


class PySparkVersionError(ImportError):
    """PySpark is missing or older than 4.2."""


def check_pyspark() -> None:
    """Raise ``PySparkVersionError`` if PySpark is missing or lacks names used here."""
    wanted = "rmqstore needs PySpark 4.2 or newer"
    try:
        pyspark = import_module("pyspark")
    except ModuleNotFoundError:
        raise PySparkVersionError(
            f"{wanted}, and there is none: pip install 'pyspark>=4.2,<5'", name="pyspark"
        ) from None
    numbers = re.match(r"(\d+)\.(\d+)", str(pyspark.__version__))
    is_old = numbers is not None and (int(numbers[1]), int(numbers[2])) < _MIN_VERSION
    if is_old or not all(map(_has, _USED, _USED.values())):
        raise PySparkVersionError(
            f"{wanted}; this one, {(pyspark.__path__ or ['?'])[0]}, is {pyspark.__version__}",
            name="pyspark",
        )


def _has(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name)
    except ImportError:
        return False
