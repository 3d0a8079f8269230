"""``toolbox.plan``: a broker's start, its next deletions, and a full disk."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import rmqstore
from rmqstore import StoreConfig, toolbox
from support import damaged_store

HOUR = 3_600_000
NOON = int(datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eleven log files in two queues, a group that has consumed 50, and a delayed message."""
    return damaged_store.with_group(tmp_path_factory.mktemp("plan") / "store")


@pytest.fixture
def root(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TZ", "UTC")
    return shutil.copytree(made, tmp_path / "store")


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def aged(root: Path, hours: list[float]) -> None:
    """Set the age of the first log files, at noon; the others are new."""
    for number, path in enumerate(log_files(root)):
        age = hours[number] if number < len(hours) else 0
        seconds = NOON / 1000 - age * 3600
        os.utime(path, (seconds, seconds))


def messages_before(root: Path, stop: int) -> list[tuple[int, int]]:
    """Queue and queue offset of each record that begins before a physical offset."""
    records = damaged_store.records(root)
    return [(one.queue_id, one.queue_offset) for one in records if one.physical_offset < stop]


def deletions(plan: toolbox.Plan) -> list[toolbox.PlanEvent]:
    return [one for one in plan.events if one.event == "delete"]


def test_the_next_delete_when(root: Path) -> None:
    aged(root, [80, 57, 55, 10])
    plan = toolbox.plan(root, at=NOON)
    first = deletions(plan)[0]
    assert first.at == NOON + 16 * HOUR  # four in the morning
    assert first.why.startswith("deleteWhen=04: files older than fileReservedTime=72")
    # 80 + 16 and 57 + 16 hours are enough, 55 + 16 are not.
    assert first.files == tuple(f"commitlog/{path.name}" for path in log_files(root)[:2])
    until = 2 * damaged_store.LOG_SIZE
    gone = messages_before(root, until)
    assert (first.bytes, first.messages) == (until, len(gone))
    kept = damaged_store.records(root)[len(gone)]
    assert first.oldest_kept == kept.store_timestamp


def test_a_file_that_is_not_old_keeps_those_after_it(root: Path) -> None:
    aged(root, [80, 1, 80])
    assert len(deletions(toolbox.plan(root, at=NOON))[0].files) == 1
    aged(root, [1, 80, 80])
    first = deletions(toolbox.plan(root, at=NOON))[0]
    assert (first.files, first.messages, first.groups) == ((), 0, ())
    moment = datetime.fromtimestamp(NOON / 1000, UTC) + timedelta(hours=71)
    assert f"none goes before {moment:%Y-%m-%dT%H}" in first.why


def test_the_last_file_stays(root: Path) -> None:
    aged(root, [100] * 20)
    files = log_files(root)
    assert len(deletions(toolbox.plan(root, at=NOON))[0].files) == len(files) - 1
    for one in deletions(toolbox.plan(root, at=NOON))[1:]:
        assert len(one.files) == 10  # a round


def test_the_configuration_of_the_broker(root: Path, tmp_path: Path) -> None:
    aged(root, [80, 57, 55, 10])
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=11\ndeleteWhen=02;12\n")
    first, used, forced, _ = deletions(toolbox.plan(root, config=conf, at=NOON + 60_000))
    assert first.at == NOON + 60_000  # that hour
    assert len(first.files) == len(used.files) == 3
    assert len(forced.files) == 10
    conf.write_text(
        "fileReservedTime=11\ncleanFileForciblyEnable=false\ndiskMaxUsedSpaceRatio=60\n"
    )
    _, used, forced, full = deletions(toolbox.plan(root, config=conf, at=NOON))
    assert "more than 60 % full" in used.why
    assert (forced.files, full.files) == ((), ())
    embedded = StoreConfig(file_reserved_time=1, delete_when="13")
    first = deletions(toolbox.plan(root, config=embedded, at=NOON))[0]
    assert (first.at, len(first.files)) == (NOON + HOUR, len(log_files(root)) - 1)


def test_groups_that_lose_messages(root: Path) -> None:
    aged(root, [80] * 9)
    first = deletions(toolbox.plan(root, at=NOON))[0]
    gone = messages_before(root, 9 * damaged_store.LOG_SIZE)
    with rmqstore.open(root) as store:
        committed = store.offsets["Topic1", "g"]
    wanted = sum(offset >= committed.get(queue_id, 0) for queue_id, offset in gone)
    assert wanted > 0
    assert first.groups == (toolbox.GroupLoss("g", "Topic1", wanted),)


def test_what_waits(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=damaged_store.CONFIG) as store:
        store.put("T", b"later", queue_id=0, delay_level=18)
        store.begin("T", b"half", producer_group="p")
        for number in range(60):
            store.put("T", b"%03d" % number * 300, queue_id=0)
    for path in log_files(root):
        os.utime(path, (0, 0))
    first = deletions(toolbox.plan(root))[0]
    assert (first.delayed, first.in_doubt) == (1, 1)
    assert "hours earlier than their messages'" in first.why


def test_the_start_of_a_closed_store(root: Path) -> None:
    start, *_ = toolbox.plan(root).events
    third = log_files(root)[-3]
    assert (start.event, start.files, start.bytes, start.messages) == ("start", (), 0, 0)
    assert f"it was closed: the log is recovered from commitlog/{third.name} on, 3 of" in start.why


def test_the_start_of_a_killed_store(root: Path) -> None:
    damaged_store.killed(root)
    records = damaged_store.records(root)
    hit = records[60]
    damaged_store.poke(root, hit.physical_offset + 100, b"\xff")
    start, *_ = toolbox.plan(root).events
    behind = [path for path in log_files(root) if int(path.name) > hit.physical_offset]
    assert start.files == tuple(f"commitlog/{path.name}" for path in behind)
    assert f"the log is cut at {hit.physical_offset}" in start.why
    assert start.messages >= len(records) - 61
    with rmqstore.open(root) as store:
        assert start.bytes == store.recovery.log_end - hit.physical_offset


def test_a_start_that_fails(root: Path) -> None:
    (root / "commitlog/.DS_Store").write_bytes(b"x")
    start, *_ = toolbox.plan(root).events
    assert start.why.startswith("a 4.9.3 broker would not start: ")


def test_the_disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Others fill and empty the real one meanwhile.
    blocks = 1 << 20
    status = os.statvfs_result((4096, 4096, blocks, blocks // 2, blocks // 3, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: status)
    with rmqstore.open(root) as store:
        newest = max(one.store_timestamp for one in store.scan())
    plan = toolbox.plan(root, at=newest + HOUR)
    taken = status.f_blocks - status.f_bfree
    assert plan.used == pytest.approx(taken / (taken + status.f_bavail), abs=0.01)  # rounded up
    assert plan.full_at is not None
    assert plan.full_at > newest + HOUR
    rate = damaged_store.records(root)[-1].physical_offset / HOUR  # about, in bytes a ms
    wanted = status.f_bavail * status.f_frsize / rate
    assert plan.full_at - newest - HOUR == pytest.approx(wanted, rel=0.2)
    times = [one.at for one in deletions(plan)[1:]]
    assert times == sorted(times, key=lambda one: one or 0)
    assert times[-1] is not None
    assert times[-1] <= plan.full_at
    assert toolbox.plan(root, at=newest + 25 * HOUR).full_at is None  # nothing in that day


def test_nothing_is_written_and_wrong_arguments(root: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")}
    toolbox.plan(root)
    assert before == {
        path: (path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")
    }
    with pytest.raises(ValueError, match="at must be"):
        toolbox.plan(root, at="yesterday")
    with pytest.raises(rmqstore.StoreNotFoundError):
        toolbox.plan(root / "config")


@pytest.mark.parametrize(
    ("name", "unknown"),
    [
        ("consumerOffset.json", "the groups are unknown"),
        ("delayOffset.json", "the delayed messages are unknown"),
    ],
)
def test_a_torn_json_file_leaves_only_its_own_part_unknown(
    root: Path, name: str, unknown: str
) -> None:
    aged(root, [100])
    [whole, *_] = deletions(toolbox.plan(root, at=NOON))
    for one in (name, f"{name}.bak"):
        (root / "config" / one).write_bytes(b'{"off')
    found = toolbox.plan(root, at=NOON)
    assert f"a 4.9.3 broker would not start: config/{name}: " in found.events[0].why
    for event in (found.events[0], deletions(found)[0]):
        assert event.why.endswith(f"; {unknown}: {name} cannot be read")
    [first, *_] = deletions(found)
    assert (first.files, first.messages) == (whole.files, whole.messages)
    assert bool(first.groups) == (name == "delayOffset.json")
