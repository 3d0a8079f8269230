"""SIGKILL: at random moments, at every named point of the code, and again during recovery."""

from __future__ import annotations

import copy
import os
import re
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import rmqstore
from crash import checks, writer
from faults import invariants
from faults.framework import WAITING, Case, Run, campaign
from faults.model import Model, Named, learn
from faults.reopen import SLOW, check_reopened
from faults.victim import Victim
from support import oracle_store

MODES = [("r", "r+"), ("r+",), ("r", "r+")]
SOURCES = Path(__file__).resolve().parents[2] / "src" / "rmqstore"
POINT_SECONDS = 0.3  # that a writer writes before it closes the store
LONGER_SECONDS = 5  # where it came to no such point
THREE_INDEX_FILES = 400  # messages
PASSINGS = 20  # of a point at most before the kill


def flush_type(case: Case) -> str:
    return case.draw.choice(["ASYNC_FLUSH", "SYNC_FLUSH"])


def start(
    case: Case,
    root: Path,
    model: Model,
    prefix: str,
    config: Any,
    seconds: float = 30,
    **environ: str,
) -> Victim:
    """Four threads that write into the store until they are killed, or else it is closed."""
    model.known.prefixes.add(prefix)
    seed = case.draw.getrandbits(32)

    def work(acks: int) -> None:
        os.environ.update(environ)
        os.write(acks, b"opening\n")
        store = rmqstore.open(root, "a", config=config)
        os.write(acks, b"open\n")
        one = writer.Writer(store, acks, seed, prefix)
        until = time.monotonic() + seconds
        threads = [
            threading.Thread(target=one.run, args=(number, until))
            for number in range(writer.THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.close()
        os._exit(0)

    return Victim.forked(work)


def killed_store(
    case: Case, model: Model, config: Any, seconds: float, torn: float = 0.5, lines: int = 0
) -> Path:
    """A store whose writer was killed after so many words and up to so many seconds.

    ``torn`` of them have a torn record at the end.
    """
    root = case.scratch / "store"
    write_and_kill(case, root, model, config, seconds, lines)
    if case.draw.random() < torn:
        checks.tear(root)
    return root


def write_and_kill(
    case: Case, root: Path, model: Model, config: Any, seconds: float, lines: int
) -> None:
    victim = start(case, root, model, f"p{len(model.known.prefixes)}", config)
    victim.open.wait()
    victim.wait_for_lines(lines)
    time.sleep(case.draw.uniform(seconds / 4, seconds))
    learn(model, victim.kill()[1])


def reopened(case: Case, root: Path, model: Model, config: Any) -> None:
    again = case.draw.choice([config, None])
    slow = case.draw.random() < SLOW
    check_reopened(case, root, model, config=again, modes=case.draw.choice(MODES), slow=slow)
    case.note("acknowledged", len(model.acked))


@campaign("kill", cases=1000, slice=10, theirs=True)
def kill(run: Run) -> None:
    """SIGKILL at a random moment, on a directory that may have seen one before.

    What a killed 4.9.3 leaves is opened by itself and by ours; and some of ours by it.
    """
    if run.wants("ours"):
        run.fork(one_kill_alone, range(run.cases), jobs=WAITING * run.jobs)
    if run.wants("theirs"):
        stores = run.scratch / "theirs"
        stores.mkdir()

        def work(case: Case, number: int) -> Model:
            return one_kill_of_theirs(case, number, stores / str(number))

        models = run.fork(work, range(run.number(40, 2)), column="theirs", seconds=120)
        left = [(number, model) for number, model in enumerate(models) if model is not None]
        opened = {f"theirs-{number}": (stores / str(number), model) for number, model in left}
        run.fork(lambda case, name: ours_opens(case, *opened[name]), opened)
        they_open(run)


def they_open(run: Run) -> None:
    """I6: some stores that ours recovered are opened by the real 4.9.3."""
    from faults import theirs

    def keep(case: Case, to: Path) -> theirs.Recovered:
        model, flush = one_kill(case, to.name)
        (case.scratch / "store").rename(to)
        return theirs.Recovered(to, flush, model)

    def work(case: Case, name: str) -> None:
        kept = case.fork(keep, [case.scratch / str(at) for at in range(run.number(10, 2))])
        theirs.see_ours(case, [one for one in kept if one is not None])

    run.fork(work, [f"I6-{at}" for at in range(run.number(3, 1))], counts=False, seconds=300)


def one_kill(case: Case, number: object) -> tuple[Model, str]:
    """What is expected now, and how the store flushed."""
    root = case.scratch / "store"
    model = Model(Named())
    config = writer.config(flush_type(case))
    for turn in range(case.draw.choice([1, 1, 2, 4])):
        victim = start(case, root, model, f"k{turn}", config)
        victim.open.wait()
        time.sleep(case.draw.uniform(0, 0.3))
        learn(model, victim.kill()[1])
    reopened(case, root, model, config)
    return model, config.flush_disk_type


def one_kill_alone(case: Case, number: int) -> None:
    one_kill(case, number)  # a thousand models would be kept


def one_kill_of_theirs(case: Case, number: int, to: Path) -> Model:
    from faults import theirs

    root = case.scratch / "store"
    model = Model(Named())
    flush = flush_type(case)
    theirs.write_and_kill(case, root, model, "k~2000~4", flush)
    invariants.copy(root, to)
    checker = theirs.Checker()
    try:
        checker.check(case, root, copy.deepcopy(model), flush, "after~2000~4")
    finally:
        checker.close()
    return model


def ours_opens(case: Case, root: Path, model: Model) -> None:
    sizes = rmqstore.StoreConfig(
        mapped_file_size_commit_log=64 << 10,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=100,
        max_index_num=400,
    )
    again = case.draw.choice([sizes, None])
    check_reopened(case, root, model, config=again, more="after~2000~4")
    shutil.rmtree(root)


@campaign("kill-again", cases=200, slice=5)
def kill_again(run: Run) -> None:
    """Killed, and killed again up to four times while it recovers."""
    run.fork(one_recovery, range(run.cases), jobs=WAITING * run.jobs)


def one_recovery(case: Case, number: int) -> None:
    model = Model(Named())
    config = writer.config(flush_type(case))
    root = killed_store(case, model, config, 0.2)
    for turn in range(case.draw.randint(1, 4)):
        victim = start(case, root, model, f"n{turn}", config)
        time.sleep(case.draw.uniform(0, 0.02))
        learn(model, victim.kill()[1])
    reopened(case, root, model, config)


def kill_points() -> list[str]:
    """The named points that these writers come to, in order."""
    return sorted(
        {
            name
            for path in SOURCES.rglob("*.p[xy][dix]")
            for name in re.findall(r'KILL_POINT\("([^"]+)"\)', path.read_text(encoding="utf-8"))
            if not ELSEWHERE.fullmatch(name)
        }
    )


# Points that the writers here do not come to: light queues, ext units, retention.  Each has a test
# that kills there: tests/crash/test_light_queues.py, test_ext_kills.py, test_retention_killed.py.
ELSEWHERE = re.compile(r"before-light-unit|(before|after)-ext-\w+|retention-.*")


@campaign("kill-points", cases=20, slice=1, needs_faults=True)
def kill_at_points(run: Run) -> None:
    """Killed at each named point of the code so many times, the first at its first passing."""
    points = kill_points()
    parts = ["copy", "sync", "checkpoint", "recover", "link", "unit", "index", "abort"]
    bare = [part for part in parts if not any(part in point for point in points)]
    if len(points) < 20 or bare:
        run.violation("error", "-", f"{len(points)} kill points are in the sources, none in {bare}")
    items = [f"{point}:{turn}" for point in points for turn in range(run.cases)]
    died = run.fork(one_point, items, jobs=WAITING * run.jobs)
    met = {item.rpartition(":")[0] for item, at in zip(items, died, strict=False) if at}
    if not run.only_case:
        for point in sorted(set(points) - met):
            run.violation("error", point, "this point of the code was never passed")


def lose_index(root: Path) -> None:
    """Remove the oldest index file but for the last, so that it is made anew."""
    for path in sorted((root / "index").glob("*"))[:-1][:1]:
        path.unlink()


def one_point(case: Case, item: str) -> bool:
    """Whether the writer came to the point."""
    point, _, turn = item.rpartition(":")
    model = Model(Named())
    # With synchronous flush the log has no zeros ahead.
    config = writer.config("ASYNC_FLUSH" if point == "after-zeros" else flush_type(case))
    recovers = point.startswith("recover")
    lines = THREE_INDEX_FILES if "index-swap" in point else 10 * recovers
    torn = 1 if turn == "0" else 0.5
    root = killed_store(case, model, config, 0.1, torn=torn, lines=lines)
    if "index-swap" in point:
        lose_index(root)
    died = closed = False
    # A recovery that is not finished, often; and on a busy machine little is written in that time.
    turns = case.draw.randint(2, 4) if recovers else 1
    for seconds in [POINT_SECONDS] * turns + [LONGER_SECONDS] * (turn == "0"):
        if died and seconds == LONGER_SECONDS:
            break
        if closed and recovers:  # what is closed is not recovered
            write_and_kill(case, root, model, config, 0.1, lines)
        count = 1 if int(turn) % 2 == 0 else case.draw.randint(1, PASSINGS)
        plan = f"{point}:{count}"
        prefix = f"p{len(model.known.prefixes)}"
        victim = start(case, root, model, prefix, config, seconds, RMQ_KILL_AT=plan)
        status, said = victim.wait()
        learn(model, said)
        if status not in {0, -signal.SIGKILL}:
            case.violation("error", f"the writer ended by itself: {status}")
        if status and oracle_store.is_clean(root):
            case.violation("I5", "killed, and abort is gone")
        closed = status == 0
        died = died or not closed
    reopened(case, root, model, config)
    return died
