"""Plans over stores of many files and queues: what is opened, and how often."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rmqstore
from support.source_model import partitions_of, read_back
from support.sparse_store import SparseStore

pytestmark = [pytest.mark.spark, pytest.mark.long]

SMALL = SparseStore(
    log_files=200,
    file_bytes=1 << 20,
    topics=20,
    queues=100,
    records=20,
    indexed=10,
    slots=1000,
    entries=4000,
    units=1000,
)


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 log files, 2,000 queues and 20 index files: more queues than views have room for."""
    root = tmp_path_factory.mktemp("sparse") / "store"
    SMALL.write(root)
    return root


def test_the_store_is_whole(sparse: Path) -> None:
    with rmqstore.open(sparse, verify="full") as store:
        assert store.recovery.ranges == ()
        assert len(store.index_coverage()) == 1
        assert store.scan().count() == SMALL.all_records
        for queue in (0, 511, 512, 1999):
            topic, queue_id = SMALL.queue_of(queue)
            assert store.queue_bounds(topic, queue_id) == (0, 2)
            assert [found.body for found in store[topic][queue_id]] == [
                b"body of %d" % n for n in (queue, queue + 2000)
            ]


def test_every_queue_is_planned_and_read(sparse: Path) -> None:
    planned = partitions_of({"path": sparse, "consumeFrom": "first"})
    queues = {(p.topics[0], p.queue_id) for each in planned for p in each.pieces}
    assert len(queues) == 2000
    rows = read_back({"path": sparse, "consumeFrom": "first"}, [], ["queue_offset"])
    assert len(rows) == SMALL.all_records


def test_a_rare_key_is_found(sparse: Path) -> None:
    topic, _ = SMALL.queue_of(1234)
    given = {"path": sparse, "topics": topic, "keys": "order-1234"}
    assert read_back(given, [], ["body"]) == [{"body": b"body of 1234"}]


_PLAN = """
import sys
from rmqstore.spark.common.schema import spark_schema
from rmqstore.spark.read.batch import BatchReader
BatchReader({"path": sys.argv[1]}, spark_schema()).partitions()
"""


@pytest.mark.skipif(not os.access("/usr/bin/strace", os.X_OK), reason="there is no strace")
def test_a_plan_opens_each_queue_a_few_times(sparse: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    environment = {**os.environ, "PYTHONPATH": str(Path(rmqstore.__file__).parents[1])}
    # Stops at the calls that are counted only: at every call, a plan takes seven times as long.
    command = ["/usr/bin/strace", "-f", "--seccomp-bpf", "-e", "trace=openat", "-o", str(trace)]
    subprocess.run(
        [*command, sys.executable, "-c", _PLAN, str(sparse)], check=True, env=environment
    )
    # Each path below it is opened from the store's directory: five times a queue, one of them for
    # the first unit of its file, and where a pass over the queues takes so long that the listings
    # have become old, each is made once more.  Measured: 10,005, and 13,493 where every open takes
    # 1 ms or 5.
    opened = trace.read_text().count('"consumequeue')
    assert 2000 <= opened <= 7 * 2000
