"""Attackers at a server, and a client that behaves well beside them: it must not notice.

Each round has a server of its own, and one attack or several at once.  The well-behaved client
sends and pulls meanwhile: the server's processor time and the clock from its requests to their
answers are bounded, the memory is, ``/metrics`` answers, the log stays what it is, and afterwards
all that was acknowledged is in the store.

Run as a program: ``python -m serve.hostile --seconds 10 --products 10``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from serve.hostile_attacks import ATTACKS, Ground
from serve.hostile_ground import Target, WellBehaved

__all__ = ["CAMPAIGN", "SLICE", "Bounds", "Result", "Round", "run", "table"]

_WARM = 20  # pulls before the attack
_HANGS = 120.0  # seconds after which an attack that does not end is a problem


@dataclass(frozen=True)
class Bounds:
    """Bounds that must hold.

    Attributes
    ----------
    processor, clock : float
        Seconds, of the 99th percentiles of sends and of pulls; of the server's process, all
        threads, and by the clock.
    memory : int
        Bytes over those of the idle server.
    figures : float
        Seconds until ``/metrics`` has answered.
    """

    processor: float
    clock: float = float("inf")
    memory: int = 256 << 20
    figures: float = float("inf")


CAMPAIGN = Bounds(0.020, clock=0.100, figures=1.0)
# Where others run, an answer that is there waits for its reader, while the server goes on with the
# attack: that counts here, and is nothing that a server can do about.
SLICE = Bounds(0.250)


@dataclass(frozen=True)
class Round:
    """Attacks at a time, on a server of their own.

    Attributes
    ----------
    attacks : tuple of tuple of str
        Those of one at a time, one after the other.
    accounts, sync : bool
        Whether the server has accounts, and flushes before it answers.
    seed : str
    seconds : float
        How long attacks are begun anew; each is made once at least.
    scale : float
        Of their counts.
    pulls : int
        Of the well-behaved client meanwhile, at least.
    """

    attacks: tuple[tuple[str, ...], ...]
    accounts: bool
    sync: bool
    seed: str
    seconds: float = 0.0
    scale: float = 1.0
    pulls: int = 100

    @property
    def name(self) -> str:
        """Attacks, with the state of the server."""
        names = ", ".join("+".join(each) for each in self.attacks)
        return names + ", accounts" * self.accounts + ", sync" * self.sync


@dataclass
class Result:
    """Result of a round."""

    name: str
    sends: int = 0
    p50: float = 0.0  # seconds of the processor, of sends and of pulls
    send: float = 0.0  # the same, 99th percentile
    pull: float = 0.0
    clock: float = 0.0  # seconds by the clock, 99th percentile, the longer one
    processor: float = 0.0
    memory: int = 0
    figures: float = 0.0
    log: int = 0
    lost: int = 0
    problems: list[str] = field(default_factory=list)

    def judge(self, bounds: Bounds) -> None:
        """Note violations."""
        for what, value, most, unit in (
            ("processor time of a send", self.send, bounds.processor, 1e3),
            ("processor time of a pull", self.pull, bounds.processor, 1e3),
            ("time of a send or pull", self.clock, bounds.clock, 1e3),
            ("time of /metrics", self.figures, bounds.figures, 1e3),
            ("memory", self.memory, bounds.memory, 1 / (1 << 20)),
        ):
            if value > most:
                word = "MiB" if what == "memory" else "ms"
                self.problems.append(
                    f"{what}: {value * unit:.0f} {word}, bound {most * unit:.0f} {word}"
                )
        if self.lost:
            self.problems.append(f"{self.lost} acknowledged messages are not in the store")


def run(scratch: Path, one: Round, bounds: Bounds) -> Result:
    """Run a round; its directory stays.

    On ext4 a new file costs milliseconds in the minutes after thousands were removed.
    """
    scratch.mkdir()
    result = Result(one.name)
    big = any("queues" in each for each in one.attacks)
    stopped, polled = threading.Event(), threading.Event()
    with Target(scratch, accounts=one.accounts, sync=one.sync, big=big) as target:
        with WellBehaved(target, scratch / "seen") as client:
            client.wait_for(_WARM)
            target.get("/metrics")
            idle, used, warm = target.memory("VmRSS"), target.processor, len(client.rows())
            poller = threading.Thread(target=target.poll_figures, args=(polled,))
            poller.start()
            try:
                for names in one.attacks:
                    _attack_at_once(names, one, target, stopped)
                client.wait_for(_WARM + one.pulls)
            finally:
                stopped.set()
                polled.set()
                poller.join()
            if not target.is_gone:
                result.processor = target.processor - used
                result.memory = target.memory("VmHWM") - idle
        rows = client.rows()
    result.log = target.check_log()
    sent = [row for row in rows if row[0] == "send"]
    refused = [row for row in rows if row[0] == "refused"]
    if refused:
        target.problems.append(f"{len(refused)} refused to the well-behaved client: {refused[0]}")
    result.sends = len(sent)
    attacked = rows[warm:]
    sends = [row for row in attacked if row[0] == "send"]
    pulls = [row for row in attacked if row[0] == "pull"]
    result.p50 = _percentile([row[5] for row in (*sends, *pulls)], 50)
    result.send = _percentile([row[5] for row in sends], 99)
    result.pull = _percentile([row[5] for row in pulls], 99)
    result.clock = max(_percentile([row[4] for row in each], 99) for each in (sends, pulls))
    result.figures = target.slowest_figures
    result.lost = target.lost(sent)
    result.problems = target.problems
    result.judge(bounds)
    return result


def _attack(name: str, one: Round, target: Target, stopped: threading.Event) -> None:
    """Make an attack over and over, once at least."""
    ground = Ground(target, random.Random(f"{one.seed} {name}"), one.scale, stopped)
    until = time.monotonic() + one.seconds
    while not stopped.is_set():
        try:
            with contextlib.suppress(OSError):  # refused, closed, timed out
                ATTACKS[name](ground)
        except Exception as error:
            target.problems.append(f"the attack {name} failed: {error!r}")
            return
        if time.monotonic() >= until:
            return
        stopped.wait(0.01)


def _attack_at_once(
    names: Iterable[str], one: Round, target: Target, stopped: threading.Event
) -> None:
    """Make attacks side by side, and wait for their ends."""
    attackers = [
        threading.Thread(target=_attack, args=(name, one, target, stopped), daemon=True)
        for name in names
    ]
    for each in attackers:
        each.start()
    until = time.monotonic() + _HANGS
    for each in attackers:
        each.join(max(0.0, until - time.monotonic()))
        if each.is_alive():
            target.problems.append("an attack did not end")


def _percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile; 0 of none."""
    ordered = sorted(values)
    return ordered[(len(ordered) * percent - 1) // 100] if ordered else 0.0


def table(results: Iterable[Result]) -> Iterable[str]:
    """Return the lines of a table; times are milliseconds."""
    yield (
        f"{'attack':<38}{'sends':>7}{'p50':>7}{'p99 send':>10}{'p99 pull':>10}{'p99 clock':>11}"
        f"{'/metrics':>10}{'processor':>11}{'memory':>9}{'log':>10}{'lost':>6}"
    )
    for one in results:
        yield (
            f"{one.name:<38}{one.sends:>7}{one.p50 * 1e3:>7.2f}{one.send * 1e3:>10.2f}"
            f"{one.pull * 1e3:>10.2f}{one.clock * 1e3:>11.1f}{one.figures * 1e3:>10.0f}"
            f"{one.processor:>9.1f} s{one.memory / (1 << 20):>5.0f} MiB{one.log / 1024:>6.0f} KiB"
            f"{one.lost:>6}"
        )
        yield from (f"    {problem}" for problem in one.problems)


def rounds(seed: str, seconds: float, products: int) -> list[Round]:
    """Return the rounds of the campaign: each attack with and without accounts, and products."""
    chance = random.Random(seed)
    made = [
        Round(((name,),), accounts, name == "disk", f"{seed} {accounts}", seconds)
        for name in ATTACKS
        for accounts in (False, True)
    ]
    for number in range(products):
        attacks = tuple(sorted(chance.sample(list(ATTACKS), chance.randint(2, 4))))
        made.append(
            Round((attacks,), chance.random() < 0.5, chance.random() < 0.3, f"{seed} {number}",
                  seconds, chance.choice([0.1, 0.5, 1.0]))
        )  # fmt: skip
    return made


def main() -> int:
    """Run the campaign as a program."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5, help="of each round")
    parser.add_argument("--products", type=int, default=12, help="rounds of attacks at once")
    parser.add_argument("--seed", default=f"{random.SystemRandom().getrandbits(32):x}")
    parser.add_argument("--only", default="", help="rounds whose name has it")
    parser.add_argument(
        "--busy", action="store_true", help="others run here: bound no time by the clock"
    )
    parser.add_argument("--scratch", type=Path)
    given = parser.parse_args()
    bounds = Bounds(CAMPAIGN.processor) if given.busy else CAMPAIGN
    scratch = Path(tempfile.mkdtemp(prefix="hostile-", dir=given.scratch))
    print(f"seed {given.seed}", flush=True)
    results = []
    try:
        for number, one in enumerate(rounds(given.seed, given.seconds, given.products)):
            if given.only in one.name:
                results.append(run(scratch / str(number), one, bounds))
                print(*list(table(results[-1:]))[1:], sep="\n", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print()
    print(*table(results), sep="\n")
    return os.EX_OK if not any(one.problems for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
