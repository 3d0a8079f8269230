"""SIGKILL: at random moments, at every named point of the code, and again during recovery."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import rmqstore
from crash import writer
from faults.framework import Case, Run, campaign
from faults.model import Model, Named, learn
from faults.reopen import check_reopened

MODES = [("r", "r+"), ("r+",), ("r", "r+")]


class Victim:
    """A forked writer of four threads, whose words are read while it runs."""

    def __init__(self, case: Case, root: Path, prefix: str, config: Any, **variables: str) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(reading)
                os.environ.update(variables)
                _write(root, writing, case, prefix, config)
            finally:
                os._exit(1)
        os.close(writing)
        self.pipe = reading
        self.said = bytearray()
        self.opening, self.open = threading.Event(), threading.Event()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        while data := os.read(self.pipe, 1 << 16):
            self.said += data
            if b"opening\n" in self.said[:8]:
                self.opening.set()
            if b"open\n" in self.said[8:13]:
                self.open.set()
        self.opening.set()
        self.open.set()

    def kill(self) -> tuple[int, bytes]:
        """End it; what it said until then is true, for it was said after the put returned."""
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> tuple[int, bytes]:
        _, status = os.waitpid(self.pid, 0)
        self.reader.join()
        os.close(self.pipe)
        return os.waitstatus_to_exitcode(status), bytes(self.said)


def _write(root: Path, acks: int, case: Case, prefix: str, config: Any) -> None:
    os.write(acks, b"opening\n")
    store = rmqstore.open(root, "a", config=config)
    os.write(acks, b"open\n")
    work = writer.Writer(store, acks, case.draw.getrandbits(32), prefix)
    threads = [
        threading.Thread(target=work.run, args=(number, time.monotonic() + 30))
        for number in range(writer.THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@campaign("kill", cases=1000, slice=10)
def kill(run: Run) -> None:
    """SIGKILL at a random moment, up to three times on one directory."""
    run.fork(one_kill, range(run.cases))


def one_kill(case: Case, number: int) -> None:
    root = case.scratch / "store"
    model = Model(Named())
    flush = case.draw.choice(["ASYNC_FLUSH", "SYNC_FLUSH"])
    config = writer.config(flush)
    for turn in range(case.draw.choice([1, 1, 2])):
        prefix = f"k{turn}"
        model.known.prefixes.add(prefix)
        victim = Victim(case, root, prefix, config)
        victim.open.wait()
        time.sleep(case.draw.uniform(0, 0.3))
        _, said = victim.kill()
        learn(model, said)
    again = case.draw.choice([config, None])
    check_reopened(case, root, model, config=again, modes=case.draw.choice(MODES))
