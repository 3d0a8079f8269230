"""The load of docs/landing.md, killed at random moments; each message is in the table once."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pytest

import rmqstore

pytestmark = [pytest.mark.crash, pytest.mark.pure, pytest.mark.long]

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs/landing.md"
MESSAGES = 30_000  # before each life: three transactions or more
KILLED = 3  # lives that end between their first row and their last
LIVES = 40
BOUND = 120.0  # seconds of a life


class Landing:
    """A store, a table, and the process between them."""

    def __init__(self, directory: Path, function: str) -> None:
        self.store, self.table = directory / "store", directory / "orders.duckdb"
        self.function = function
        self.put = 0

    def put_more(self) -> None:
        with rmqstore.open(self.store, "a") as store:
            numbers = range(self.put, self.put + MESSAGES)
            bodies = [b"order %d" % number for number in numbers]
            store.put_many("orders", bodies, tags=["paid" if n % 3 else "sent" for n in numbers])
        self.put += MESSAGES

    def load(self, kill: tuple[int, float] | None = None) -> float:
        """Load until the end, or until a kill so many commits and seconds later.

        Return the seconds that a commit took.
        """
        command = [sys.executable, "-m", "support.landing_load", PAGE, self.function]
        paths = filter(None, [str(TESTS), os.environ.get("PYTHONPATH")])
        with subprocess.Popen(
            [*command, self.store, self.table],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            late = threading.Timer(BOUND, process.kill)
            late.daemon = True
            late.start()
            assert process.stdout.readline() == "begins\n"
            began = time.monotonic()
            if kill is None:
                commits = len(process.stdout.readlines())
                late.cancel()
                assert process.wait(BOUND) == 0
                return (time.monotonic() - began) / commits
            commits, seconds = kill
            for _ in range(commits):
                process.stdout.readline()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            late.cancel()
            process.kill()
        return seconds

    def rows(self) -> list[tuple]:
        with duckdb.connect(self.table) as table:
            return sorted(table.execute("SELECT * FROM orders").fetchall())

    def count(self) -> int:
        with duckdb.connect(self.table) as table:
            distinct = "count(DISTINCT (queue_id, queue_offset))"
            count, places = table.execute(f"SELECT count(*), {distinct} FROM orders").fetchone()
        assert count == places
        return count

    def messages(self) -> list[tuple]:
        with rmqstore.open(self.store) as store:
            found = store.scan("orders", columns=["queue_id", "queue_offset", "tags", "body"])
            columns = (column.to_pylist() for column in found.to_table().columns)
            return sorted(zip(*columns, strict=True))

    def is_group_behind(self) -> bool:
        with rmqstore.open(self.store) as store, duckdb.connect(self.table) as table:
            committed = store.offsets.get(("orders", "landing"), {})
            loaded = table.execute("SELECT * FROM loaded").fetchall()
            return any(committed.get(queue_id, 0) < after for queue_id, after in loaded)


@pytest.mark.parametrize("function", ["load", "load_beside"])
def test_killed_at_random_moments(function: str, tmp_path: Path) -> None:
    rng = random.Random(11)
    landing = Landing(tmp_path, function)
    landing.put_more()
    seconds = landing.load()
    killed = behind = 0
    for _ in range(LIVES):
        landing.put_more()
        before = landing.count()
        landing.load((rng.randrange(3), rng.uniform(0, seconds)))
        after = landing.count()
        killed += before < after < landing.put
        behind += landing.is_group_behind()
        if after == landing.put:
            seconds /= 2  # it was measured on a busier machine
        if killed >= KILLED:
            break
    assert killed >= KILLED
    assert behind or function != "load"
    landing.load()
    assert landing.count() == landing.put
    assert landing.rows() == landing.messages()
