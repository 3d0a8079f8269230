"""Sources, sinks and jobs on every kind of master: real clusters and Spark Connect."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support.clusters import output_of, spark_home

pytestmark = [pytest.mark.spark, pytest.mark.long]

BOUND = 280.0  # seconds; a fifth of it on two idle cores
HIDING = """
import sys
from importlib.machinery import PathFinder


class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            return None
        return super().find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
"""


@pytest.mark.parametrize("kind", ["local-cluster", "standalone", "connect"])
def test_the_whole_way(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "standalone":
        without_pandas(tmp_path / "site", monkeypatch)
    facts = json.loads(
        output_of("spark_round_trip.py", kind, tmp_path, directory=tmp_path, bound=BOUND)
    )
    print(kind, facts)
    assert facts["executors"] == (1 if kind == "connect" else 2)
    assert facts["partitions"] > 2
    assert facts["batches"] > 1
    for job in ("direct", "shuffle", "write_store"):
        assert facts[f"{job} processes"] >= 2, job
    assert facts["pandas"] == (kind != "standalone")
    assert not (spark_home() / "work").exists()


def without_pandas(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no Python process that is started find pandas."""
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(HIDING)
    known = os.environ.get("PYTHONPATH", "")
    paths = [str(directory), *filter(None, [known])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
