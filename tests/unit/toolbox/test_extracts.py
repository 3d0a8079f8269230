"""Extracts: equal messages in their order, offsets translated, nothing half-done."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import toolbox
from rmqstore.brokerfiles.delays import DelayTable
from rmqstore.toolbox.copies import extracts as module
from rmqstore.toolbox.copies.extracted_config import QueueSpan

pytestmark = pytest.mark.pure

CONFIG = rmqstore.StoreConfig.small().replace(
    mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=2000
)
SAME = (
    *("topic", "queue_id", "body", "properties", "flag", "sys_flag", "born_timestamp"),
    *("born_host", "store_timestamp", "store_host", "reconsume_times", "store_size"),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        for name in ("orders", "audit"):
            store.create_topic(name, 2)
        for number in range(400):
            store.put(
                "audit" if number % 3 == 0 else "orders",
                b"%d " % number + b"x" * (number % 600),
                queue_id=number % 2,
                keys=f"k{number}",
                tags="odd" if number % 2 else "even",
                properties={"n": str(number)},
            )
        store.put("orders", b"later", delay_level=3)
        for group, topic, count in (("billing", "orders", 50), ("watch", "audit", 5)):
            with store.consumer(topic, group=group) as messages:
                found = iter(messages)
                for _ in range(count):
                    next(found)
                messages.commit()
    return tmp_path / "store"


def contents(path: Path, **chosen: Any) -> list[tuple[Any, ...]]:
    with rmqstore.open(path) as store:
        return [tuple(getattr(one, name) for name in SAME) for one in store.scan(**chosen)]


def names(directory: Path) -> list[str]:
    return sorted(one.name for one in directory.iterdir())


def test_topics(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = toolbox.extract(root, out, "orders")
    expected = contents(root, topic="orders")
    assert contents(out) == expected
    assert (made.messages, made.skipped) == (len(expected), 0)
    assert made.bytes == sum(one[-1] for one in expected)
    with rmqstore.open(root) as old, rmqstore.open(out, "r+") as new:
        assert new.recovery.clean
        assert new.recovery.queues_rebuilt == new.recovery.index_files_rebuilt == 0
        assert new.config.mapped_file_size_commit_log == 1 << 16
        assert set(new.topics) == {"orders"}
        assert set(new.offsets) == {("orders", "billing")}
        assert new.offsets["orders", "billing"] == old.offsets["orders", "billing"]
        for queue_id in (0, 1):
            queue = new["orders"][queue_id]
            assert [one.body for one in queue[:]] == [
                one.body for one in old["orders"][queue_id][:]
            ]
        assert [one.body for one in new.query("orders", "k7")] == [b"7 " + b"x" * 7]
        assert new.query("audit", "k3") == []
        assert new.put("orders", b"more", queue_id=0).queue_offset == queue.max_offset
    assert names(tmp_path) == ["out", "store"]


def test_a_time_range_translates_offsets(root: Path, tmp_path: Path) -> None:
    with rmqstore.open(root) as store:
        times = [one.store_timestamp for one in store.scan("orders")]
    since, until = times[20], times[200]
    out = tmp_path / "out"
    toolbox.extract(root, out, ["orders"], since=since, until=until)
    assert contents(out) == contents(root, topic="orders", since=since, until=until)
    with rmqstore.open(root) as old, rmqstore.open(out) as new:
        for queue_id, offset in old.offsets["orders", "billing"].items():
            before, after = old["orders"][queue_id], new["orders"][queue_id]
            taken = [one.queue_offset for one in before[:] if since <= one.store_timestamp < until]
            assert (after.min_offset, after.max_offset) == (0, len(taken))
            expected = sum(1 for one in taken if one < offset)
            assert new.offsets["orders", "billing"][queue_id] == expected
    span = QueueSpan(10, 20, 10)
    assert [span.translated(one) for one in (0, 10, 13, 20, 99)] == [0, 0, 3, 10, 10]


def test_delayed_messages(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    toolbox.extract(root, out, ["orders", "SCHEDULE_TOPIC_XXXX"])
    assert contents(out) == contents(root, topic=["orders", "SCHEDULE_TOPIC_XXXX"])
    assert DelayTable.load(out).offsets == DelayTable.load(root).offsets
    with rmqstore.open(root) as old, rmqstore.open(out) as new:
        theirs, ours = (s["SCHEDULE_TOPIC_XXXX"][2].units() for s in (old, new))
        assert theirs["tags_code"].tolist() == ours["tags_code"].tolist()  # the time when due


def test_half_messages_keep_their_queue_offsets(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.create_topic("orders", 1)
        ended = [store.begin("orders", b"%d" % number) for number in range(3)]
        ended[0].commit()
        ended[1].rollback()
    out = tmp_path / "out"
    toolbox.extract(tmp_path / "store", out, "RMQ_SYS_TRANS_HALF_TOPIC", since=0)
    with rmqstore.open(tmp_path / "store") as old, rmqstore.open(out) as new:
        assert set(new.topics) == {"RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"}
        for topic in new.topics:
            assert [one.queue_offset for one in new[topic][0][:]] == [
                one.queue_offset for one in old[topic][0][:]
            ]


def test_no_message(root: Path, tmp_path: Path) -> None:
    made = toolbox.extract(root, tmp_path / "out", "orders", until=1)
    assert (made.messages, made.bytes) == (0, 0)
    with rmqstore.open(tmp_path / "out", "r+") as store:
        assert store.put("orders", b"first", queue_id=0).queue_offset == 0
        assert dict(store.offsets["orders", "billing"]) == {0: 0}


def test_damage(root: Path, tmp_path: Path) -> None:
    with rmqstore.open(root) as store:
        places = [one.physical_offset for one in store.scan("orders")]
        other = next(iter(store.scan("audit", start=100_000))).physical_offset
    for at in (places[30], places[31], places[90], other):
        log = root / "commitlog" / f"{at - at % (1 << 16):020d}"
        with log.open("r+b") as file:
            file.seek(at % (1 << 16) + 91)
            file.write(b"\xff\xfe")
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    with pytest.raises(rmqstore.StoreCorruptError):
        toolbox.extract(root, tmp_path / "out", "orders")
    assert names(tmp_path) == ["store"]
    made = toolbox.extract(root, tmp_path / "out", "orders", on_corruption="skip")
    expected = contents(root, topic="orders", on_corruption="skip")
    assert len(expected) == len(places) - 3
    assert contents(tmp_path / "out") == expected
    assert (made.messages, made.skipped) == (len(expected), 3)  # two records side by side
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    with rmqstore.open(tmp_path / "out") as store:
        assert store.recovery.clean


TORN = ("topics.json", "consumerOffset.json", "delayOffset.json", "consumerFilter.json")


@pytest.mark.parametrize("torn", [*((one,) for one in TORN), TORN])
def test_torn_configuration(root: Path, tmp_path: Path, torn: tuple[str, ...]) -> None:
    topics = ("orders", "SCHEDULE_TOPIC_XXXX")
    for name in torn:
        (root / "config" / name).write_text('{"a":')
        (root / "config" / f"{name}.bak").unlink(missing_ok=True)
    with pytest.raises(rmqstore.StoreCorruptError, match=torn[0]) as refused:
        toolbox.extract(root, tmp_path / "out", topics)
    assert refused.value.path == str(root / "config" / torn[0])
    assert names(tmp_path) == ["store"]
    made = toolbox.extract(root, tmp_path / "out", topics, on_corruption="skip")
    assert made.skipped == len(torn)
    assert contents(tmp_path / "out") == [
        one for topic in topics for one in contents(root, topic=topic)
    ]
    with rmqstore.open(tmp_path / "out") as store:
        assert store.recovery.clean
        assert store.topics["orders"][0].max_offset > 0


def test_without_queues_beside_an_owner(root: Path, tmp_path: Path) -> None:
    with rmqstore.open(root, "r+") as store:
        store.put("orders", b"new", queue_id=0)
        toolbox.extract(root, tmp_path / "live", "orders")
    assert contents(tmp_path / "live") == contents(root, topic="orders")
    shutil.rmtree(root / "index")
    (root / "abort").touch()
    toolbox.extract(root, tmp_path / "killed", "orders")
    assert contents(tmp_path / "killed") == contents(root, topic="orders")


@pytest.mark.parametrize("where", ["copy_pieces", "seal_store", "copy_config"])
def test_a_full_disk_leaves_nothing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def full(*arguments: object, **given: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, where, full)
    with pytest.raises(OSError, match="nothing of the extract is left"):
        toolbox.extract(root, tmp_path / "out", "orders")
    assert names(tmp_path) == ["store"]


def test_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(rmqstore.TopicNotFoundError, match="did you mean 'orders'"):
        toolbox.extract(root, tmp_path / "out", "order")
    with pytest.raises(ValueError, match="topics must be"):
        toolbox.extract(root, tmp_path / "out", [])
    with pytest.raises(ValueError, match="out must be outside"):
        toolbox.extract(root, root / "out", "orders")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine").touch()
    with pytest.raises(FileExistsError, match="is not empty"):
        toolbox.extract(root, tmp_path / "used", "orders")
    (tmp_path / "out.unfinished").mkdir()
    with pytest.raises(FileExistsError, match="not finished"):
        toolbox.extract(root, tmp_path / "out", "orders")
    (tmp_path / "out.unfinished").rmdir()
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    toolbox.extract(root, tmp_path / "link", "orders")
    assert (tmp_path / "link").is_symlink()
    assert contents(tmp_path / "disk") == contents(root, topic="orders")


@pytest.mark.parametrize("topic", ["orders", "audit"])
def test_one_damage_is_one(root: Path, tmp_path: Path, topic: str) -> None:
    with rmqstore.open(root) as store:
        at = [one.physical_offset for one in store.scan("orders")][30]
    with (root / "commitlog" / f"{at - at % (1 << 16):020d}").open("r+b") as file:
        file.seek(at % (1 << 16) + 91)
        file.write(b"\xff\xfe")
    assert toolbox.extract(root, tmp_path / "out", topic, on_corruption="skip").skipped == 1
