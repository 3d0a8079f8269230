"""Sources, sinks and jobs on every kind of master: real clusters and Spark Connect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusters import output_of, spark_home

pytestmark = pytest.mark.spark

BOUND = 280.0  # seconds; a fifth of it on two idle cores


@pytest.mark.parametrize("kind", ["local-cluster", "standalone", "connect"])
def test_the_whole_way(kind: str, tmp_path: Path) -> None:
    facts = json.loads(output_of("everywhere.py", kind, tmp_path, directory=tmp_path, bound=BOUND))
    print(kind, facts)
    assert facts["executors"] == (1 if kind == "connect" else 2)
    assert facts["partitions"] > 2
    assert facts["batches"] > 1
    for job in ("direct", "shuffle", "write_store"):
        assert facts[f"{job} processes"] >= 2, job
    assert not (spark_home() / "work").exists()
