"""``rmqstore serve`` beside the real name server and broker, with the real Java client.

    PYTHONPATH=bench:tests python bench/versus_serve.py [--rounds 3] [--seconds 3] [--only TEXT]

Each round measures everything on both, one after the other, in the same clients' process, after a
round that is not counted. The table has medians; behind them what a server used of a core while it
was measured, and its resident memory at the end. The exit code is 1 where a goal is missed: a
ratio, of one synchronous sender p50 and p99 below the real broker's, nothing lost, the memory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interop.broker import Broker
from serve.javaclients import JavaClients
from serve.killed import ServeProcess, free_port

TICKS = os.sysconf("SC_CLK_TCK")
PUSHED = 50_000  # messages
MEMORY = 80  # MB that ours may have of its own at the end
QUICKER = ("p50_us", "p99_us")  # of the lines of which that is a goal


# The tests' Java programs are started for a short life; here both are as a broker's owner has them.
LONG_LIFE = ("-XX:TieredStopAtLevel=4", "-Xms2g", "-Xmx2g", "-XX:+UseG1GC")


class LastingBroker(Broker):
    """The real servers with the settings of a long-running broker."""

    flags = (*Broker.flags, *LONG_LIFE)


@dataclass
class Row:
    """One line of the table."""

    name: str
    goal: float  # ours by theirs
    request: dict[str, Any]
    quicker: bool = False  # p50 and p99 are to be lower than theirs
    rates: dict[str, list[float]] = field(default_factory=lambda: {"real": [], "ours": []})
    cores: dict[str, list[float]] = field(default_factory=lambda: {"real": [], "ours": []})
    more: dict[str, list[dict[str, float]]] = field(
        default_factory=lambda: {"real": [], "ours": []}
    )

    def ratio(self) -> float:
        """Ratio of the medians, ours to theirs."""
        ours, real = (statistics.median(self.rates[name]) for name in ("ours", "real"))
        return ours / real

    def both(self, key: str) -> tuple[float, float]:
        """Medians of another figure, theirs and ours."""
        real, ours = (
            statistics.median(end[key] for end in self.more[name]) for name in ("real", "ours")
        )
        return real, ours

    def missed(self) -> list[str]:
        """Return the missed goals as text."""
        found = []
        if self.ratio() < self.goal:
            found.append(f"{self.name}: ratio {self.ratio():.2f}, goal {self.goal:.1f}")
        for key in QUICKER if self.quicker else ():
            real, ours = self.both(key)
            if ours >= real:
                found.append(f"{self.name}: {key} {ours:,.0f}, goal below {real:,.0f}")
        lost = sum(end.get("lost", 0) for end in self.more["ours"])
        if lost:
            found.append(f"{self.name}: {lost:,.0f} lost, goal none")
        return found


def rows() -> list[Row]:
    """Return the lines, with the goals."""
    return [
        Row("sync, 1 thread", 1.8, {"what": "sync", "threads": 1}, quicker=True),
        Row("sync, 32 threads", 1.6, {"what": "sync", "threads": 32}),
        Row("async, window of 512", 1.8, {"what": "async"}),
        Row("oneway, 4 threads", 1.0, {"what": "oneway", "threads": 4}),
        Row("batches of 64", 2.0, {"what": "batch"}),
        Row("pull, 1 thread", 1.4, {"what": "pull"}),
        Row("push", 1.0, {"what": "push", "messages": PUSHED}),
    ]


def seconds_of_processor(pid: int) -> float:
    """Return the resources that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident(pid: int) -> int:
    """Return the bytes of memory that are a process's own."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) << 10
    raise AssertionError(pid)


def measure(
    clients: JavaClients, row: Row, name: str, pid: int, namesrv: str, seconds: float, *, kept: bool
) -> None:
    """Measure one line on one server."""
    request = dict(row.request)
    topic = "read" if request["what"] in ("pull", "push") else f"written-{request['what']}"
    before = seconds_of_processor(pid)
    _, end = clients.call(
        "measure", namesrv=namesrv, topic=topic, seconds=seconds, timeout=180, **request
    )
    used = seconds_of_processor(pid) - before
    if kept:
        row.rates[name].append(end["rate"])
        row.cores[name].append(used * 1e6 / max(1, end["messages"]))
        row.more[name].append(end)


def main() -> int:
    """Run the rounds; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="versus_serve", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one measurement")
    parser.add_argument("--only", default="", help="part of the names of the wanted lines")
    given = parser.parse_args()
    wanted = [row for row in rows() if given.only in row.name]
    with tempfile.TemporaryDirectory(prefix="versus-serve-") as scratch, LastingBroker() as broker:
        started = broker.start(Path(scratch, "real"), {}, {"brokerFastFailureEnable": True})
        port = free_port()
        with (
            ServeProcess(Path(scratch, "ours"), port) as ours,
            JavaClients(flags=LONG_LIFE) as clients,
        ):
            servers = {
                "real": (broker.pid, f"127.0.0.1:{started['names_port']}"),
                "ours": (ours.process.pid, f"127.0.0.1:{port}"),
            }
            for _, namesrv in servers.values():  # what is pulled and pushed
                there = 0
                while there < 2 * PUSHED:
                    _, end = clients.call(
                        "measure", namesrv=namesrv, topic="read", what="batch", seconds=1.0,
                        timeout=60,
                    )  # fmt: skip
                    there += end["messages"]
            for number in range(given.rounds + 1):
                print(f"round {number} of {given.rounds}", file=sys.stderr, flush=True)
                for row in wanted:
                    for name, (pid, namesrv) in servers.items():
                        measure(clients, row, name, pid, namesrv, given.seconds, kept=number > 0)
            memory = {name: resident(pid) / 1e6 for name, (pid, _) in servers.items()}
    show(wanted, memory)
    missed = [one for row in wanted for one in row.missed()]
    if memory["ours"] >= MEMORY:
        missed.append(f"memory {memory['ours']:.0f} MB, goal below {MEMORY}")
    for one in missed:
        print(f"missed: {one}")
    return int(bool(missed))


def show(wanted: list[Row], memory: dict[str, float]) -> None:
    """Print the table."""
    print(f"{'':22}{'real/s':>10}{'ours/s':>10}{'ratio':>7}{'goal':>6}   server us a message, more")
    for row in wanted:
        real, ours = (statistics.median(row.rates[name]) for name in ("real", "ours"))
        used = [statistics.median(row.cores[name]) for name in ("real", "ours")]
        more = f"{used[0]:.1f} / {used[1]:.1f}"
        for key in ("p50_us", "p99_us", "lost", "failed"):
            if all(key in end for end in row.more["real"]):
                both = row.both(key)
                more += f", {key} {both[0]:,.0f} / {both[1]:,.0f}"
                if row.quicker and key in QUICKER:
                    more += " (goal: lower)"
        print(f"{row.name:22}{real:10,.0f}{ours:10,.0f}{row.ratio():7.2f}{row.goal:6.1f}   {more}")
    print(
        f"memory of its own, MB: real {memory['real']:.0f}, ours {memory['ours']:.0f} "
        f"(goal: below {MEMORY})"
    )


if __name__ == "__main__":
    sys.exit(main())
