"""kill -9 at random moments: what was acknowledged is there, and nothing else.

Ten rounds; RMQSTORE_CRASH_ROUNDS sets another number, and with fewer than ten the other tests of
this directory try fewer ways to fail or to die.  RMQSTORE_CRASH_SEED repeats a run's draws (the
moment itself is the machine's).
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from crash import checks
from crash.checks import ROUNDS, Known

pytestmark = [pytest.mark.crash]

SEED = int(os.environ.get("RMQSTORE_CRASH_SEED", "0")) or random.randrange(1, 1 << 30)
CHAIN = 4  # rounds on one directory, so that a crash meets what the last one left


class Victim:
    """A writer whose words are read while it runs."""

    def __init__(self, root: Path, prefix: str, flush: str) -> None:
        reading, writing = os.pipe()
        arguments = [root, writing, SEED, prefix, flush, checks.PATIENCE]
        self.child = subprocess.Popen(
            [sys.executable, checks.HERE / "writer.py", *map(str, arguments)],
            pass_fds=[writing],
            env=checks.environment(),
            stderr=subprocess.PIPE,
        )
        os.close(writing)
        self.pipe = reading
        self.said = bytearray()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        while data := os.read(self.pipe, 1 << 16):
            self.said += data

    def wait_for(self, word: bytes) -> None:
        until = time.monotonic() + checks.PATIENCE
        while word not in self.said.splitlines() and self.child.poll() is None:
            assert time.monotonic() < until, f"no {word!r} after {checks.PATIENCE} s"
            select.select([], [], [], 0.0005)

    def kill(self) -> bytes:
        """End it; what it said until then is true, for it was said after the put returned."""
        assert self.child.poll() is None, self.child.stderr.read().decode()
        self.child.send_signal(signal.SIGKILL)
        self.child.wait(checks.PATIENCE)
        self.reader.join(checks.PATIENCE)
        assert not self.reader.is_alive()
        os.close(self.pipe)
        self.child.stderr.close()
        return bytes(self.said)


def one_round(root: Path, known: Known, number: int, draw: random.Random) -> None:
    prefix = f"r{number}"
    known.prefixes.add(prefix)
    flush = draw.choice(["ASYNC_FLUSH", "SYNC_FLUSH"])
    victim = Victim(root, prefix, flush)
    victim.wait_for(b"open")
    time.sleep(draw.uniform(0, 0.5))
    known.learn(victim.kill())
    for again in range(draw.randrange(3)):  # and while it recovers
        prefix = f"r{number}n{again}"
        known.prefixes.add(prefix)
        victim = Victim(root, prefix, flush)
        victim.wait_for(b"opening")
        time.sleep(draw.uniform(0, 0.02))
        known.learn(victim.kill())
    checks.verify(root, known, flush)


@pytest.mark.parametrize("chain", range((ROUNDS + CHAIN - 1) // CHAIN))
def test_kill_at_random_moments(tmp_path, chain):
    known = Known()
    for number in range(min(CHAIN, ROUNDS - chain * CHAIN)):
        draw = random.Random(f"{SEED}-{chain}-{number}")
        try:
            one_round(tmp_path / "store", known, number, draw)
        except BaseException as error:
            error.add_note(f"seed {SEED}, chain {chain}, round {number}, in {tmp_path}")
            raise
    assert known.places


def test_a_kill_leaves_abort_and_the_next_opening_says_so(tmp_path):
    known = Known()
    known.prefixes.add("r0")
    victim = Victim(tmp_path / "store", "r0", "ASYNC_FLUSH")
    victim.wait_for(b"open")
    while len(victim.said) < 2000:
        time.sleep(0.01)
    known.learn(victim.kill())
    assert (tmp_path / "store" / "abort").exists()
    import rmqstore

    with rmqstore.open(tmp_path / "store", "r+") as store:
        assert not store.recovery.clean
        assert store.stats()["dispatch_behind_bytes"] == 0
        checks.assert_holds(store, known)
