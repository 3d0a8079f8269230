"""A scan by several threads gives the rows and the error of a scan by one, damaged or not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from rmqstore.columns import side_by_side
from rmqstore.errors import MessagesRemovedError, StoreCorruptError, StoreNotFoundError
from support.message_tables import COLUMNS
from support.scan_model import config, random_arguments, random_records, read_log, write_store

pa = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.property

SCANS = 8  # a store


def outcome(scan: Any) -> tuple[list[Any], str]:
    """Rows, and the error after them."""
    rows: list[Any] = []
    try:
        for batch in scan.to_batches():
            batch.validate(full=True)
            assert 0 < batch.num_rows <= scan.batch_rows
            rows += batch.to_pylist() if scan.columns else [()] * batch.num_rows
    except (MessagesRemovedError, StoreCorruptError, OSError) as error:
        return rows, f"{type(error).__name__}: {error}"
    return rows, ""


def counted(scan: Any) -> int | str:
    try:
        return scan.count()
    except (MessagesRemovedError, StoreCorruptError, OSError) as error:
        return f"{type(error).__name__}: {error}"


def streamed(scan: Any) -> Any:
    try:
        return pa.table(scan).to_pylist()
    except (OSError, pa.ArrowException) as error:
        return str(error).split(". Detail")[0]


def overwrite(rng: random.Random, path: Path) -> None:
    """Damage a file at a few places, or cut it."""
    with path.open("r+b") as file:
        size = path.stat().st_size
        if rng.random() < 0.1:
            file.truncate(rng.randrange(size))
            return
        for _ in range(rng.choice([1, 1, 3])):
            at = rng.randrange(size)
            length = min(rng.choice([1, 1, 4, 20, 300, 5000]), size - at)
            file.seek(at)
            file.write(rng.choice([bytes(length), rng.randbytes(length)]))


def damage(rng: random.Random, root: Path) -> str:
    """Damage the log, its queues, or nothing."""
    log = sorted((root / "commitlog").iterdir())
    queues = sorted((root / "consumequeue").glob("*/*/*"))
    kind = rng.choice(["whole", "log", "log", "log file gone", "queue", "queue file gone"])
    if kind == "log":
        overwrite(rng, rng.choice(log))
    elif kind == "log file gone":
        rng.choice(log).unlink()
    elif kind == "queue" and queues:
        overwrite(rng, rng.choice(queues))
    elif kind == "queue file gone" and queues:
        rng.choice(queues).unlink()
    return kind


def arguments_of(rng: random.Random, log: list[Any]) -> dict[str, Any]:
    """Arguments, more often of the log or of one queue, which are cut, than of many queues."""
    arguments = random_arguments(rng, log, one_queue=True)
    kind = rng.choice(["any", "log", "log", "queue"])
    if kind != "any":
        for name in ("topic", "queue_id", "start"):
            arguments.pop(name, None)
    if kind == "log":
        arguments.pop("stop", None)
    if kind == "queue":
        arguments |= {"topic": "busy", "queue_id": 0}
        arguments.pop("keys", None)
    return arguments | {
        "on_corruption": rng.choice(["raise", "skip", "stop"]),
        "on_removed": rng.choice(["raise", "skip"]),
    }


def test_threads_give_what_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: Counter[str] = Counter()
    handed_in = 0
    hand_in = side_by_side._Readers.hand_in

    def counting(self: Any, part: Any) -> None:
        nonlocal handed_in
        handed_in += 1
        hand_in(self, part)

    monkeypatch.setattr(side_by_side._Readers, "hand_in", counting)

    def compare(seed: int, mode: str) -> None:
        rng = random.Random(seed)
        settings = config(rng)
        with TemporaryDirectory() as root:
            count, file_size = rng.choice([1, 40, 400]), settings.mapped_file_size_commit_log
            write_store(Path(root), random_records(rng, count, file_size), settings)
            log = read_log(Path(root))
            if mode == "r":
                damage(rng, Path(root))
            try:
                store = rmqstore.open(root, mode, config=rng.choice([settings, None]))
            except (StoreCorruptError, StoreNotFoundError):
                return
            with store:
                for _ in range(SCANS):
                    check(store, arguments_of(rng, log), rng)

    def check(store: Any, arguments: dict[str, Any], rng: random.Random) -> None:
        monkeypatch.setattr(side_by_side, "PART_LEAST", rng.choice([1, 900, 5000, 50_000]))
        monkeypatch.setattr(side_by_side, "PART_BYTES", rng.choice([1000, 20_000, 1 << 20]))
        monkeypatch.setattr(side_by_side, "KEPT_BYTES", rng.choice([1, 20_000, 16 << 20]))
        threads = rng.choice([2, 3, 4])
        alone = store.scan(**arguments)
        scan = store.scan(**arguments, threads=threads)
        rows, error = outcome(alone)
        ended[error.partition(":")[0]] += 1
        assert outcome(scan) == (rows, error), (arguments, threads)
        assert scan.schema == alone.schema
        assert counted(scan) == counted(alone)
        assert streamed(scan) == streamed(alone)
        if not error and set(arguments.get("columns", COLUMNS)) >= {"physical_offset"}:
            found = [message.physical_offset for message in scan]
            assert found == [row["physical_offset"] for row in rows]

    given(st.integers(0, 2**32), st.sampled_from(["r", "r", "r", "r+"]))(compare)()
    for seed in range(100):  # with few examples an end may be missing
        if ended.keys() >= {"", "StoreCorruptError"} and handed_in > 100:
            break
        compare(seed, "r")
    assert ended.keys() >= {"", "StoreCorruptError"}
    assert handed_in > 100


@pytest.mark.usefixtures("undelivered")
@pytest.mark.parametrize("name", ["quickstart", "broker-clean", "broker-killed"])
def test_threads_over_a_brokers_store(
    name: str, broker_store: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_by_side, "PART_LEAST", 2000)
    monkeypatch.setattr(side_by_side, "PART_BYTES", 2000)
    with rmqstore.open(broker_store(name).root, "r") as store:
        for topic in (None, *store.topics):
            for queue_id in (None, 0):
                one, four = (
                    outcome(store.scan(topic, queue_id, threads=threads)) for threads in (1, 4)
                )
                assert one == four
