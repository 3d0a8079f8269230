"""How far a stream is behind, from what it reports; and its progress as a group's."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rmqstore
from rmqstore.brokerfiles.offsets import OffsetTable
from rmqstore.config.store_config import StoreConfig
from rmqstore.offline.locking import is_owned
from rmqstore.spark.stream.groups import keep_progress
from rmqstore.spark.stream.lag import Lag, LagListener, QueueLag, lag
from support.stream_model import Query, fill, options

pytestmark = pytest.mark.spark


def progress(query: Query) -> dict[str, Any]:
    source = {"endOffset": query.offsets[-1], "latestOffset": json.dumps(query.reports[-1])}
    return {"sources": [{"endOffset": "3", "latestOffset": None}, source], "name": "orders"}


def test_messages_and_bytes_behind(store: rmqstore.MessageStore) -> None:
    store.create_topic("orders", 2)
    fill(store, "orders", 2, 50)
    fill(store, "events", 1, 10)
    query = Query(options(store, consumeFrom="first", maxMessagesPerTrigger="33"))
    assert query.trigger()
    sizes = {(m.topic, m.queue_id, m.queue_offset): m.store_size for m in store.scan()}
    for row in query.rows:
        del sizes[row[:3]]
    found = lag(progress(query))
    assert found is not None
    assert (found.messages, found.bytes) == (len(sizes), sum(sizes.values())) == (77, found.bytes)
    assert [(one.topic, one.queue_id) for one in found.queues] == [
        ("events", 0),
        ("orders", 0),
        ("orders", 1),
    ]
    orders = found.by_topic["orders"]
    assert orders.messages == sum(1 for topic, *_ in sizes if topic == "orders")
    assert orders.min_messages <= orders.avg_messages <= orders.max_messages <= 50
    assert orders.min_bytes <= orders.avg_bytes <= orders.max_bytes < orders.bytes
    query.all()
    done = lag(SimpleNamespace(lastProgress=progress(query)))
    assert done is not None
    assert (done.messages, done.bytes, len(done.queues)) == (0, 0, 3)
    assert (done.as_of, done.age) == (None, None)  # a report without a time


def test_its_age(store: rmqstore.MessageStore) -> None:
    fill(store, "orders", 1, 5)
    query = Query(options(store, consumeFrom="first"))
    assert query.trigger()
    before = datetime.now(UTC) - timedelta(hours=2)
    for text in (f"{before:%Y-%m-%dT%H:%M:%S}.000Z", f"{before:%Y-%m-%dT%H:%M:%S}"):
        found = lag(progress(query) | {"timestamp": text})
        assert found is not None
        assert found.as_of == before.replace(microsecond=0)
        assert timedelta(hours=2) <= (found.age or timedelta(0)) < timedelta(hours=3)
        assert found.by_topic["orders"].as_of == found.as_of


def test_the_function_is_found_whatever_was_asked_for_first() -> None:
    program = "import rmqstore.spark as s; s.LagListener, s.Lag; print(callable(s.lag))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert found.stdout == b"True\n"


def test_what_is_no_stream_of_ours() -> None:
    assert lag(SimpleNamespace(lastProgress=None)) is None
    assert lag({"sources": [{"endOffset": "{}", "latestOffset": "no JSON"}]}) is None
    assert lag({"sources": []}) is None
    assert Lag.of([]).avg_messages == Lag.of([]).max_bytes == 0


def test_a_listener_tells(store: rmqstore.MessageStore, caplog: pytest.LogCaptureFixture) -> None:
    fill(store, "orders", 1, 3)
    query = Query(options(store, consumeFrom="first", maxMessagesPerTrigger="1"))
    query.trigger()
    report = SimpleNamespace(**progress(query))
    told: list[tuple[str, Lag]] = []
    event: Any = SimpleNamespace(progress=report)
    LagListener(lambda name, found: told.append((name, found))).onQueryProgress(event)
    assert told == [("orders", lag(report))]
    with caplog.at_level(logging.INFO, "rmqstore"):
        LagListener().onQueryProgress(event)
    assert "orders: 2 messages behind" in caplog.text
    assert QueueLag(".", "orders", 0, 2, told[0][1].bytes) in told[0][1].queues


def closed_store(path: Path, count: int = 10) -> Path:
    with rmqstore.open(path, "a", config=StoreConfig.small()) as store:
        store.create_topic("orders", 2)
        fill(store, "orders", 2, count)
    return path


def test_progress_of_a_group(tmp_path: Path) -> None:
    path = closed_store(tmp_path / "store")
    given = {"path": str(path), "consumeFrom": "group", "group": "spark", "discoveryInterval": "0"}
    query = Query({**given, "maxMessagesPerTrigger": "4"})
    query.trigger()
    query.trigger()  # a batch is known to be done once the next one is planned
    offsets = OffsetTable.load(path).offsets["orders", "spark"]
    assert offsets == {0: 2, 1: 2}
    again = Query(given)
    again.trigger()
    assert sorted(row[2] for row in again.rows) == [*(2, 2), *sorted([*range(3, 10)] * 2)]
    # One that begins anew does not take the group back.
    other = Query({**given, "consumeFrom": "first", "maxMessagesPerTrigger": "2"})
    other.trigger()
    other.trigger()
    assert OffsetTable.load(path).offsets["orders", "spark"] == {0: 2, 1: 2}


def test_the_file_is_its_owners(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = closed_store(tmp_path / "store")
    assert not is_owned(str(path))
    held = f"""
import fcntl, os, sys, time
fd = os.open({str(path / "lock")!r}, os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX, 1)
print("held", flush=True)
sys.stdin.read()
"""
    owner = subprocess.Popen([sys.executable, "-c", held], stdin=-1, stdout=-1)
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"held\n"
        assert is_owned(str(path))
        query = Query({"path": str(path), "consumeFrom": "first", "group": "spark"})
        with caplog.at_level(logging.WARNING, "rmqstore"):
            query.trigger()
            query.reader.commit(json.loads(query.offsets[0]))
            query.reader.commit(json.loads(query.offsets[0]))
        assert caplog.text.count("while another process has the store open") == 1
        assert not OffsetTable.load(path).offsets
    finally:
        owner.communicate(timeout=60)
    query.reader.commit(json.loads(query.offsets[0]))
    assert OffsetTable.load(path).offsets["orders", "spark"] == {0: 10, 1: 10}


def test_an_offset_behind_the_queue_goes_back(tmp_path: Path) -> None:
    path = str(closed_store(tmp_path / "store"))
    others = OffsetTable.load(path)
    others.offsets["orders", "spark"] = {0: 99, 1: 8}
    others.offsets["orders", "billing"] = {0: 1}
    others.save()
    assert keep_progress(path, "spark", {("orders", 0): (4, 10), ("orders", 1): (7, 10)})
    table = OffsetTable.load(path)
    assert table.offsets["orders", "spark"] == {0: 4, 1: 8}
    assert table.offsets["orders", "billing"] == {0: 1}


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = closed_store(tmp_path / "store")
    monkeypatch.setattr("rmqstore.spark.stream.groups._WAIT_SECONDS", 0.05)
    fd = os.open(path / "config", os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            keep_progress(str(path), "spark", {("orders", 0): (4, 10)})
    finally:
        os.close(fd)
    assert keep_progress(str(path), "spark", {("orders", 0): (4, 10)})
