"""Calls from within calls of the same thread: handlers of signals, finalizers, decompressors."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rmqstore
from rmqstore import bodies
from rmqstore._core import CallLock
from support.forked_child import in_child

CONFIG = rmqstore.StoreConfig.small()


def opened(tmp_path: Path) -> Any:
    store = rmqstore.open(tmp_path / "store", "a", config=CONFIG.replace(compress_above=1))
    store.create_topic("t", 1)
    for number in range(9):
        store.put("t", b"%d" % number * 100)
    return store


def consume(store: Any) -> None:
    with store.consumer("t", group="g") as consumer:
        next(iter(consumer))
        consumer.commit(sync=True)


# What an interrupted call may hold, and a call that needs the same.
HELD = {
    "topics": (lambda s: s.registry.lock, lambda s: s.create_topic("x")),
    "topics that are written": (lambda s: s.registry._writing, lambda s: s.create_topic("x")),
    "a file of topics": (lambda s: s.registry._table._saving, lambda s: s.create_topic("x")),
    "an entry of it": (lambda s: s.registry._table._changing, lambda s: s.create_topic("x")),
    "a put to a new topic": (lambda s: s.registry.lock, lambda s: s.put("x", b"")),
    "offsets": (lambda s: s.progress._lock, lambda s: s.offsets),
    "offsets that are written": (lambda s: s.progress._saving, consume),
    "shares": (lambda s: s.consumer_state.sharing.lock, consume),
    "consumers that come": (lambda s: s.consumer_state.joining, consume),
    "retention": (lambda s: s.retention._deleting, lambda s: s.delete_expired(before=0)),
}


@pytest.mark.parametrize("name", HELD)
def test_a_call_that_would_wait_for_itself(tmp_path: Path, name: str) -> None:
    lock_of, call = HELD[name]

    def work() -> str:
        with opened(tmp_path) as store:
            try:
                with lock_of(store):
                    call(store)
            except RuntimeError as error:
                call(store)  # nothing is held any more
                return f"RuntimeError: {error}"
        return "no error"

    said = in_child(work)
    assert said.startswith("RuntimeError: ")
    assert "within a call of this thread" in said


def test_a_handler_in_the_middle_of_a_change(tmp_path: Path) -> None:
    """The handler's error ends the change; the next one is as any other."""

    def work() -> str:
        with opened(tmp_path) as store:
            signal.signal(signal.SIGUSR1, lambda *_: store.put("of_the_handler", b""))
            interrupt = lambda name, _entry: name == "x" and signal.raise_signal(signal.SIGUSR1)  # noqa: E731
            store.registry.watchers.append(interrupt)
            try:
                store.create_topic("x")
            except RuntimeError as error:
                store.registry.watchers.remove(interrupt)
                store.create_topic("y", 2)
                assert store.put("y", b"after").queue_offset == 0
                return str(error)
        return "no error"

    assert "within a call of this thread" in in_child(work)


def test_a_scan_that_is_asked_while_it_inflates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a handler does, or a finalizer, that runs in the Python code of a decompressor."""

    def work() -> str:
        with opened(tmp_path) as store:
            reader = pa.RecordBatchReader.from_stream(store.scan("t", batch_rows=3))
            inflate, raised = bodies.inflate, []

            def again(*arguments: Any) -> bytes:
                if not raised:
                    with pytest.raises(OSError, match="within a call") as error:
                        reader.read_next_batch()
                    raised.append(str(error.value))
                return inflate(*arguments)

            monkeypatch.setattr(bodies, "inflate", again)
            found = [body for batch in reader for body in batch["body"].to_pylist()]
            assert found == [b"%d" % number * 100 for number in range(9)]
            return raised[0]

    assert "within a call of this thread" in in_child(work)


def test_scans_that_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each inflates, and asks the other for more: one of them is refused, and both go on."""

    def work() -> str:
        with opened(tmp_path) as store:
            scan = store.scan("t", batch_rows=9)
            readers = [pa.RecordBatchReader.from_stream(scan) for _ in "ab"]
            both = threading.Barrier(2)
            inflate, asked = bodies.inflate, threading.local()
            refused: list[str] = []

            def ask(*arguments: Any) -> bytes:
                if not hasattr(asked, "other"):
                    return inflate(*arguments)
                other = asked.__dict__.pop("other")
                both.wait()
                try:
                    other.read_next_batch()
                except OSError as error:
                    refused.append(str(error))
                return inflate(*arguments)

            def read(own: Any, other: Any) -> None:
                asked.other = other
                own.read_next_batch()

            monkeypatch.setattr(bodies, "inflate", ask)
            threads = [
                threading.Thread(target=read, args=(own, other))
                for own, other in (readers, readers[::-1])
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return "\n".join(refused)

    assert in_child(work).count("within a call of this thread") == 1


def test_locks_that_wait_for_each_other() -> None:
    def work() -> str:
        locks = [CallLock() for _ in range(3)]
        all_held = threading.Barrier(len(locks))
        refused: list[str] = []

        def take(at: int) -> None:
            with locks[at]:
                all_held.wait()
                try:
                    with locks[(at + 1) % len(locks)]:
                        pass
                except RuntimeError as error:
                    refused.append(str(error))

        threads = [threading.Thread(target=take, args=(at,)) for at in range(len(locks))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return "\n".join(refused)

    assert in_child(work).count("within a call of this thread") == 1


def test_a_lock_that_may_be_taken_again() -> None:
    lock = CallLock(again=True)
    with lock, lock:
        pass
    taken = []

    def take() -> None:
        with lock:
            taken.append(True)

    with lock:
        with lock:
            pass
        thread = threading.Thread(target=take)
        thread.start()
        thread.join(0.05)
        assert not taken  # it is held once still
    thread.join()
    assert taken


def test_a_wait_for_a_lock_handles_signals() -> None:
    def work() -> str:
        lock, held, done = CallLock(), threading.Event(), threading.Event()

        def hold() -> None:
            with lock:
                held.set()
                done.wait()

        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        signal.signal(signal.SIGALRM, lambda *_: done.set())
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with lock:
            return "held"

    assert in_child(work) == "held"


def test_a_child_of_a_thread_that_waits() -> None:
    """Who waits in the parent is nobody whom the child has to wake, or knows."""

    def work() -> str:
        lock, other = CallLock(), CallLock()
        with lock:
            thread = threading.Thread(target=lock.__enter__, daemon=True)
            thread.start()
            thread.join(0.05)

            def in_the_child() -> str:
                with other:
                    return "held"

            return in_child(in_the_child)

    assert in_child(work) == "held"


@pytest.mark.parametrize("held", ["the lock of topics", "a put", "a scan"])
def test_a_close_within_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: str) -> None:
    """Others in the store may wait for what this thread holds: it is refused at once."""

    class Closes:
        def __init__(self, store: Any) -> None:
            self.store = store

        def __index__(self) -> int:
            self.store.close()
            return 0

    def work() -> str:
        with opened(tmp_path) as store:
            store.housekeeper.every(3600, store.flush, "a task")
            try:
                if held == "a put":
                    store.put("t", b"", queue_id=Closes(store))
                elif held == "a scan":
                    inflate = bodies.inflate
                    monkeypatch.setattr(
                        bodies, "inflate", lambda *rest: (store.close(), inflate(*rest))[1]
                    )
                    store.scan("t", columns=["body"], on_corruption="raise").to_table()
                else:
                    with store.registry.lock:
                        store.close()
            except RuntimeError as error:
                said = str(error)
            monkeypatch.undo()
            assert not store.housekeeper._stopping  # nothing was stopped
            assert store.put("t", b"after").queue_offset == 9
            return said

    assert "closed from within a call of this thread" in in_child(work)


def test_a_close_beside_a_put_that_waits_for_a_lock(tmp_path: Path) -> None:
    """The put is in the store and waits for the lock of topics, whose holder wants to close it."""

    def work() -> str:
        with opened(tmp_path) as store:
            thread = threading.Thread(target=store.put, args=("new", b""))
            with store.registry.lock:
                thread.start()
                thread.join(0.05)
                with pytest.raises(RuntimeError, match="closed from within"):
                    store.close()
            thread.join()
        return "closed" if store.closed else "open"

    assert in_child(work) == "closed"


def test_a_name_that_runs_code(tmp_path: Path) -> None:
    """A topic's name is kept as a plain str, which nobody's code is asked about later."""

    class Name(str):
        pass

    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.create_topic(Name("t"))
        store.create_group(Name("g"))
        assert type(store.registry.get("t").topic_name) is str
        assert type(store.group_entries.get("g").group_name) is str
        store.put("t", b"")
        store.delete_topic(Name("t"))
        assert "t" not in store
