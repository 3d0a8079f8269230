"""Spark's part uses public names, in packages that stand in order: the check finds others."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure

TOP = Path(__file__).parents[3]
CHECK = TOP / "scripts" / "check_spark.py"
SOURCE = TOP / "src" / "rmqstore"


def check(source: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, CHECK, source], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(SOURCE / "spark", tmp_path / "spark")
    return tmp_path


def test_spark_stands_on_the_public_interface() -> None:
    code, out = check(SOURCE)
    assert code == 0, out


@pytest.mark.parametrize(
    ("module", "planted", "found"),
    [
        ("sink/staging", "from rmqstore import _core", "rmqstore._core is not public"),
        ("jobs/rebuild", "import rmqstore._core as core", "rmqstore._core is not public"),
        ("jobs/verify", "from rmqstore._core import LogUnits", "rmqstore._core is not public"),
        ("read/plan", "def f():\n    from rmqstore import _core", "rmqstore._core is not public"),
        ("read/plan", "def f(store):\n    return store._bounds('t', 0)", "_bounds is not public"),
        ("read/plan", "def f(store):\n    return store.core.bounds('t', 0)", "core is not public"),
        (
            "read/plan",
            "def f(store):\n    return getattr(store, '_bounds')",
            "_bounds is not public",
        ),
        ("stream/heads", "def f(store):\n    return store._store._units", "_units is not public"),
        ("jobs/rebuild", "from rmqstore.offline.build import _parts", "_parts is not public"),
        (
            "stream/source",
            "class Planted(StreamReader):\n    def f(self):\n        return self._engine",
            "_engine is not public",
        ),
        ("common/options", "from rmqstore.spark.read import plan", "common may not import read"),
        ("read/options", "import rmqstore.spark.stream.heads", "read may not import stream"),
        ("sink/options", "from rmqstore.spark.jobs.tasks import runs", "sink may not import jobs"),
        ("jobs/tasks", "from rmqstore.spark.sink import ledger", "jobs may not import sink"),
        ("sink/ledger", "from . import staging", ".staging is relative"),
        ("read/filters", "from rmqstore.spark.read.plan import plan", "it imports itself"),
    ],
)
def test_a_planted_violation_is_found(copy: Path, module: str, planted: str, found: str) -> None:
    path = copy / "spark" / f"{module}.py"
    path.write_text(path.read_text() + "\n\n" + planted + "\n")
    code, out = check(copy)
    assert code == 1
    assert found in out
    assert f"spark/{module}.py:" in out


def test_a_package_that_is_not_known_is_found(copy: Path) -> None:
    (copy / "spark" / "planted").mkdir()
    (copy / "spark" / "planted" / "__init__.py").write_text("")
    code, out = check(copy)
    assert code == 1
    assert "planted is no package that check_spark knows" in out


def test_nothing_to_check_is_no_success(tmp_path: Path) -> None:
    assert check(tmp_path)[0] == 1
