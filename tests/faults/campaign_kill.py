"""SIGKILL: at random moments, at every named point of the code, and again during recovery."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import rmqstore
from crash import writer
from faults.framework import Case, Run, campaign
from faults.model import Model, Named, learn
from faults.reopen import check_reopened
from faults.victim import Victim

MODES = [("r", "r+"), ("r+",), ("r", "r+")]


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
        victim = Victim.forked(lambda acks, p=prefix: _write(root, acks, case, p, config))
        victim.open.wait()
        time.sleep(case.draw.uniform(0, 0.3))
        _, said = victim.kill()
        learn(model, said)
    again = case.draw.choice([config, None])
    check_reopened(case, root, model, config=again, modes=case.draw.choice(MODES))
