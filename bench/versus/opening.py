"""Opening until all is in its queues: a log dispatched again, killed stores, a closed one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import workloads
from versus.real import RealStore
from versus.rounds import Round, measured, timed
from versus.rows import Goal, Row, Work

BODY = 1024
DISPATCH_1K, DISPATCH_128 = "dispatch, 1 KiB", "dispatch, 128 B"
BROKERS, OURS = "recovery of a broker's killed store", "recovery of our killed store"
CLOSED = "recovery of a closed store"
GOALS = {
    DISPATCH_1K: Goal(4, 4),
    DISPATCH_128: Goal(4, 4),
    BROKERS: Goal(1.5),
    OURS: Goal(15),
    CLOSED: Goal(40),
}


def works(folder: Path, messages: int) -> list[Work]:
    """Write the stores, and return the workloads; each side opens a copy in each round."""
    closed = workloads.written(folder / "log-1024", BODY, messages)
    stores = {
        DISPATCH_1K: (closed, messages),
        DISPATCH_128: (workloads.written(folder / "log-128", 128, 4 * messages), 4 * messages),
        BROKERS: (killed_broker(folder / "killed-broker", messages), messages),
        OURS: (workloads.killed(folder / "killed", BODY, messages), messages),
        CLOSED: (closed, messages),
    }
    found = []
    for name, (source, count) in stores.items():
        forget = name.startswith("dispatch")
        theirs, ours = (
            partial(side, source, folder / "copy", count, forget=forget) for side in (them, us)
        )
        found.append(Work([Row(name, GOALS[name])], theirs, [ours]))
    return found


def killed_broker(path: Path, count: int) -> Path:
    """Make a store of the real one that is killed when all is in its queues."""
    with RealStore() as real:
        real.ask("open", dir=path)
        fields = {"topic": workloads.TOPIC, "queues": workloads.QUEUES, "size": BODY}
        real.ask("put", count=count, **fields)
        real.kill()
    return path


def copier(source: Path, to: Path, *, forget: bool) -> Callable[[], None]:
    """Return the work of copying a store, without what dispatch writes if that is to be timed."""

    def work() -> None:
        workloads.copy(source, to)
        if forget:
            workloads.forget_dispatch(to)

    return work


def them(source: Path, to: Path, count: int, *, forget: bool) -> list[Round]:
    """Open by the real store; the measured copy is not closed, the process ends."""
    prepare = copier(source, to, forget=forget)

    def work() -> list[Round]:
        return [real.round("open", dir=to)._replace(count=count)]

    def warm() -> None:
        for _ in range(2):
            prepare()
            work()
            real.ask("close")

    with RealStore() as real:
        return measured(work, warm=warm, prepare=prepare)


def us(source: Path, to: Path, count: int, *, forget: bool) -> list[Round]:
    """Open by ours."""

    def work() -> list[Round]:
        opened = []

        def opening() -> int:
            opened.append(workloads.open_and_dispatch(to, count))
            return count

        done = timed(opening)
        opened[0].close()
        return [done]

    return measured(work, prepare=copier(source, to, forget=forget))
