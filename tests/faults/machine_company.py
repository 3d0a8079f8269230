"""Steps of a store's life with company: processes that wait, fork or write, and threads."""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import rmqstore

LIFE = 60  # seconds until a child hangs


def in_child(work: Callable[[], Any]) -> tuple[Any, int]:
    """What the work returned, and the exit code."""
    child = Child(work)
    return child.wait()


class Child:
    """Work in a forked child."""

    def __init__(self, work: Callable[[], Any]) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(reading)
                signal.alarm(LIFE)
                with os.fdopen(writing, "wb") as out:
                    pickle.dump(work(), out)
                status = 0
            finally:
                os._exit(status)
        os.close(writing)
        self.pipe = reading

    def wait(self) -> tuple[Any, int]:
        with os.fdopen(self.pipe, "rb") as pipe:
            said = pipe.read()
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        try:
            return pickle.loads(said), code
        except (EOFError, pickle.UnpicklingError):
            return None, code or 1

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.close(self.pipe)
        os.waitpid(self.pid, 0)


@contextmanager
def changing_memory(size: int) -> Iterator[memoryview]:
    """Read-only bytes that another process changes all the time."""
    memory = mmap.mmap(-1, size)

    def change() -> None:
        while True:
            for at in range(0, size, 8):
                memory[at] = (memory[at] + 1) & 0xFF

    child = Child(change)
    try:
        while not any(memory):
            time.sleep(0.0005)
        yield memoryview(memory).toreadonly()
    finally:
        child.end()


@contextmanager
def reading(store: Any, topic: str, queues: int) -> Iterator[None]:
    """Threads that read a topic's queues meanwhile, whatever they find."""
    done = threading.Event()

    def read(queue_id: int) -> None:
        while not done.is_set():
            with suppress(rmqstore.StoreError):
                store.get(topic, queue_id, 0, 1000)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(queues)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(0.002)
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def wait_for_topics(root: Path, config: Any) -> dict[str, int]:
    """Open a store that another process still owns, and tell its topics and their queues."""
    with rmqstore.open(root, "r+", config=config, timeout=LIFE / 2) as store:
        return {name: topic.write_queue_nums for name, topic in store.topics.items()}


def fork_while_opening(root: Path, config: Any, point: str) -> str:
    """Open while another thread forks; the fork outlives the store: what opening again says."""
    reading_end, writing_end = os.pipe()
    os.environ["RMQ_HOLD_AT"] = f"{point}:{reading_end}"
    opened: list[Any] = []
    thread = threading.Thread(
        target=lambda: opened.append(rmqstore.open(root, "r+", config=config))
    )
    thread.start()
    time.sleep(0.05)
    bystander = Child(lambda: time.sleep(LIFE / 2))
    os.write(writing_end, bytes(64))  # the bystander has this end as well
    os.close(writing_end)
    thread.join()
    try:
        if opened:
            opened[0].close()
        rmqstore.open(root, "r+", config=config).close()
    except rmqstore.StoreError as error:
        return repr(error)
    finally:
        bystander.end()
    return ""
