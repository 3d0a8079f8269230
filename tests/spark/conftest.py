"""One local session for all tests of this folder, and what it needs of its surroundings."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.clusters import session_settings

SOURCES = Path(__file__).parents[2] / "src"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pass over what pyspark says of a pandas that is newer than it and that nothing here uses."""
    ignored = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(ignored)


@pytest.fixture(scope="session")
def spark_environment() -> dict[str, str]:
    """What a driver's process needs: workers of this Python, loopback only."""
    set_here = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
    }
    import rmqstore

    if Path(rmqstore.__file__).is_relative_to(SOURCES):  # not installed: workers look here too
        known = os.environ.get("PYTHONPATH", "")
        set_here["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SOURCES), known)))
    os.environ.update(set_here)
    return set_here


@pytest.fixture(scope="session")
def spark(
    spark_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A session of two local threads, with one retry of a failed task."""
    from pyspark.sql import SparkSession

    directory = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2,2]").appName("rmqstore tests")
    for name, value in session_settings(directory).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
