"""Whatever a sync fails with, its failure is final, and nobody is told later that all is well."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import threading
import time

import pytest

import rmqstore
from crash import writer
from rmqstore import _core
from support.serving import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.needs_debug_build]

# As for a file that could not be opened, which is tried again.
TRANSIENT = [errno.ENOMEM, errno.EMFILE, errno.ENFILE]


@pytest.fixture(autouse=True)
def _faults_build():
    if not _core.FAULTS:
        pytest.fail("no failure injection in this build: build it with RMQSTORE_BUILD=faults")


@pytest.mark.parametrize("number", [*TRANSIENT, errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_sync_is_never_tried_again(tmp_path, monkeypatch, flush, number):
    monkeypatch.setenv("RMQ_FAIL_AT", f"sync:1000000:{number}")
    store = rmqstore.open(tmp_path / "store", "a", config=writer.config(flush))
    store.put("Topic1", b"good", queue_id=0)
    store.wait_durable()
    # The count goes on in this process: with a "+" from now on, and then never again.
    monkeypatch.setenv("RMQ_FAIL_AT", f"sync:1:{number}+")
    with pytest.raises(rmqstore.StoreFailedError):  # noqa: PT012 - one of the two
        store.put("Topic1", b"lost?", queue_id=0)
        store.flush()
    monkeypatch.delenv("RMQ_FAIL_AT")
    with pytest.raises(rmqstore.StoreFailedError):
        store.put("Topic1", b"after", queue_id=0)
    with pytest.raises(rmqstore.StoreFailedError):
        store.flush()
    with pytest.raises(rmqstore.StoreFailedError):
        store.close()
    assert (tmp_path / "store" / "abort").exists()


def test_a_deleted_topic_whose_directory_cannot_be_synced_is_final(tmp_path, monkeypatch):
    """The core's only sync of it; those of the files in config/ are Python's."""
    config = writer.config("ASYNC_FLUSH").replace(
        flush_interval_commit_log=600_000, flush_interval_consume_queue=600_000
    )
    store = rmqstore.open(tmp_path / "store", "a", config=config)
    store.create_topic("gone", 1)
    store.put("gone", b"good", queue_id=0)
    store.flush()
    monkeypatch.setenv("RMQ_FAIL_AT", f"sync:1:{errno.EIO}+")
    with pytest.raises(rmqstore.StoreFailedError, match="consumequeue"):
        store.delete_topic("gone")
    monkeypatch.delenv("RMQ_FAIL_AT")
    with pytest.raises(rmqstore.StoreFailedError):
        store.put("Topic1", b"after", queue_id=0)
    with pytest.raises(rmqstore.StoreFailedError):
        store.close()


@pytest.mark.parametrize("damage", ["first", "middle", "newest", "longer"])
def test_a_sync_for_want_of_space_is_final_while_the_index_is_put_right(
    tmp_path, monkeypatch, damage
):
    """Only what takes space may wait for it: a sync that failed has lost what it was to write."""
    made = tmp_path / "made"
    with rmqstore.open(made, "a", config=writer.config("ASYNC_FLUSH")) as store:
        for number in range(1500):
            store.put("Topic1", b"good", queue_id=0, keys=f"k{number}")
    (made / "abort").touch()
    files = sorted((made / "index").iterdir())
    assert len(files) > 3
    file = files[{"first": 0, "middle": len(files) // 2}.get(damage, -1)]
    with file.open("r+b") as opened:
        if damage == "longer":
            opened.truncate(file.stat().st_size + 1)
        else:
            opened.write(bytes(400))
    failed = 0
    for number in range(1, 100):
        root = tmp_path / str(number)
        shutil.copytree(made, root)
        passed, before = _core.fault_counts()  # they go on in this process
        monkeypatch.setenv("RMQ_FAIL_AT", f"sync:{passed + number}:{errno.ENOSPC}")
        try:
            store = rmqstore.open(root, "r+", config=writer.config("ASYNC_FLUSH"))
        except (OSError, rmqstore.StoreError):
            failed += 1
            continue
        monkeypatch.delenv("RMQ_FAIL_AT")
        fired = _core.fault_counts()[1] > before  # now: the threads of the store sync, too
        if not fired:
            store.close()
            break
        with pytest.raises(rmqstore.StoreFailedError):  # noqa: PT012 - one of the two
            store.put("Topic1", b"lost?", queue_id=0)
            store.flush()
        with pytest.raises(rmqstore.StoreFailedError):
            store.close()
    assert failed


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_no_call_that_begins_after_a_failure_was_told_is_acknowledged(tmp_path, monkeypatch, flush):
    config = writer.config(flush).replace(flush_interval_commit_log=5)
    monkeypatch.setenv("RMQ_FAIL_AT", f"sync:1000000:{errno.EIO}")
    store = rmqstore.open(tmp_path / "store", "a", config=config)
    store.put("Topic1", b"good", queue_id=0)
    told: list[float] = []
    begun: list[float] = []  # of what was acknowledged

    def put_on() -> None:
        while True:
            at = time.monotonic()
            try:
                store.put("Topic1", b"x" * 500, queue_id=0)
            except rmqstore.StoreFailedError:
                told.append(time.monotonic())
                return
            begun.append(at)

    threads = [threading.Thread(target=put_on) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(begun) >= len(threads))
    monkeypatch.setenv("RMQ_FAIL_AT", f"sync:1:{errno.EIO}+")
    for thread in threads:
        thread.join()
    assert len(told) == len(threads)
    assert begun
    assert max(begun) < min(told)
    with pytest.raises(rmqstore.StoreFailedError):
        store.close()


class Interrupt(Exception):
    """What the signal's handler raises."""


@pytest.mark.parametrize("call", ["flush", "close"])
def test_a_signal_ends_the_wait_for_the_dispatch(tmp_path, monkeypatch, call):
    store = rmqstore.open(tmp_path / "store", "a", config=writer.config("ASYNC_FLUSH"))
    held, go_on = os.pipe()
    monkeypatch.setenv("RMQ_HOLD_AT", f"before-unit:{held}")
    store.put("Topic1", b"x", queue_id=0)

    def interrupt(number, frame):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(Interrupt):  # noqa: PT012 - a busy machine may be late with the call
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            getattr(store, call)()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not store.closed
    monkeypatch.delenv("RMQ_HOLD_AT")
    os.write(go_on, b"x")
    store.close()
    os.close(held)
    os.close(go_on)
    with rmqstore.open(tmp_path / "store", "r") as store:
        assert store.recovery.clean
        assert store["Topic1"][0][0].body == b"x"


@pytest.mark.parametrize("call", ["flush", "close"])
def test_a_log_that_cannot_be_opened_to_sync_it_does_not_hang(tmp_path, monkeypatch, call):
    """With SYNC_FLUSH the dispatch waits for the sync, and the sync for a descriptor."""
    monkeypatch.setenv("RMQ_FAIL_AT", f"open:1000000:{errno.EMFILE}")
    config = writer.config("SYNC_FLUSH").replace(sync_flush_timeout=300)
    store = rmqstore.open(tmp_path / "store", "a", config=config)
    size = config.mapped_file_size_commit_log
    while store.stats()["wrote_position"] < size - 20_000:
        store.put("Topic1", bytes(16 << 10), queue_id=0)
    held, go_on = os.pipe()
    monkeypatch.setenv("RMQ_HOLD_AT", f"before-log-sync:{held}")
    told: list[Exception] = []

    def put() -> None:
        try:
            store.put("Topic1", b"late" * 5120, queue_id=0)
        except rmqstore.PutError as error:
            told.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    while store.stats()["wrote_position"] < size:
        time.sleep(0.001)
    monkeypatch.setenv("RMQ_FAIL_AT", f"open:1:{errno.EMFILE}+")  # the new file's directory
    monkeypatch.delenv("RMQ_HOLD_AT")
    os.close(go_on)
    thread.join()
    os.close(held)
    assert [error.status for error in told] == [rmqstore.PutStatus.FLUSH_DISK_TIMEOUT]
    assert str(told[0]).endswith(f"within 300 ms: {os.strerror(errno.EMFILE)}")
    if call == "flush":  # which the flush itself meets, or the wait for the dispatch
        began = time.monotonic()
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            store.flush()
        assert time.monotonic() < began + 30
        monkeypatch.delenv("RMQ_FAIL_AT")
        store.flush()
        store.close()
    else:
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            store.close()
        monkeypatch.delenv("RMQ_FAIL_AT")
    with rmqstore.open(tmp_path / "store", "r+") as store:
        assert store.recovery.clean == (call == "flush")
        assert store["Topic1"][0][-1].body == b"late" * 5120
