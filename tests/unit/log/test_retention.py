"""``delete_expired`` and retention all the time: what goes, what stays, and who notices."""

from __future__ import annotations

import datetime as dt
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Deleted, GetStatus, MessagesRemovedError
from support.retention_stores import (
    FILE,
    HOUR,
    deleted_by,
    files,
    newest_of_files,
    open_store,
    put_hours,
)


@pytest.mark.parametrize("hour", [0, 2, 3, 6, 9, 100])
def test_what_goes_and_what_stays(tmp_path: Path, hour: int) -> None:
    with open_store(tmp_path) as store:
        store.put("early", b"alone", keys="early")
        times = put_hours(store, 9)
        times += [store.clock.now()] * 200
        before = times[hour]
        bodies = {m.physical_offset: m.body for m in store.scan()}
        wanted = deleted_by(store, before)
        assert store.delete_expired(before=before, dry_run=True) == wanted
        assert files(tmp_path)[0] == 0
        assert store.delete_expired(before=before) == wanted
        assert store.delete_expired(before=before) == Deleted(until=wanted.until)
        assert (wanted.files > 0) == (hour > 0)
        assert files(tmp_path)[0] == wanted.until
        kept = {at: body for at, body in bodies.items() if at >= wanted.until}
        assert {m.physical_offset: m.body for m in store.scan()} == kept
        for topic in store.topics.values():
            for queue in topic.values():
                if queue.max_offset == 0:
                    continue
                got = store.get(topic.name, queue.queue_id, queue.min_offset, 1000)
                assert len(got.messages) == len(queue)
                assert all(m.physical_offset >= wanted.until for m in got.messages)
                assert [m.queue_offset for m in got.messages] == list(
                    range(queue.min_offset, queue.max_offset)
                )
                directory = f"consumequeue/{topic.name}/{queue.queue_id}"
                first = files(tmp_path, directory)[0] // 20
                assert first <= queue.min_offset or first == 0
                assert queue.min_offset - first <= 20 or len(files(tmp_path, directory)) == 1
        for key, there in (("early", hour == 0), ("k8.39", True)):
            topic_name = "early" if key == "early" else "t"
            assert bool(store.query(topic_name, key)) == there
        assert len(files(tmp_path, "index")) == 1 or all(
            rmqstore.IndexFile(path, hash_slot_num=50, index_num=200).end_phy_offset >= wanted.until
            for path in (tmp_path / "index").iterdir()
        )
        if hour:  # the numbering of an emptied queue goes on
            assert (store["early"][0].min_offset, store["early"][0].max_offset) == (1, 1)
            assert store.put("early", b"again", queue_id=0).queue_offset == 1
            assert store["early"][0][1].body == b"again"
    with rmqstore.open(tmp_path, "r+") as again:
        assert again.recovery.clean
        assert again.recovery.units_written == 0
        assert files(tmp_path)[0] == wanted.until
        assert again["t"][0].max_offset == 126
    with rmqstore.open(tmp_path) as reader:
        assert reader.scan().count() == len(kept) + (hour > 0)


def test_before_takes_times_and_has_a_default(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        times = put_hours(store, 4)
        with pytest.raises(ValueError, match="file_reserved_time is None"):
            store.delete_expired()
        with pytest.raises(ValueError, match="before"):
            store.delete_expired(before=dt.datetime(2026, 1, 1))
        moment = dt.datetime.fromtimestamp(times[2] / 1000, dt.UTC)
        text = moment.isoformat(timespec="milliseconds")
        wanted = deleted_by(store, times[2])
        assert wanted.files
        assert store.delete_expired(before=moment, dry_run=True) == wanted
        assert store.delete_expired(before=text, dry_run=True) == wanted
    # An hour that the clock does not come to: the service must not be the first to delete.
    never = f"{(time.localtime().tm_hour + 12) % 24:02}"
    with open_store(tmp_path, file_reserved_time=2, delete_when=never) as store:
        limit = store.clock.now() - 2 * HOUR * 1000
        assert store.delete_expired(dry_run=True) == deleted_by(store, limit)
        assert store.delete_expired().files == 0  # these 4 hours were not those of this clock
        store.clock.advance(4 * HOUR)
        wanted = deleted_by(store, store.clock.now() - 2 * HOUR * 1000)
        assert store.delete_expired() == wanted
        assert wanted.files


def test_a_file_is_as_old_as_its_newest_message(tmp_path: Path) -> None:
    """Also where times do not ascend, as where a broker's clock was set back."""
    with open_store(tmp_path) as store:
        put_hours(store, 3)
        times = newest_of_files(store)
    start, second = sorted(times)[:2]
    later = max(max(each) for each in times.values()) + 50 * HOUR * 1000
    with (tmp_path / f"commitlog/{start:020d}").open("r+b") as file:
        file.seek(56)  # the store time of the file's first record
        file.write(later.to_bytes(8, "big"))
    with rmqstore.open(tmp_path, "r+") as store:
        assert store.at(0).store_timestamp == later
        assert store.delete_expired(before=later).files == 0
        assert store.delete_expired(before=later + 1).until >= second


def test_read_only_only_says(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        times = put_hours(store, 4)
        with rmqstore.open(tmp_path) as beside:
            wanted = store.delete_expired(before=times[2], dry_run=True)
            assert beside.delete_expired(before=times[2], dry_run=True) == wanted
            with pytest.raises(rmqstore.ReadOnlyStoreError):
                beside.delete_expired(before=times[2])
    with rmqstore.open(tmp_path) as reader:
        assert reader.delete_expired(before=times[2], dry_run=True) == wanted
    with pytest.raises(rmqstore.StoreClosedError):
        store.delete_expired(before=times[2])


def test_held_messages_stay_and_are_counted(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_hours(store, 4)
        first = store.at(0)
        second = store["t"][1][0]
        view = store["t"][2][0].raw_body
        far = next(m for m in store.scan() if m.physical_offset >= FILE)
        assert store.stats()["held_deleted_bytes"] == 0
        assert store.delete_expired(before=store.clock.now()).files >= 2
        assert first.body == second.body == bytes(view) == far.body == b"x" * 100
        assert store.stats()["held_deleted_bytes"] == 2 * FILE
        first.detach()
        second.detach()
        assert store.stats()["held_deleted_bytes"] == 2 * FILE
        view.release()
        del view
        gc.collect()
        assert store.stats()["held_deleted_bytes"] == FILE
        del far
        gc.collect()
        assert store.stats()["held_deleted_bytes"] == 0
        late = store["t"][0][-1]
    assert (first.keys, late.body) == (("k0.0",), b"x" * 100)


def test_iterations_and_gets_learn_of_it(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_hours(store, 9, 300)
        queue = store["t"][0]
        going = iter(queue)
        assert next(going).queue_offset == 0
        scans = [iter(store.scan("t", 0)), iter(store.scan()), iter(store.scan(batch_rows=1))]
        skipping = iter(store.scan(on_removed="skip", batch_rows=1))
        for scan in [*scans, skipping]:
            next(scan)
        done = store.delete_expired(before=store.clock.now())
        assert store.get("t", 0, 0).status == GetStatus.OFFSET_TOO_SMALL
        assert store.get("t", 0, 0).next_offset == queue.min_offset > 0
        with pytest.raises(IndexError, match=str(queue.min_offset)):
            queue[0]
        with pytest.raises(MessagesRemovedError):
            list(going)
        assert [m for m in skipping if m.physical_offset >= done.until]
        removed = 0
        for scan in scans:
            try:
                list(scan)
            except MessagesRemovedError:
                removed += 1
        assert removed  # those that had read so far keep what they hold
        with pytest.raises(rmqstore.MessageNotFoundError):
            store.at(0)


def test_times_of_files(tmp_path: Path) -> None:
    with open_store(tmp_path, retention_clock="mtime") as store:
        put_hours(store, 4)
    now = int(time.time())
    starts = files(tmp_path)
    for number, start in enumerate(starts):
        os.utime(tmp_path / f"commitlog/{start:020d}", (now, now - 1000 + number))
    with open_store(tmp_path, retention_clock="mtime") as store:
        store.flush()
        done = store.delete_expired(before=(now - 1000 + 2) * 1000)
        assert done.files == 2
        assert done.messages > 0
    assert files(tmp_path) == starts[2:]


def test_unused_topics_go_with_their_last_message(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put("gone", b"1")
        store.put("%RETRY%kept", b"1")
        store.put("listed", b"1")
        put_hours(store, 4)
    config = tmp_path / "config/topics.json"
    config.write_text(config.read_text().replace('"gone"', '"other"'))
    with open_store(tmp_path) as store:
        assert store.clean_unused_topics() == []
        assert store["gone"][0][0].body == b"1"
        limit = store["t"][0][-1].store_timestamp
        first, _, _ = store.core.removable_files()
        assert store.clean_unused_topics(dry_run=True) == []
        done = store.delete_expired(before=limit)
        assert done.files
        assert first == 0
        assert "gone" not in store
        assert not (tmp_path / "consumequeue/gone").exists()
        assert (tmp_path / "consumequeue/listed/0").exists()
        assert (tmp_path / "consumequeue/%RETRY%kept/0").exists()
        assert store.clean_unused_topics() == []
        assert store.put("gone", b"2").queue_offset == 0
        assert store["gone"][0][0].body == b"2"
    with rmqstore.open(tmp_path, "r+") as again:
        assert again.recovery.units_written == 0
        assert again["gone"][0][0].body == b"2"


def test_puts_and_reads_go_on(tmp_path: Path) -> None:
    """Threads that put, read and hold, while files go behind them."""
    stop = threading.Event()
    failed: list[BaseException] = []

    def run(work) -> None:  # type: ignore[no-untyped-def]
        try:
            while not stop.is_set():
                work()
        except BaseException as error:
            failed.append(error)

    sizes = {"mapped_file_size_consume_queue": 8000, "max_hash_slot_num": 1000}
    with open_store(tmp_path, max_index_num=4000, **sizes) as store:
        store.put("t", b"0", queue_id=0)

        def put() -> None:
            store.put_many("t", [b"y" * 100] * 50, queue_id=0, keys=["k"] * 50)
            time.sleep(0.005)

        def read() -> None:
            queue = store["t"][0]
            low = queue.min_offset
            got = store.get("t", 0, low, 64)
            assert got.status in (GetStatus.FOUND, GetStatus.OFFSET_TOO_SMALL), got.status
            offsets = [m.queue_offset for m in got.messages]
            assert offsets == list(range(low, low + len(offsets)))
            for message in got.messages[:2]:
                assert message.body[:1] in b"y0there is"

        def scan() -> None:
            try:
                rows = [m.physical_offset for m in store.scan("t", 0)]
                assert rows == sorted(rows)
                store.query("t", "k", max_num=50)
            except MessagesRemovedError:
                pass

        threads = [threading.Thread(target=run, args=[work]) for work in (put, read, scan)]
        for thread in threads:
            thread.start()
        done = 0
        until = time.monotonic() + 60
        while done <= 12 and not failed and time.monotonic() < until:
            done += store.delete_expired(before=store.clock.now() + 1).files
            time.sleep(0.01)
        stop.set()
        for thread in threads:
            thread.join()
        assert not failed, failed
        assert done > 5
        count = store.scan().count()
    with rmqstore.open(tmp_path, "r+") as again:
        assert again.scan().count() == count == len(again["t"][0])


READER = """
import sys, time
import rmqstore
with rmqstore.open(sys.argv[1]) as store:
    print("ready", flush=True)
    at = seen = gaps = 0
    while True:
        got = store.get("t", 0, at, 100)
        for message in got.messages:
            assert message.queue_offset >= at and message.body == b"%d" % message.queue_offset
            at = message.queue_offset + 1
            seen += 1
            if message.queue_offset == int(sys.argv[2]):
                print(seen, gaps)
                raise SystemExit
        if got.next_offset > at:
            gaps += got.next_offset - at
            at = got.next_offset
        if not got.messages:
            time.sleep(0.002)
"""


def test_a_reader_in_another_process_goes_on(tmp_path: Path) -> None:
    count = 4000
    with open_store(tmp_path) as store:
        store.put("t", b"0", queue_id=0)
        with subprocess.Popen(
            [sys.executable, "-c", READER, str(tmp_path), str(count - 1)],
            stdout=subprocess.PIPE,
            text=True,
        ) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
            for number in range(1, count):
                store.put("t", b"%d" % number, queue_id=0)
                if number % 200 == 0:
                    store.delete_expired(before=store.clock.now() + 1)
            out, _ = reader.communicate(timeout=60)
    assert reader.returncode == 0
    seen, gaps = map(int, out.split())
    assert seen + gaps == count
    assert files(tmp_path)[0] > 0


@pytest.mark.needs_debug_build
def test_a_name_that_cannot_be_removed_stays(tmp_path: Path) -> None:
    """The store goes on, and has what it has."""
    from rmqstore import _core

    if not _core.FAULTS:
        pytest.fail("no failure injection in this build")
    with open_store(tmp_path) as store:
        put_hours(store, 4)
        count = store.scan().count()
        os.environ["RMQ_FAIL_AT"] = "unlink:1:30+"  # EROFS, at whatever count the process is
        try:
            with pytest.raises(OSError, match="commitlog"):
                store.delete_expired(before=store.clock.now())
        finally:
            del os.environ["RMQ_FAIL_AT"]
        assert files(tmp_path)[0] == 0
        assert store["t"][0].min_offset == 0
        assert store.scan().count() == count
        assert store.get("t", 0, 0).status == GetStatus.FOUND
        assert store.delete_expired(before=store.clock.now()).files > 0


def test_a_reader_sees_where_an_emptied_queue_goes_on(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for _ in range(13):
            store.put("early", b"x", queue_id=0)
        put_hours(store, 4)
        store.delete_expired(before=store["t"][0][-1].store_timestamp)
        assert (store["early"][0].min_offset, store["early"][0].max_offset) == (13, 13)
        with rmqstore.open(tmp_path) as beside:
            assert (beside["early"][0].min_offset, beside["early"][0].max_offset) == (13, 13)
    with rmqstore.open(tmp_path) as reader:
        assert (reader["early"][0].min_offset, reader["early"][0].max_offset) == (13, 13)
        assert reader.get("early", 0, 13).status == GetStatus.OFFSET_OVERFLOW_ONE
