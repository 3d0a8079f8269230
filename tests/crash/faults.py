"""A program that runs one workload again and again, each time with another failing system call.

``faults.py DIRECTORY FLUSH PLAN...``: a PLAN is a value of RMQ_FAIL_AT.  Each runs in a forked
child of its own, on a copy of DIRECTORY/base in DIRECTORY/NUMBER, and says in
DIRECTORY/NUMBER.said, a line each, what was acknowledged (as ``writer.py`` does) and what was
raised: ``raised WHERE CLASS ERRNO TEXT``.  The end of a child is ``ended STATUS``; one that
takes longer than LIMIT seconds is ended by SIGALRM.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rmqstore
from crash.writer import Writer, config

LIMIT = 60
CALLS = 120


class Case:
    def __init__(self, root: Path, said: int, flush: str) -> None:
        self.root = root
        self.flush = flush
        self.said = said
        self.writer: Writer | None = None

    def say(self, *words: object) -> None:
        os.write(self.said, (" ".join(map(str, words)) + "\n").encode())

    def guarded(self, where: str, call, *arguments) -> bool:
        try:
            call(*arguments)
        except (rmqstore.StoreError, OSError, MemoryError) as error:
            text = str(error).replace("\n", "\\n")
            number = getattr(error, "errno", None)
            self.say("raised", where, type(error).__name__, number, text)
            return False
        return True

    def open(self) -> None:
        store = rmqstore.open(self.root, "a", config=config(self.flush))
        self.writer = Writer(store, self.said, 0, "f")

    def run(self) -> None:
        if not self.guarded("open", self.open):
            return
        assert self.writer is not None
        number = 0
        for call in range(CALLS):
            names = [f"f.{call}.{i}" for i in range(8)]
            kind = call % 4
            if kind < 2:
                done = self.guarded("put", self.writer.put, names[0], writer_message(names[0]))
            elif kind == 2:
                done = self.guarded("put_batch", self.writer.put_batch, names[:3])
            else:
                done = self.guarded("put_many", self.writer.put_many, names)
            number += done
            if call % 40 == 20:
                self.guarded("flush", self.writer.store.flush)
                self.guarded("get", self.writer.store.get, "Topic1", 0, 0, 10)
                self.guarded("query", self.writer.store.query, "Topic1", names[0])
            if call % 20 == 10:
                time.sleep(0.015)  # so that the flush threads have a turn
        self.guarded("flush", self.writer.store.flush)
        self.guarded("close", self.writer.store.close)
        self.guarded("close-again", self.writer.store.close)


def writer_message(name: str):
    from crash.writer import message_of

    return message_of(name)


def one(directory: Path, number: int, flush: str, plan: str) -> None:
    root = directory / str(number)
    shutil.copytree(directory / "base", root)
    said = os.open(directory / f"{number}.said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT)
        os.environ["RMQ_FAIL_AT"] = plan
        status = 1
        try:
            Case(root, said, flush).run()
            status = 0
        except BaseException as error:
            os.write(said, f"broke {error!r}\n".encode())
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    os.write(said, f"ended {os.waitstatus_to_exitcode(status)}\n".encode())
    os.close(said)


def main(directory: str, flush: str, *plans: str) -> None:
    for number, plan in enumerate(plans):
        one(Path(directory), number, flush, plan)


if __name__ == "__main__":
    main(*sys.argv[1:])
