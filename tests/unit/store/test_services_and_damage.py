"""Services that meet damage pass over it: the store opens, others are served, it stays listed."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore._core import Core
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import StoreCorruptError
from rmqstore.services import half_queue
from rmqstore.services.half_queue import HalfQueue
from rmqstore.services.schedule_search import Waiting
from rmqstore.services.stored import OP_TOPIC
from support.damaged_store import flip
from support.undelivered import undelivered

LOG_SIZE = 1 << 16
SMALL = StoreConfig.small(mapped_file_size_commit_log=LOG_SIZE)
BODY = 60  # bytes into a record, and in its body
Wait = Callable[[Callable[[], object]], None]


def bodies(store: rmqstore.MessageStore, topic: str = "t") -> list[bytes]:
    return [message.body for message in store[topic].messages()] if topic in store else []


def damage(root: Path, physical_offset: int) -> None:
    flip(root, physical_offset + 88 + BODY // 2, LOG_SIZE)


def delayed_store(root: Path, count: int = 9) -> list[int]:
    """Delayed messages of two levels in turn; where they wait."""
    with undelivered(), rmqstore.open(root, "a", config=SMALL) as store:
        places = []
        for number in range(count):
            body = b"%03d" % number * BODY
            done = store.put("t", body, delay_level=1 + number % 2, queue_id=0)
            places.append(done.physical_offset)
        store.put("end", b"of the log, where damage would be a torn write")
        return places


def numbers(store: rmqstore.MessageStore) -> list[int]:
    return sorted(int(body[:3]) for body in bodies(store))


@pytest.mark.parametrize("hit", [[0], [1], [8], [0, 1, 2, 3], [3, 5, 6], list(range(9))], ids=str)
def test_damaged_delayed_messages(
    tmp_path: Path, wait_until: Wait, caplog: pytest.LogCaptureFixture, hit: list[int]
) -> None:
    root = tmp_path / "s"
    places = delayed_store(root)
    for number in hit:
        damage(root, places[number])
    good = [number for number in range(9) if number not in hit]
    lost = {places[number] for number in hit}
    with rmqstore.open(root) as store:
        listed = store.delayed()
        assert {one.physical_offset for one in listed} == set(places)
        assert {one.physical_offset for one in listed if one.message is None} == lost
        for one in listed:
            assert (one.error is None) == (one.message is not None)
            assert one.due > 1_600_000_000_000
            if one.error is not None:
                assert f"offset {one.physical_offset}: " in one.error
    for _ in range(3):  # by an owner that was closed, and one that was killed
        with rmqstore.open(root, "r+") as store:
            store.clock.advance(10)
            wait_until(lambda: {one.physical_offset for one in store.delayed()} == lost)
            wait_until(lambda: all(one.error is not None for one in store.delayed()))
            assert numbers(store) == good
            copy = tmp_path / "copy"
            store.flush()
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(root, copy)
        said = [one.message for one in caplog.records if "cannot be delivered" in one.message]
        assert len(said) == len(hit)
        caplog.clear()
        shutil.rmtree(root)
        shutil.copytree(copy, root)
    for number in hit:
        damage(root, places[number])  # which mends it
    with rmqstore.open(root, "r+") as store:
        store.clock.advance(10)
        wait_until(lambda: not store.delayed())
        assert numbers(store) == list(range(9))


def test_mended_while_the_store_is_open(tmp_path: Path, wait_until: Wait) -> None:
    root = tmp_path / "s"
    places = delayed_store(root)
    damage(root, places[2])
    with rmqstore.open(root, "r+") as store:
        store.clock.advance(10)
        wait_until(lambda: len(store.delayed()) == 1)
        damage(root, places[2])
        wait_until(lambda: not store.delayed())
        assert numbers(store) == list(range(9))
    with rmqstore.open(root, "r+") as store:
        assert store.delayed() == []


def test_a_log_file_that_is_gone(tmp_path: Path) -> None:
    root = tmp_path / "s"
    places = delayed_store(root, 600)
    (root / "commitlog" / f"{LOG_SIZE:020d}").unlink()
    with rmqstore.open(root) as store:
        listed = store.delayed()
    assert {one.physical_offset for one in listed} == set(places)
    gone = {place for place in places if LOG_SIZE <= place < 2 * LOG_SIZE}
    assert {one.physical_offset for one in listed if one.message is None} == gone


def zero(path: Path, start: int, stop: int) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(stop - start))


def damage_log(root: Path) -> None:
    zero(root / "commitlog" / f"{2 * LOG_SIZE:020d}", 0, LOG_SIZE)


def damage_body(root: Path) -> None:
    with rmqstore.open(root) as store:
        for offset in range(store["t"][0].min_offset, store["t"][0].max_offset, 3):
            damage(root, store["t"][0][offset].physical_offset)


def damage_queue(root: Path) -> None:
    zero(root / "consumequeue" / "t" / "0" / f"{0:020d}", 200, 2000)


@pytest.mark.parametrize("end", ["closed", "killed"])
@pytest.mark.parametrize(
    "how", [damage_log, damage_body, damage_queue], ids=lambda one: one.__name__
)
@pytest.mark.parametrize("options", [{}, {"on_corruption": "fill"}], ids=str)
def test_damage_of_old_messages_keeps_no_owner_out(
    tmp_path: Path, wait_until: Wait, end: str, how: Callable[[Path], None], options: dict[str, Any]
) -> None:
    """The search for delivered messages reads the real topics, where the damage is."""
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=SMALL) as store:
        for number in range(1500):
            store.put("t", b"%03d" % number * BODY, queue_id=number % 2)
        for number in range(3):
            store.put("t", b"late%d" % number, queue_id=0, delay_level=18)
    how(root)
    if end == "killed":
        (root / "abort").touch()
    with rmqstore.open(root, "r+", **options) as store:
        assert [one.message.body for one in store.delayed()] == [b"late0", b"late1", b"late2"]
        store.clock.advance(7201)
        wait_until(lambda: not store.delayed())
        assert store["t"][0][-1].body == b"late2"
    with rmqstore.open(root, "r+", **options) as store:
        assert store.delayed() == []


def test_serve_begins_as_well(tmp_path: Path, wait_until: Wait) -> None:
    root = tmp_path / "s"
    places = delayed_store(root)
    damage(root, places[0])
    with rmqstore.serve(root) as server:
        server.store.clock.advance(10)
        wait_until(lambda: len(server.store.delayed()) == 1)
        assert numbers(server.store) == list(range(1, 9))


# ---- transactions


def halves(root: Path, count: int = 6) -> list[int]:
    with rmqstore.open(root, "a", config=SMALL) as store:
        places = []
        for number in range(count):
            begun = store.begin("t", b"%03d" % number * BODY, born_timestamp=1 + number)
            places.append(begun.prepared_offset)
        store.put("end", b"of the log, where damage would be a torn write")
        return places


@pytest.mark.parametrize("hit", [[0], [5], [0, 1, 4], list(range(6))], ids=str)
def test_damaged_half_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, hit: list[int]
) -> None:
    root = tmp_path / "s"
    places = halves(root)
    for number in hit:
        damage(root, places[number])
    lost = sorted(places[number] for number in hit)
    for mode in ("r", "r+"):
        with rmqstore.open(root, mode) as store:
            listed = store.in_doubt()
            assert {one.physical_offset for one in listed} == set(places)
            assert [one.physical_offset for one in listed if one.message is None] == lost
            for one in listed:
                assert (one.error is None) == (one.message is not None)
                if one.message is None:
                    assert f"offset {one.physical_offset}: " in one.error
                    assert str(one.physical_offset) in repr(one)
    caplog.clear()
    config = SMALL.replace(transaction_check=lambda one: "commit")
    with rmqstore.open(root, "r+", config=config) as store:
        for _ in range(3):
            store.clock.advance(61)
            store.housekeeper.run_due()
        assert numbers(store) == [number for number in range(6) if number not in hit]
        listed = store.in_doubt()
        assert [one.physical_offset for one in listed] == lost
        said = [one.message for one in caplog.records if "half message" in one.message]
        assert len(said) == len(hit)
        for one in listed:
            with pytest.raises(StoreCorruptError, match=f"offset {one.physical_offset}: "):
                one.commit()
            one.rollback()
        assert store.in_doubt() == []
    with rmqstore.open(root) as store:
        assert store.in_doubt() == []


def test_half_messages_that_are_mended_go_on(tmp_path: Path) -> None:
    root = tmp_path / "s"
    places = halves(root)
    damage(root, places[3])
    config = SMALL.replace(transaction_check=lambda one: "commit")
    with rmqstore.open(root, "r+", config=config) as store:
        assert len([one for one in store.in_doubt() if one.message is None]) == 1
        damage(root, places[3])
        store.clock.advance(61)
        store.housekeeper.run_due()
        assert store.in_doubt() == []
        assert numbers(store) == list(range(6))


def test_a_damaged_note_of_an_end_commits_nothing_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=SMALL) as store:
        for number in range(4):
            store.begin("t", b"%03d" % number * BODY, born_timestamp=1 + number).commit()
        notes = [message.physical_offset for message in store[OP_TOPIC][0]]
    (root / "config" / "consumerOffset.json").unlink()
    flip(root, notes[1] + 88, LOG_SIZE)
    config = SMALL.replace(transaction_check=lambda one: "commit")
    with rmqstore.open(root, "r+", config=config) as store:
        assert [int(one.message.body[:3]) for one in store.in_doubt()] == [1]
        store.clock.advance(61)
        store.housekeeper.run_due()
        assert store.in_doubt() == []
        assert numbers(store) == list(range(4))
    assert len([one for one in caplog.records if "a note of transactions" in one.message]) == 1


def test_a_queue_of_half_messages_that_cannot_be_read_keeps_no_other_from_its_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "s"
    halves(root)
    read = HalfQueue.read

    def fail(self: HalfQueue) -> None:
        if self.queue_id == 0:
            raise OSError("no queue 0")
        read(self)

    config = SMALL.replace(transaction_check=lambda one: "commit")
    with rmqstore.open(root, "r+", config=config) as store:
        real = store.in_doubt()[0]
        properties = "\x02".join(
            f"{name}\x01{value}"
            for name, value in {
                "TRAN_MSG": "true", "PGROUP": "p", "REAL_TOPIC": "u", "REAL_QID": "0",
            }.items()
        )  # fmt: skip
        store.core.put_stored("RMQ_SYS_TRANS_HALF_TOPIC", 1, b"other", properties, born_timestamp=1)
        monkeypatch.setattr(HalfQueue, "read", fail)
        store.clock.advance(61)
        store.housekeeper.run_due()
        assert bodies(store, "u") == [b"other"]
        assert bodies(store) == []
        monkeypatch.undo()
        assert real.message is not None


def test_half_messages_that_cannot_be_read_for_a_moment_are_entered_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=SMALL) as store:
        for number in range(5):
            store.begin("t", b"%d" % number, queue_id=0)
    with rmqstore.open(root, "r+", config=SMALL) as store:
        fourth = store["RMQ_SYS_TRANS_HALF_TOPIC"][0][3].physical_offset
        read = half_queue.read_record

        def fail(core: Core, unit: Waiting) -> object:
            if unit.physical_offset == fourth:
                raise OSError(errno.EMFILE, "Too many open files")
            return read(core, unit)

        monkeypatch.setattr(half_queue, "read_record", fail)
        with pytest.raises(OSError, match="Too many open files"):
            store.in_doubt()
        monkeypatch.undo()
        found = store.in_doubt()
        assert [one.message.body for one in found] == [b"%d" % number for number in range(5)]
        [queue] = store.transactions._queues.values()
        assert [len(copies) for copies in queue._copies.values()] == [1] * 5
        for one in found:
            one.commit()
        assert store.in_doubt() == []
        assert not queue._copies


# ---- the command line


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rmqstore", *arguments], capture_output=True, text=True, check=False
    )


def test_the_command_line_lists_what_is_damaged(tmp_path: Path) -> None:
    root = tmp_path / "s"
    places = delayed_store(root)
    halves(root)
    with rmqstore.open(root) as store:
        doubtful = [one.physical_offset for one in store.in_doubt()]
    for verb, count, hit in (("delays", 9, places[4]), ("txn", 6, doubtful[2])):
        done = run(verb, str(root), "-o", "jsonl")
        assert (done.returncode, done.stderr) == (0, "")
        assert "error" not in done.stdout
        damage(root, hit)
        done = run(verb, str(root), "-o", "jsonl", *(["--in-doubt"] if verb == "txn" else []))
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(rows) == count
        [bad] = [row for row in rows if "error" in row]
        assert bad["physical_offset"] == hit
        assert f"offset {hit}: " in bad["error"]
        assert done.returncode == 4
        assert len(done.stderr.splitlines()) == 1
        assert "1 message is damaged" in done.stderr
        done = run(verb, str(root), "-o", "table" if verb == "txn" else "csv")
        assert done.returncode == 4
        assert f"offset {hit}: " in done.stdout
    done = run("info", str(root), "-o", "jsonl")
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["delayed"], facts["in_doubt"]) == (4, 9, 6)
    for noun, hit in (("delayed", places[4]), ("half", doubtful[2])):
        assert f"1 {noun} message that waits is damaged, the first at {hit:,}" in facts["damage"]


def test_a_task_that_fails_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Task:
        error: str | None = "one"

        def run(self) -> None:
            if self.error is not None:
                raise OSError(self.error)

    task = Task()
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        store.housekeeper.every(1, task.run, "the task")
        for error in ("one", "one", "two", None, None, "two", "two"):
            task.error = error
            store.clock.advance(2)
            store.housekeeper.run_due()
    said = [one.message for one in caplog.records if "the task" in one.message]
    assert [one.partition(": ")[2] for one in said] == ["one", "two", "two"]
