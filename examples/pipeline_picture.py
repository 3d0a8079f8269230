"""How the pipeline went: sampled from outside, as the log's head sees it, and drawn.

Spark tells how far it is behind only where it ends a batch: of the time when it is dead it tells
nothing. So another process looks: at the head of the log, and at what the checkpoint of each query
says was committed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import rmqstore

PERIOD = 0.2  # seconds between two samples
PUT_PERIOD = 1.0  # over which the rate of puts is averaged


@dataclass(frozen=True, slots=True)
class Sample:
    """What there was at one moment.

    Attributes
    ----------
    at : float
        Seconds since the epoch.
    head : int
        Messages that were put.
    committed : dict of str to int
        Messages that are in a committed batch, by query.
    waiting : dict of str to float
        Seconds for which the oldest message that is not has been stored, by query; 0 if none is.
    """

    at: float
    head: int
    committed: dict[str, int]
    waiting: dict[str, float]

    def behind(self, query: str) -> int:
        """Messages that were put and are in no committed batch."""
        return self.head - self.committed[query]


class Sampler:
    """Takes samples and writes them to a file, a line each.

    Parameters
    ----------
    store : MessageStore
        The store that the queries read.
    topic : str
        The topic that they read from its first message on.
    checkpoints : dict of str to Path
        The checkpoint of each query.
    into : Path
        The file.
    """

    def __init__(
        self, store: rmqstore.MessageStore, topic: str, checkpoints: dict[str, Path], into: Path
    ) -> None:
        self._store = store
        self._topic = topic
        self._checkpoints = checkpoints
        self._into = into
        self._next = 0.0

    def sample_when_due(self) -> None:
        """Take a sample unless the last one was just before."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PERIOD
            self.sample(time.time())

    def sample(self, now: float) -> Sample:
        """Take a sample as of ``now``, seconds since the epoch."""
        # The checkpoints first: what they say is committed is below the head.
        ends = {name: committed_offsets(path) for name, path in self._checkpoints.items()}
        queues = {number: queue.max_offset for number, queue in self._store[self._topic].items()}
        sample = Sample(
            now,
            sum(queues.values()),
            {name: sum(offsets.values()) for name, offsets in ends.items()},
            {name: self._waiting(queues, offsets, now) for name, offsets in ends.items()},
        )
        with self._into.open("a") as file:
            file.write(json.dumps(asdict(sample)) + "\n")
        return sample

    def _waiting(self, queues: dict[int, int], ends: dict[int, int], now: float) -> float:
        oldest = [
            self._store[self._topic][number][ends.get(number, 0)].store_timestamp
            for number, head in queues.items()
            if ends.get(number, 0) < head
        ]
        return max(now - min(oldest) / 1000, 0.0) if oldest else 0.0


def committed_offsets(checkpoint: Path) -> dict[int, int]:
    """Return where the last committed batch ended, by queue; empty before the first."""
    batches = [int(one.name) for one in (checkpoint / "commits").glob("*") if one.name.isdigit()]
    if not batches:
        return {}
    # A version, the batch's own settings, then a line for each source of the query.
    [source] = (checkpoint / "offsets" / str(max(batches))).read_text().splitlines()[2:]
    [topics] = json.loads(source)["q"].values()
    return {int(number): end for queues in topics.values() for number, end in queues.items()}


def read_samples(path: Path) -> list[Sample]:
    """Return what a sampler wrote."""
    return [Sample(**json.loads(line)) for line in path.read_text().splitlines()]


def rates(
    samples: Sequence[Sample], query: str, kills: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Return the times of the commits, and the messages a second from each to the next.

    Where Spark was killed in between, the rate is NaN: nothing was done then.
    """
    commits = [samples[0]]
    for one in samples:
        if one.committed[query] > commits[-1].committed[query]:
            commits.append(one)
    found = []
    for before, after in pairwise(commits):
        done = after.committed[query] - before.committed[query]
        killed = any(before.at <= kill < after.at for kill in kills)
        found.append(float("nan") if killed else done / (after.at - before.at))
    return [one.at for one in commits], found


def gaps(samples: Sequence[Sample], kills: Sequence[float]) -> list[tuple[float, float]]:
    """Return from when to when no query committed anything, for each kill.

    A sample is taken at each kill, when nothing more can be committed.
    """
    found = []
    for kill in kills:
        before = [one for one in samples if one.at <= kill][-1].committed
        again = [one.at for one in samples if one.at > kill and one.committed != before]
        found.append((kill, again[0] if again else samples[-1].at))
    return found


def put_rates(samples: Sequence[Sample]) -> tuple[list[float], list[float]]:
    """Return times, and the messages a second that were put from each to the next."""
    some = [samples[0]]
    for one in samples:
        if one.at - some[-1].at >= PUT_PERIOD:
            some.append(one)
    found = [
        (after.head - before.head) / (after.at - before.at) for before, after in pairwise(some)
    ]
    return [one.at for one in some], found


def summary(samples: Sequence[Sample], kills: Sequence[float]) -> list[str]:
    """Return how far the queries came to be behind for each kill, a line each."""
    lines = []
    for kill, again in gaps(samples, kills):
        names = list(samples[0].committed)
        later = [one for one in samples if one.at > kill]
        caught_up = [one.at for one in later if one.at > again and not any(map(one.behind, names))]
        worst = max(one.behind(name) for one in later for name in names)
        waited = max(one.waiting[name] for one in later for name in names)
        end = f"caught up {caught_up[0] - kill:.0f} s after it" if caught_up else "never caught up"
        lines.append(
            f"nothing was committed for {again - kill:.0f} s after the kill: "
            f"{worst:,} messages and {waited:.0f} s behind, {end}"
        )
    return lines


def draw(samples: Sequence[Sample], kills: Sequence[float], into: Path) -> None:
    """Draw throughput and lag over time."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    began = samples[0].at
    figure, (speed, behind, waiting) = pyplot.subplots(3, 1, sharex=True, figsize=(9, 8))
    at = [one.at - began for one in samples]
    edges, values = put_rates(samples)
    speed.stairs(values, [one - began for one in edges], color="gray", label="put")
    for number, name in enumerate(samples[0].committed):
        style = {"color": f"C{number}", "label": f"to {name}"}
        edges, values = rates(samples, name, kills)
        speed.stairs(values, [one - began for one in edges], baseline=None, **style)
        behind.plot(at, [one.behind(name) for one in samples], **style)
        waiting.plot(at, [one.waiting[name] for one in samples], **style)
    for axis in (speed, behind, waiting):
        for number, (kill, again) in enumerate(gaps(samples, kills)):
            label = {} if number else {"label": "nothing committed"}
            axis.axvspan(kill - began, again - began, color="red", alpha=0.08, **label)
            label = {} if number else {"label": "kill -9"}
            axis.axvline(kill - began, color="red", linestyle="--", **label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    speed.set_title("Orders summed up by Spark, killed and started again")
    speed.set_ylabel("orders a second")
    behind.set_ylabel("messages behind the head")
    waiting.set_ylabel("seconds that the oldest waits")
    waiting.set_xlabel("seconds")
    figure.legend(*speed.get_legend_handles_labels(), loc="lower center", ncols=5)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.savefig(into, dpi=110)
