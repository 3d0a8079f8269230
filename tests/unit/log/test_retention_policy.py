"""Retention all the time: by time, by use of the disk; the watermark; clocks that are set."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path

import pytest

import rmqstore
from rmqstore import PutError, PutStatus
from rmqstore.services.retention import SteadyClock, deleted_text
from support.mounts import fill_up, mount
from support.retention_stores import ALL_HOURS, FILE, HOUR, deleted_by, files, open_store, put_hours


def housekept(store: rmqstore.MessageStore) -> None:
    store.clock.advance(20)
    store.housekeeper.run_due()


def test_nothing_goes_unless_told(tmp_path: Path) -> None:
    with open_store(tmp_path, delete_when=ALL_HOURS) as store:
        put_hours(store, 4)
        store.core.pretend_disk_use(89, 89)
        store.clock.advance(1000 * HOUR)
        housekept(store)
        assert files(tmp_path)[0] == 0
        names = {thread.name for thread in threading.enumerate()}
        assert "rmq-housekeeping" not in names or store.housekeeper is not None


def test_by_time_at_the_hour(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        now = time.localtime(store.clock.now() / 1000)
    hour = (now.tm_hour + 1 + 6) % 24
    with open_store(tmp_path, file_reserved_time=3, delete_when=f"{hour:02}") as store:
        # The middle of the next hour: none ends while the test runs.
        store.clock.advance(1.5 * HOUR - 60 * now.tm_min - now.tm_sec)
        store.core.pretend_disk_use(10, 10)
        put_hours(store, 4)
        wanted = deleted_by(store, store.clock.now() + 2 * HOUR * 1000 - 3 * HOUR * 1000)
        store.clock.advance(HOUR)  # five hours by now
        housekept(store)
        assert files(tmp_path)[0] == 0
        store.clock.advance(HOUR)
        housekept(store)
        assert wanted.files
        assert files(tmp_path)[0] >= wanted.until > 0
        assert store["t"][0].min_offset > 0


def test_by_use_of_the_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = {"file_reserved_time": 2, "delete_when": other_hour(), "disk_max_used_space_ratio": 60}
    with open_store(tmp_path, **config) as store:
        store.core.pretend_disk_use(60, 60)
        put_hours(store, 4)
        housekept(store)
        assert files(tmp_path)[0] == 0
        store.core.pretend_disk_use(10, 61)  # that of the queues counts as well
        wanted = deleted_by(store, store.clock.now() - 2 * HOUR * 1000)
        with caplog.at_level(logging.INFO, "rmqstore"):
            housekept(store)
        assert files(tmp_path)[0] == wanted.until > 0
        (said,) = [one for one in caplog.messages if "retention deleted" in one]
        assert said == f"{tmp_path}: retention deleted {deleted_text(wanted)}: older than 2 h"
        assert f"offsets 0 to {wanted.until}, {wanted.messages} messages" in said


def other_hour() -> str:
    return f"{(time.localtime().tm_hour + 13) % 24:02}"


@pytest.mark.parametrize("asked", [True, False])
def test_forced_only_if_asked_for(tmp_path: Path, asked: bool) -> None:
    changes = {"file_reserved_time": 1000, "delete_commit_log_files_interval": 0}
    if asked:
        changes["clean_file_forcibly_enable"] = True
    with open_store(tmp_path, **changes) as store:
        put_hours(store, 9)
        count = len(files(tmp_path))
        assert count > 3
        store.core.pretend_disk_use(86, 10)
        housekept(store)
        assert len(files(tmp_path)) == (max(1, count - 10) if asked else count)
        store.core.pretend_disk_use(85, 85)
        put_hours(store, 9)
        count = len(files(tmp_path))
        housekept(store)
        assert len(files(tmp_path)) == count


def test_ten_files_a_round(tmp_path: Path) -> None:
    with open_store(
        tmp_path,
        file_reserved_time=0,
        delete_when=ALL_HOURS,
        delete_commit_log_files_interval=0,
        clean_resource_interval=1 << 30,
    ) as store:
        for _ in range(1500):
            store.put("t", b"x" * 200, queue_id=0)
        assert len(files(tmp_path)) > 22
        store.clock.advance(HOUR)
        for until in (10, 20):
            store.retention.clean_expired()
            assert files(tmp_path)[0] == until * FILE


def test_pause_between_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []
    with open_store(
        tmp_path,
        file_reserved_time=0,
        delete_when=ALL_HOURS,
        delete_commit_log_files_interval=70,
        clean_resource_interval=1 << 30,
    ) as store:
        put_hours(store, 9)
        count = len(files(tmp_path))
        assert count > 3
        monkeypatch.setattr(rmqstore.services.retention.time, "sleep", paused.append)
        store.retention.clean_expired()
        assert len(files(tmp_path)) == 1
    assert paused[: count - 2] == [0.07] * (count - 2)


def test_the_watermark_refuses_until_there_is_room(tmp_path: Path) -> None:
    with open_store(tmp_path, disk_space_warning_level_ratio=90) as store:
        store.put("t", b"1")
        for log, queues, name in ((91, 10, "commitlog"), (10, 91, "consumequeue")):
            store.core.pretend_disk_use(log, queues)
            for put in (
                lambda: store.put("t", b"2"),
                lambda: store.put_many("t", [b"2", b"3"]),
                lambda: store.put_batch("t", [b"2", b"3"]),
            ):
                with pytest.raises(PutError, match=f"{name}: 91 % .* more than 90 %") as caught:
                    put()
                assert caught.value.status == PutStatus.DISK_FULL
            store.core.pretend_disk_use(90, 90)
            store.put("t", b"4", queue_id=0)
        store.core.pretend_disk_use(10, 10)
        assert [m.body for m in store.scan()] == [b"1", b"4", b"4"]


def test_by_default_the_watermark_is_for_small_room(tmp_path: Path) -> None:
    with mount(tmp_path / "disk", "-t", "tmpfs", "-o", "size=24m", "tmpfs") as disk:
        with open_store(disk / "store", mapped_file_size_commit_log=1 << 20) as store:
            put = 0
            with pytest.raises(PutError) as caught:  # noqa: PT012 - one of many
                while put < 40_000:
                    store.put("t", b"x" * 1000, queue_id=0)
                    put += 1
                    if put % 100 == 0:  # its units and keys take room beside the log
                        assert len(store["t"][0]) == put
            assert caught.value.status == PutStatus.DISK_FULL
            room = os.statvfs(disk)
            assert room.f_bavail * room.f_frsize > 1 << 20  # there is some left
            assert len(store["t"][0]) == put
            store.clock.advance(HOUR)
            assert store.delete_expired(before=store.clock.now()).files > 10
            store.put("t", b"there is room", queue_id=0)
        with rmqstore.open(disk / "store", "r+") as store:
            assert store["t"][0][-1].body == b"there is room"
            rest = fill_up(disk)
            for _ in range(200):  # noticed within a second or so
                try:
                    store.put("t", b"y", queue_id=0)
                except PutError:
                    break
                time.sleep(0.05)
            else:
                pytest.fail("a full disk was not noticed")
            rest.unlink()
            store.put("t", b"z", queue_id=0)


class Clocks:
    def __init__(self) -> None:
        self.wall = 1_000_000_000
        self.elapsed = 5_000

    def pass_by(self, millis: int) -> None:
        self.wall += millis
        self.elapsed += millis


def steady(clocks: Clocks, patience: int) -> SteadyClock:
    return SteadyClock(patience, lambda: clocks.wall, lambda: clocks.elapsed)


def test_a_clock_set_forward_makes_nothing_older() -> None:
    clocks, day = Clocks(), 24 * HOUR * 1000
    clock = steady(clocks, 3 * day)
    start = clock.now()
    assert start == clocks.wall
    clocks.pass_by(1000)
    assert clock.now() == start + 1000
    clocks.wall += day
    assert clock.now() == start + 1000
    clocks.pass_by(2 * day)
    assert clock.now() == start + 1000 + 2 * day
    clocks.pass_by(day)  # by now all that was stored before is older than is kept
    assert clock.now() == clocks.wall
    clock.advance(5 * day)
    assert clock.now() == clocks.wall + 5 * day


def test_a_clock_set_back_and_forward_again() -> None:
    clocks, day = Clocks(), 24 * HOUR * 1000
    clock = steady(clocks, day // 2)
    start = clock.now()
    clocks.wall -= day
    assert clock.now() == start - day
    clocks.pass_by(20 * HOUR * 1000)
    stored = start  # store times do not go back
    clocks.wall += day
    assert clock.now() - stored < 0  # it is not yet an old message
    clocks.pass_by(day // 2 - 1)
    assert clock.now() - stored < day // 2
    clocks.pass_by(1)
    assert clock.now() == clocks.wall
    for _ in range(100):  # small corrections are followed
        clocks.pass_by(1000)
        clocks.wall += 500
        assert clock.now() == clocks.wall


def test_a_wall_clock_set_forward_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path, file_reserved_time=24, delete_when=ALL_HOURS) as store:
        put_hours(store, 4)
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() + 48 * HOUR * 10**9)
        housekept(store)
        assert store.delete_expired().files == 0
        assert files(tmp_path)[0] == 0
        store.clock.advance(26 * HOUR)  # this is meant
        assert store.delete_expired().files > 0
