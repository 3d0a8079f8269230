"""Counts and columns read from units equal those of the records, over random stores and losses."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from support import damaged_store, scan_model

pa = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.property

UNITS = ["queue_id", "queue_offset", "physical_offset", "store_size"]
TOPICS = ["busy", "orders", "rare"]
LIGHT = ["%LMQ%a", "%LMQ%b"]
SCANS = 8  # a store
HARMS = [
    "nothing",
    "nothing",
    "nothing",
    "killed",
    "first log files gone",
    "a log file gone",
    "a log file cut",
    "log zeroed at the end",
    "a queue file gone",
    "queues gone",
    "units zeroed",
    "units elsewhere",
]


def put_some(rng: random.Random, store: Any, count: int) -> None:
    for _ in range(count):
        topic, queue_id = rng.choice([*TOPICS[:2] * 8, "rare"]), rng.choice([0, 0, 1, 3])
        body, tags = rng.randbytes(rng.randint(0, 500)), rng.choice([None, "TagA"])
        what = rng.random()
        if what < 0.03:
            store.put("busy", body, delay_level=rng.choice([5, 6]))  # not delivered meanwhile
        elif what < 0.06:
            half = store.begin("busy", body, tags=tags)
            if rng.random() < 0.8:
                (half.commit if rng.random() < 0.7 else half.rollback)()
        elif what < 0.2 and store.config.enable_lmq:
            names = rng.sample(LIGHT, rng.randint(1, 2))
            store.put(topic, body, queue_id=queue_id, lite_topics=names)
        elif what < 0.201 and "rare" in store.topics:
            store.delete_topic("rare")
        else:
            store.put(topic, body, queue_id=queue_id, tags=tags)


def make(rng: random.Random, root: Path) -> rmqstore.StoreConfig:
    config = scan_model.config(rng).replace(mapped_file_size_commit_log=20_000)
    if rng.random() < 0.3:  # with prepared records, and a topic that no queue can have
        records = scan_model.random_records(rng, rng.choice([40, 200]), 20_000)
        scan_model.write_store(root, records, config)
        return config
    if rng.random() < 0.4:
        config = config.replace(enable_lmq=True, enable_multi_dispatch=True)
    with rmqstore.open(root, "a", config=config) as store:
        put_some(rng, store, rng.choice([1, 40, 200]))
    return config


def harm(rng: random.Random, root: Path, what: str) -> None:
    logs = sorted((root / "commitlog").iterdir())
    files = sorted((root / "consumequeue").glob("*/*/*"))
    if what == "killed":
        damaged_store.killed(root)
    elif what == "first log files gone":
        for path in logs[: rng.randint(0, len(logs) - 1)]:
            path.unlink()
    elif what == "a log file gone":
        rng.choice(logs).unlink()
    elif what == "a log file cut":
        with rng.choice(logs).open("r+b") as file:
            file.truncate(rng.randrange(20_000))
    elif what == "log zeroed at the end":
        end = len(logs[-1].read_bytes().rstrip(b"\0"))
        with logs[-1].open("r+b") as file:
            file.seek(max(end - rng.randint(1, 900), 0))
            file.write(bytes(900))
    elif what == "a queue file gone" and files:
        rng.choice(files).unlink()
    elif what == "queues gone":
        shutil.rmtree(root / "consumequeue", ignore_errors=True)
    elif what.startswith("units") and files:
        path = rng.choice(files)
        at = 20 * rng.randrange(path.stat().st_size // 20)
        with path.open("r+b") as file:
            file.seek(at)
            if what == "units zeroed":
                file.write(bytes(20 * rng.randint(1, 3)))
            else:
                file.write((rng.choice([0, 100, 1 << 40, -1]) % (1 << 64)).to_bytes(8))


def read(scan: rmqstore.Scan) -> tuple[list[Any], str]:
    """The batches of the columns that units hold, and the error that ended them."""
    batches = []
    try:
        for batch in scan.to_batches():
            batch.validate(full=True)
            batches.append(batch.select(UNITS))
    except rmqstore.StoreError as error:
        return batches, f"{type(error).__name__}: {error}"
    return batches, ""


def counted(scan: rmqstore.Scan) -> int | str:
    try:
        return scan.count()
    except rmqstore.StoreError as error:
        return f"{type(error).__name__}: {error}"


def check(store: Any, arguments: dict[str, Any]) -> bool:
    """Compare; whether no record was read."""
    by_records = read(store.scan(**arguments, columns=[*UNITS, "flag"]))
    before = store.stats()["scanned_records"]
    scan = store.scan(**arguments, columns=UNITS)
    assert read(scan) == by_records
    rows = sum(batch.num_rows for batch in by_records[0])
    assert counted(scan) == (by_records[1] or rows)
    return rows > 0 and store.stats()["scanned_records"] == before


def arguments_of(rng: random.Random) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "topic": rng.choice([*TOPICS, *TOPICS, *LIGHT, "SCHEDULE_TOPIC_XXXX", "unknown"]),
        "batch_rows": rng.choice([1, 7, 16384]),
        "on_removed": rng.choice(["raise", "skip"]),
        "on_corruption": rng.choice(["raise", "skip", "stop"]),
    }
    if rng.random() < 0.7:
        arguments["queue_id"] = rng.choice([0, 0, 1, 2, 3])
    elif rng.random() < 0.3:
        arguments["topic"] = ["busy", "rare"]
    for bound in ("start", "stop"):
        if rng.random() < 0.3:
            arguments[bound] = rng.choice([rng.randint(0, 60), rng.randint(0, 60_000)])
    return arguments


def test_units_and_records_agree() -> None:
    units: Counter[str] = Counter()

    def compare(seed: int, mode: str, what: str) -> None:
        rng = random.Random(seed)
        with TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
            root = Path(scratch, "s")
            config = make(rng, root)
            harm(rng, root, what)
            given_config = rng.choice([config, None]) if mode == "r" else config
            if mode == "owned":
                stack.enter_context(damaged_store.owned(root))
            try:
                store = rmqstore.open(root, "r+" if mode == "r+" else "r", config=given_config)
            except (rmqstore.StoreError, OSError):
                return
            with store:
                for _ in range(SCANS):
                    units[what] += check(store, arguments_of(rng))

    modes, harms = st.sampled_from(["r", "r", "r+", "owned"]), st.sampled_from(HARMS)
    given(st.integers(0, 2**32), modes, harms)(compare)()
    for seed in range(100):  # with few examples none may be a plain one
        if units["nothing"]:
            break
        compare(seed, "r", "nothing")
    assert units["nothing"]


@given(st.integers(0, 2**32))
def test_beside_a_writer(seed: int) -> None:
    """Each sees the same by units as by records, whatever was put or removed between."""
    rng = random.Random(seed)
    with TemporaryDirectory() as scratch:
        root = Path(scratch, "s")
        config = make(rng, root)
        with (
            rmqstore.open(root, "r+", config=config) as writer,
            rmqstore.open(root, "r", config=rng.choice([config, None])) as reader,
        ):
            for _ in range(4):
                put_some(rng, writer, rng.choice([0, 1, 60]))
                if rng.random() < 0.3:
                    logs = sorted((root / "commitlog").iterdir())
                    cut = rng.choice(logs).name
                    [first] = writer.scan(start=int(cut), stop=int(cut) + 1, on_removed="skip")
                    writer.delete_expired(before=first.store_timestamp)
                for _ in range(3):
                    for store in rng.sample([writer, reader], 2):
                        check(store, arguments_of(rng))
