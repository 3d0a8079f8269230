"""System calls that fail, each in turn: of the core by its own hooks, of Python by these."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import random
import re
import signal
from pathlib import Path
from typing import Any

from faults import invariants, reopen, small_work, tiny
from faults.framework import WAITING, Case, Run, campaign
from faults.model import Model
from faults.small_work import Told, Variant, Worker
from rmqstore import _core

SYSTEM = Path(__file__).parents[2] / "src" / "rmqstore" / "_native" / "base" / "system.pxd"
LIMIT = 20  # seconds of a case
NEVER = 1 << 40
# The ways in which a call may fail; "sync" has a campaign of its own, campaign_syncs.
CALLS = {
    "open": (errno.EMFILE, errno.ENOMEM, errno.EACCES, errno.EIO),
    "fstat": (errno.EIO,),
    "mkdir": (errno.ENOSPC, errno.EROFS, errno.EACCES),
    "ftruncate": (errno.EIO, errno.ENOSPC),
    "fallocate": (errno.ENOSPC, errno.EIO, errno.EOPNOTSUPP),
    "mmap": (errno.ENOMEM, errno.EMFILE),
    "pread": (errno.EIO,),
    "pwrite": (errno.ENOSPC, errno.EIO),
    "unlink": (errno.EIO, errno.EROFS, errno.EACCES),
    "rmdir": (errno.EIO, errno.EROFS, errno.EACCES),
    "rename": (errno.EIO, errno.ENOSPC, errno.EROFS),
    "linkat": (errno.ENOSPC, errno.EIO, errno.EROFS),
    "lock": (errno.EIO, errno.ENOLCK),
    "lock-directory": (errno.EIO, errno.ENOLCK),
}
# Those of the os module, through which the files in config/ are written.
PYTHON_CALLS = {
    "os.open": (errno.EMFILE, errno.EACCES, errno.EIO),
    "os.write": (errno.ENOSPC, errno.EIO),
    "os.replace": (errno.EIO, errno.EROFS),
    "os.link": (errno.ENOSPC, errno.EMLINK),
    "os.unlink": (errno.EIO, errno.EROFS),
    "os.mkdir": (errno.ENOSPC, errno.EROFS),
    "os.fchmod": (errno.EPERM,),
}
OPENING = {"OSError", "PermissionError", "StoreLockedError", "StoreCorruptError"}
OPENING |= {"IncompatibleStoreError", "BlockingIOError", "MemoryError"}
WRITING = {"PutError", "StoreFailedError", "OSError", "PermissionError", "MemoryError"}
WRITING |= {"TopicNotFoundError"}  # where making it was what failed
IMAGES: dict[str, tiny.Image] = {}

Plan = tuple[Variant, str, int, str]  # how, which call, which of them, errno with or without "+"


class PythonFaults:
    """Makes one call of the os module fail, and counts."""

    def __init__(self, call: str, count: int, way: str, spared: int) -> None:
        self.passed = self.failed = 0
        self.count, self.number, self.again = count, int(way.rstrip("+")), way.endswith("+")
        self.spared = spared
        name = call.partition(".")[2]
        self.real = getattr(os, name)
        setattr(os, name, self)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if arguments[0] != self.spared:  # what the worker tells
            self.passed += 1
            if self.passed == self.count or (self.again and self.passed > self.count):
                self.failed += 1
                at = arguments[0] if isinstance(arguments[0], (str, os.PathLike)) else None
                raise OSError(self.number, os.strerror(self.number), at)
        return self.real(*arguments, **options)


def work(root: Path, out: Path, plan: Plan) -> tuple[int, int]:
    """Do the workload; how many calls of the plan's kind were made, and how many failed."""
    variant, call, count, way = plan
    worker = Worker(root, out, variant, lambda: counts()[1])
    if call.startswith("os."):
        faults = PythonFaults(call, count, way, worker.out)
        counts = lambda: (faults.passed, faults.failed)  # noqa: E731
    else:
        os.environ["RMQ_FAIL_AT"] = f"{call}:{count}:{way}"
        counts = _core.fault_counts
    worker.run()
    os.environ.pop("RMQ_FAIL_AT", None)
    return counts()


def work_in_child(case: Case, root: Path, plan: Plan) -> tuple[Path, int, int, int]:
    """The worker's output, its exit status, calls of the kind that were made, and that failed."""
    out = case.scratch / "told"
    out.unlink(missing_ok=True)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(LIMIT)
            passed, failed = work(root, out, plan)
            with os.fdopen(writing, "w") as pipe:
                pipe.write(f"{passed} {failed}")
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    passed, failed = map(int, said.split()) if said else (0, 0)
    return out, os.waitstatus_to_exitcode(status), passed, failed


def name_of(plan: Plan) -> str:
    """A plan as ``CASE=`` takes it."""
    v, call, count, way = plan
    flags = "".join(
        letter for letter, on in zip("cfd", (v.configured, v.fast, v.deletes), strict=True) if on
    )
    return f"{v.state}:{v.mode}:{v.flush}:{flags}:{call}:{count}:{way}"


def plan_of(name: str) -> Plan:
    state, mode, flush, flags, call, count, way = name.split(":")
    variant = Variant(state, flush, "c" in flags, "f" in flags, mode, "d" in flags)
    return variant, call, int(count), way


def described(plan: Plan) -> str:
    variant, call, count, way = plan
    name = f"{variant}: {call} number {count} fails with {errno.errorcode[int(way.rstrip('+'))]}"
    return name + (" and all later ones" if way.endswith("+") else "")


def one_call(case: Case, item: str) -> None:
    plan = plan_of(item)
    variant, call, *_ = plan
    name = described(plan)
    root = case.scratch / "store"
    image = IMAGES.get(variant.state)
    small_work.begin(root, image)
    model = small_work.model_of(image)
    before = invariants.contents(root)
    files = invariants.sizes(root)
    out, status, _, failed = work_in_child(case, root, plan)

    def tell(kind: str, text: str) -> None:
        case.violation(kind, f"{name}: {text}")

    if status:
        tell("hung" if status == -signal.SIGALRM else "died", f"exit status {status}")
    told = small_work.learn(model, out)
    if not failed:
        case.note("planned calls that were not reached")
    check_told(told, call, tell)
    if told.raised and told.raised[0][0] == "open":
        check_refused(root, variant, call, before, tell)
    check_after(case, root, variant, model, tell, files)


def check_told(told: Told, call: str, tell: Any) -> None:
    """Errors are those of the manual; a failed sync is final."""
    for where, kind, number, text in told.raised:
        if kind not in (OPENING if where == "open" else WRITING) or not text:
            tell("error", f"{where} raised {kind} {number} {text}")
    if call not in {"sync", "os.fsync"}:
        return
    if told.late:
        tell("I8", f"acknowledged after a failed sync: {told.late}, {told.raised[:2]}")
    kinds = [kind for _, kind, *_ in told.raised]
    used = [where for where, *_ in told.raised if where != "close"]
    if used and "open" not in used and "StoreFailedError" not in kinds:
        tell("I8", f"a failed sync is not final: {told.raised[:3]}")
    if [where for where, *_ in told.raised if where == "close-again"]:
        tell("error", f"closing it a second time raised: {told.raised[-1]}")


def check_refused(root: Path, variant: Variant, call: str, before: Any, tell: Any) -> None:
    """A refused opening leaves a closed store as it was."""
    if not variant.state.startswith("closed") or call in {"unlink", "sync", "os.fsync"}:
        return
    if changed := invariants.changed(before, invariants.contents(root)):
        tell("I5", f"a refused opening changed {changed}")


def check_after(
    case: Case, root: Path, variant: Variant, model: Model, tell: Any, files: dict[str, int]
) -> None:
    if not (root / "commitlog").is_dir() or not os.listdir(root / "commitlog"):  # noqa: PTH208
        if model.acked:
            tell("I1", "the log is gone")
        return
    invariants.check_files(files, root, tell, gone=small_work.gone(variant))
    small_work.check_reopened(reopen.Telling(case, tell), root, variant, model)


def make_images(case: Case, _: str) -> list[tiny.Image]:
    made = [tiny.make(case.scratch, state, seed=case.run.seed) for state in tiny.STATES]
    return made + [tiny.brokers(case.scratch, state, seed=case.run.seed) for state in tiny.STATES]


def count_calls(case: Case, item: str) -> int:
    plan = plan_of(item)
    root = case.scratch / "store"
    small_work.begin(root, IMAGES.get(plan[0].state))
    _, status, passed, _ = work_in_child(case, root, plan)
    if status:
        case.violation("error", f"{plan[0]}: the workload alone ended with {status}")
    return passed


def plans_of(run: Run, calls: dict[str, tuple[int, ...]]) -> list[str]:
    """Every call of the workload, in each way; once with each state and rhythm, in turn."""
    logging.disable(logging.CRITICAL)
    images = run.fork(make_images, ["images"], counts=False, chosen=False)[0]
    IMAGES.update({image.name: image for image in images})
    if run.only_case:
        return [run.only_case]
    draw = random.Random(f"{run.seed} {run.name}")
    variants = small_work.variants(draw, ["new", *IMAGES])
    counted = draw.sample(variants, run.number(4, 1))
    asked = [(variant, call, NEVER, str(errno.EIO)) for variant in counted for call in calls]
    passed = run.fork(count_calls, [name_of(plan) for plan in asked], counts=False, seconds=60)
    reach: dict[str, int] = {}
    for (_, call, *_), number in zip(asked, passed, strict=True):
        reach[call] = max(reach.get(call, 0), number or 0)
    plans: list[Plan] = []
    for call, ways in calls.items():
        for count, way in itertools.product(range(1, reach[call] + 1), ways):
            again = "+" if draw.random() < 0.2 else ""
            plans.append((draw.choice(variants), call, count, f"{way}{again}"))
    run.column("ours").note("calls that can fail, each in each way", len(plans))
    if run.cases < len(plans):
        plans = draw.sample(plans, run.cases)
    while len(plans) < run.cases:  # once more, on another store
        _, call, count, way = draw.choice(plans)
        plans.append((draw.choice(variants), call, count, way))
    return [name_of(plan) for plan in plans]


@campaign("calls", cases=1500, slice=60, needs_faults=True)
def calls(run: Run) -> None:
    """The k-th call of each kind fails, in each way that fits."""
    known = set(re.findall(r'FAULT\("([^"]+)"\)', SYSTEM.read_text(encoding="utf-8")))
    assert known == {*CALLS, "sync"}, known ^ {*CALLS, "sync"}
    plans = plans_of(run, CALLS | PYTHON_CALLS)
    run.fork(one_call, plans, seconds=60, jobs=WAITING * run.jobs)
