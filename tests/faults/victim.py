"""A program that is killed, and what it said before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from crash.checks import environment


class Victim:
    """A child whose words are read from a pipe while it runs; "open" is one of them.

    What it said until it was killed is true, for it was said after each call had returned.
    """

    def __init__(self, start: Callable[[int], int]) -> None:
        reading, writing = os.pipe()
        os.set_inheritable(writing, True)
        self.pid = start(writing)
        os.close(writing)
        self.pipe = reading
        self.said = bytearray()
        self.open = threading.Event()
        self.lines = 0
        self.more = threading.Condition()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    @classmethod
    def forked(cls, work: Callable[[int], None]) -> Victim:
        """Run ``work(descriptor)`` in a fork of this process."""

        def start(writing: int) -> int:
            pid = os.fork()
            if pid == 0:
                try:
                    work(writing)
                finally:
                    os._exit(1)
            return pid

        return cls(start)

    @classmethod
    def program(
        cls, module: str, arguments: Callable[[int], Sequence[object]], **extra: str
    ) -> Victim:
        """Run a module as a program of its own; its arguments are told the descriptor."""

        def start(writing: int) -> int:
            command = [sys.executable, "-m", module, *map(str, arguments(writing))]
            variables = environment(**extra)
            return subprocess.Popen(command, pass_fds=[writing], env=variables).pid

        return cls(start)

    def _read(self) -> None:
        while data := os.read(self.pipe, 1 << 16):
            with self.more:
                self.said += data
                self.lines += data.count(b"\n")
                self.more.notify_all()
            if not self.open.is_set() and b"open\n" in self.said.splitlines(keepends=True):
                self.open.set()
        self.open.set()
        with self.more:
            self.lines = 1 << 60
            self.more.notify_all()

    def wait_for_lines(self, count: int) -> None:
        """Until it has said so many lines, or ended."""
        with self.more:
            self.more.wait_for(lambda: self.lines >= count)

    def said_so_far(self) -> bytes:
        with self.more:
            return bytes(self.said)

    def kill(self) -> tuple[int, bytes]:
        """End it: its exit code and what it said."""
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> tuple[int, bytes]:
        _, status = os.waitpid(self.pid, 0)
        self.reader.join()
        os.close(self.pipe)
        return os.waitstatus_to_exitcode(status), bytes(self.said)
