"""Objects shared by threads: messages that are detached, and files that are closed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from threads.test_activities import in_threads

pytestmark = pytest.mark.threads

COUNT = 200
ROUNDS = 30


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "store", "a", config=rmqstore.StoreConfig.small()) as store:
        for number in range(COUNT):
            store.put("t", b"%d" % number * 99, queue_id=0, tags="a", keys=f"k{number}")
    return tmp_path / "store"


def test_messages_that_others_detach(root: Path) -> None:
    """Readers, views and comparisons see the same bytes before, during and after."""
    with rmqstore.open(root) as store:
        for _ in range(ROUNDS):
            messages = store.get("t", 0, 0, COUNT).messages
            others = store.get("t", 0, 0, COUNT).messages
            start = threading.Barrier(4)

            def work(
                number: int,
                messages: list[rmqstore.Message] = messages,
                others: list[rmqstore.Message] = others,
                start: threading.Barrier = start,
            ) -> None:
                start.wait()
                for at, (message, other) in enumerate(zip(messages, others, strict=True)):
                    if number == 0:
                        message.detach()
                        continue
                    view = message.raw_body
                    assert (message.topic, message.tags, message.keys) == ("t", "a", (f"k{at}",))
                    assert message.body == bytes(view) == b"%d" % at * 99
                    assert message.properties["KEYS"] == f"k{at}"
                    assert message == other

            in_threads(4, work)


def use_log(log: Any) -> None:
    assert len(list(log.records())) == COUNT


def use_queue(queue: Any) -> None:
    assert queue.max_offset == COUNT


def use_index(index: Any) -> None:
    assert len(index.select_phy_offset("t#k1")) == 1


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize(
    ("kind", "place", "use"),
    [
        (rmqstore.CommitLog, "commitlog", use_log),
        (rmqstore.ConsumeQueue, "consumequeue/t/0", use_queue),
        (rmqstore.IndexFile, "index/*", use_index),
    ],
)
def test_files_closed_while_they_are_used(
    root: Path, kind: type[Any], place: str, use: Callable[[Any], None], mode: str
) -> None:
    config = rmqstore.StoreConfig.small()
    sizes: dict[str, int] = {"file_size": config.mapped_file_size_commit_log}
    if kind is rmqstore.ConsumeQueue:
        sizes = {"file_size": config.mapped_file_size_consume_queue}
    elif kind is rmqstore.IndexFile:
        sizes = {"hash_slot_num": config.max_hash_slot_num, "index_num": config.max_index_num}
    [path] = root.glob(place)
    for _ in range(ROUNDS):
        opened = kind(path, mode=mode, **sizes)
        used = threading.Semaphore(0)

        def work(number: int, opened: Any = opened, used: threading.Semaphore = used) -> None:
            if number < 2:  # two closers
                used.acquire()
                opened.close()
                return
            try:
                while True:
                    use(opened)
                    used.release()
            except rmqstore.StoreClosedError:
                used.release()

        in_threads(4, work)
        with pytest.raises(rmqstore.StoreClosedError):
            use(opened)
