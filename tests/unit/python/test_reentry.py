"""Calls from within calls of the same thread: handlers of signals, finalizers, decompressors."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rmqstore
from rmqstore import bodies
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
    "topics": (lambda s: s._registry.lock, lambda s: s.create_topic("x")),
    "topics that are written": (lambda s: s._registry._writing, lambda s: s.create_topic("x")),
    "a file of topics": (lambda s: s._registry._table._saving, lambda s: s.create_topic("x")),
    "an entry of it": (lambda s: s._registry._table._changing, lambda s: s.create_topic("x")),
    "a put to a new topic": (lambda s: s._registry.lock, lambda s: s.put("x", b"")),
    "offsets": (lambda s: s._progress._lock, lambda s: s.offsets),
    "offsets that are written": (lambda s: s._progress._saving, consume),
    "shares": (lambda s: s._sharing.lock, consume),
    "consumers that come": (lambda s: s._joining, consume),
    "retention": (lambda s: s._deleting, lambda s: s.delete_expired(before=0)),
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
            store._registry.watchers.append(interrupt)
            try:
                store.create_topic("x")
            except RuntimeError as error:
                store._registry.watchers.remove(interrupt)
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
