"""An older PySpark, and none: an error that says so, before what it lacks is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rmqstore

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

SOURCE = Path(rmqstore.__file__).parents[1]
# A package that has of PySpark what a version has that ours needs to be found.
OLD = """
import sys, types
def module(name, **names):
    made = sys.modules[name] = types.ModuleType(name)
    made.__path__ = ["/opt/spark/python/" + name.replace(".", "/")]
    vars(made).update(names)
    return made
version = {version!r}
module("pyspark", __version__=version)
module("pyspark.sql")
import importlib.machinery
class Any_: pass
class Types(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        body = {{"__init__": lambda self, *a, **k: None, "simpleString": lambda self: name}}
        return type(name, (), body)
sys.modules["pyspark.sql.types"] = Types("pyspark.sql.types")
class DataSource:
    def __init__(self, options): self.options = options
if version >= "4":
    module("pyspark.sql.datasource", DataSource=DataSource)
"""
USES = {
    "register": "import rmqstore.spark; rmqstore.spark.register(None)",
    "job": "from rmqstore.spark import rebuild",
    "other job": "import rmqstore.spark; rmqstore.spark.batch_appender",
    "found": "import pyspark_rmqstore as found; found.DefaultSource({'path': '/data/store'})",
}


def refusal(program: str) -> str:
    """The last line of what a program says that fails."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("version", ["3.5.3", "4.0.1", "4.1.0", "4.1.0.dev0", "15.4"])
@pytest.mark.parametrize("use", USES)
def test_an_older_pyspark(version: str, use: str) -> None:
    old = OLD.format(version="4.0" if version == "15.4" else version)
    program = old + f"sys.modules['pyspark'].__version__ = {version!r}\n" + USES[use]
    if use == "found" and version.startswith("3"):  # it looks for no sources
        program = program.replace("found.DefaultSource", "rmqstore.spark.register(None) and ")
        program = program.replace("import pyspark", "import rmqstore.spark, pyspark")
    told = refusal(program)
    assert "rmqstore needs PySpark 4.2 or newer; this one, /opt/spark/python/pyspark" in told
    assert told.endswith(f", is {version}")


def test_without_pyspark() -> None:
    program = "import sys; sys.modules['pyspark'] = None\n" + USES["job"]
    assert "needs PySpark 4.2 or newer, and there is none: pip install" in refusal(program)


def test_the_one_that_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark

    from rmqstore.spark.common.versions import check_pyspark

    for version in ("4.2.0", "4.2.0.dev1", "4.10.0", "5.0.0", "17.3"):
        monkeypatch.setattr(pyspark, "__version__", version)
        check_pyspark()


def test_what_a_reader_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark

    from rmqstore.spark.datasource import RmqStoreDataSource

    monkeypatch.setattr(pyspark, "__version__", "4.1.1")
    made: Any = RmqStoreDataSource
    with pytest.raises(ImportError, match=r"needs PySpark 4.2 .* is 4\.1\.1"):
        made({"path": "/data/store"})
