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
from functools import partial
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


class Company:
    """A process that was forked before there were threads, and forks what works beside a store.

    A child of the process that has the store open would inherit the locks of its threads as they
    happen to be: that of a sanitizer's allocator is given back in no child.
    """

    def __init__(self) -> None:
        asked, asking = os.pipe()
        telling, told = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(asking)
                os.close(telling)
                self._serve(asked, told)
            finally:
                os._exit(0)
        os.close(asked)
        os.close(told)
        self.asking = os.fdopen(asking, "wb")
        self.telling = os.fdopen(telling, "rb")

    def _serve(self, asked: int, told: int) -> None:
        with os.fdopen(asked, "rb") as questions, os.fdopen(told, "wb") as answers:
            while True:
                try:
                    work, arguments = pickle.load(questions)
                except EOFError:  # whoever asks has ended
                    return
                pickle.dump(in_child(partial(work, *arguments)), answers)
                answers.flush()

    def ask(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Have a function of a module called in a child of its own."""
        pickle.dump((work, arguments), self.asking)
        self.asking.flush()

    def answer(self) -> tuple[Any, int]:
        """What the function asked for longest ago returned, and the exit code."""
        try:
            said, status = pickle.load(self.telling)
        except EOFError:
            return None, 1
        return said, status

    def end(self) -> None:
        self.asking.close()
        self.telling.close()
        os.waitpid(self.pid, 0)


@contextmanager
def changing_memory(company: Company, path: Path, size: int) -> Iterator[memoryview]:
    """Read-only bytes, those of a file, that another process changes all the time."""
    path.write_bytes(bytes(size + 1))
    with path.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), size + 1)
    company.ask(change_memory, path, size)
    try:
        until = time.monotonic() + LIFE / 2
        while not any(memory):
            assert time.monotonic() < until, "nobody changes the memory"
            time.sleep(0.0005)
        yield memoryview(memory)[:size].toreadonly()
    finally:
        memory[size] = 1
        _, status = company.answer()
    assert status == 0, status


def change_memory(path: Path, size: int) -> None:
    """Until the byte behind them says that it is enough."""
    with path.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), size + 1)
    while not memory[size]:
        for at in range(0, size, 8):
            memory[at] = (memory[at] + 1) & 0xFF


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
