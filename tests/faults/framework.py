"""Campaigns: what they are called, how often they run, and the children that their cases run in.

A campaign is a function of a module ``campaign_*.py`` of this directory::

    @campaign("kill", cases=1000, slice=10, needs_faults=True)
    def kill(run: Run) -> None:
        run.fork(one_kill, range(run.cases))

    def one_kill(case: Case, number: int) -> None:
        ...
        case.violation("I1", "what was expected, what is there")

``python -m faults`` runs them and prints the table; ``test_campaigns.py`` runs a slice of each.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import pickle
import random
import resource
import select
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

INVARIANTS = ("I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8")
OTHER = ("refused", "died", "hung", "error")  # what is no invariant and yet must not happen
KINDS = INVARIANTS + OTHER
TOOLS = ("java", "mvn")  # of the real store
# A sanitizer's own memory is terabytes of addresses: no limit of theirs says anything there.
SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")
WAITING = 4  # times as many cases at the same time, where they mostly wait
KEPT = 3  # directories of cases with violations that a campaign leaves to be looked at
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # loaded before the first fork


@dataclass(frozen=True)
class Violation:
    kind: str  # one of KINDS
    case: str
    text: str


@dataclass
class Tally:
    """One column of the table: what a campaign counted for one store."""

    cases: int = 0
    violations: list[Violation] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)  # printed below the table

    def case(self, count: int = 1) -> None:
        self.cases += count

    def violation(self, kind: str, case: object, text: str) -> None:
        assert kind in KINDS, kind
        self.violations.append(Violation(kind, str(case), text))

    def note(self, name: str, count: int = 1) -> None:
        self.notes[name] += count

    def counts(self) -> str:
        found = Counter(violation.kind for violation in self.violations)
        return " ".join(f"{kind}:{found[kind]:,}" for kind in KINDS if found[kind]) or "0"


@dataclass(frozen=True)
class Campaign:
    name: str
    work: Callable[[Run], None]
    cases: int
    slice: int
    needs_faults: bool  # kill points or failing calls: the faults build
    theirs: bool  # the real 4.9.3 is run as well: ask run.wants() before each column
    memory: bool  # its stores are small: on a file system in memory, if there is one
    alongside: bool  # beside all others, from their beginning to their end


CAMPAIGNS: dict[str, Campaign] = {}


def campaign(
    name: str,
    *,
    cases: int,
    slice: int,
    needs_faults: bool = False,
    theirs: bool = False,
    memory: bool = False,
    alongside: bool = False,
) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Register a campaign of so many cases at SCALE=1, and in a slice."""

    def register(work: Callable[[Run], None]) -> Callable[[Run], None]:
        assert name not in CAMPAIGNS, name
        CAMPAIGNS[name] = Campaign(
            name, work, cases, slice, needs_faults, theirs, memory, alongside
        )
        return work

    return register


def load_campaigns() -> dict[str, Campaign]:
    """Import every ``campaign_*.py`` of this directory."""
    for path in sorted(Path(__file__).parent.glob("campaign_*.py")):
        importlib.import_module(f"faults.{path.stem}")
    return CAMPAIGNS


class Run:
    """One campaign at work: what it is to do, and what it has counted."""

    def __init__(
        self,
        campaign: Campaign,
        scratch: Path,
        *,
        seed: str,
        scale: float = 1,
        slice: bool = False,
        jobs: int = 2,
        only_case: str = "",
        only_column: str = "",
        first: bool = False,
    ) -> None:
        self.name = campaign.name
        self.first = first  # end with the first violation
        self.only_column = only_column
        self.scratch = scratch
        self.seed = seed
        self.scale = scale
        self.slice = slice
        self.jobs = jobs
        self.only_case = only_case
        self.cases = self.number(campaign.cases, campaign.slice)
        self.columns = {"ours": Tally()}
        self.reasons: dict[str, list[str]] = {}  # by column: why it, or a part of it, was not run
        self.seconds = 0.0
        self.kept = 0

    def number(self, full: int, slice: int) -> int:
        """How many of something: so many at SCALE=1, or those of the slice."""
        return slice if self.slice else max(1, round(full * self.scale))

    def column(self, name: str) -> Tally:
        """The tally of ``"ours"``, or of ``"theirs"``: the real 4.9.3."""
        assert name in {"ours", "theirs"}
        return self.columns.setdefault(name, Tally())

    def wants(self, column: str) -> bool:
        """Whether cases of this column are to be run, and can be."""
        if self.only_column not in {"", column}:
            return False
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if column == "theirs" and missing:
            self.not_run(f"no {' and no '.join(missing)}", "theirs")
            return False
        return True

    def case(self, count: int = 1) -> None:
        self.column("ours").case(count)

    def violation(self, kind: str, case: object, text: str) -> None:
        self.column("ours").violation(kind, case, text)

    def not_run(self, reason: str, column: str = "ours") -> None:
        if self.only_column in {"", column}:
            self.reasons.setdefault(column, []).append(reason)

    def fork(
        self,
        work: Callable[..., Any],
        items: Iterable[Any],
        *,
        column: str = "ours",
        seconds: float = 120,
        memory: int = 16 << 30,
        jobs: int | None = None,
        counts: bool = True,
        chosen: bool = True,
    ) -> list[Any]:
        """Call ``work(case, item)`` for each item in a child of its own; what the calls returned.

        A child that is ended by a signal, takes longer than ``seconds`` or raises is a violation,
        and returned None.  ``memory`` limits its address space.  Without ``counts`` only what the
        work counts itself, by ``case.count`` or ``case.fork``, are cases.  Without ``chosen``
        every item is run, also where one case alone is to be repeated: it needs what they make.
        """
        wanted, _, inner = self.only_case.partition("/") if chosen else ("", "", "")
        pending = [(str(item), item) for item in items if wanted in {"", str(item)}]
        tally = self.column(column)
        results: list[Any] = [None] * len(pending)
        running: dict[int, tuple[_Child, int]] = {}
        poll = select.poll()
        todo = list(enumerate(pending))[::-1]
        if self.first and tally.violations:
            todo.clear()
        while todo or running:
            while todo and len(running) < (jobs or self.jobs):
                number, (name, item) = todo.pop()
                child = _Child(self, name, inner, seconds, memory)
                child.start(work, item)
                running[child.watched] = child, number
                poll.register(child.watched, select.POLLIN)
            for descriptor, _ in poll.poll():
                child, number = running.pop(descriptor)
                poll.unregister(descriptor)
                results[number] = child.finish(tally, counts)
            if self.first and tally.violations:
                todo.clear()
        return results


class Case:
    """What a case's work may use; the methods are those of Run, within the child."""

    def __init__(self, run: Run, name: str, inner: str, scratch: Path, out: BinaryIO) -> None:
        self.run = run
        self.name = name
        self.inner = inner
        self.scratch = scratch  # an empty directory, removed if there was no violation
        self.draw = random.Random(f"{run.seed}-{run.name}-{name}")
        self._out = out
        self._failed = False

    def _tell(self, what: str, *values: object) -> None:
        pickle.dump((what, *values), self._out)
        self._out.flush()

    def violation(self, kind: str, text: str) -> None:
        assert kind in KINDS, kind
        self._failed = True
        self._tell("violation", kind, self.name, text)

    def count(self, count: int = 1) -> None:
        self._tell("cases", count)

    def note(self, name: str, count: int = 1) -> None:
        self._tell("note", name, count)

    def fork(self, work: Callable[..., Any], items: Iterable[Any], **options: Any) -> list[Any]:
        """Cases of this case, one after the other, in children of this child; see Run.fork.

        Which column they count for is the outer fork's to say.
        """
        inner = Run(
            CAMPAIGNS[self.run.name],
            self.scratch,
            seed=f"{self.run.seed}-{self.name}",
            scale=self.run.scale,
            slice=self.run.slice,
            jobs=1,
            only_case=self.inner,
            first=self.run.first,
        )
        results = inner.fork(work, items, **options)
        tally = inner.column("ours")
        self.count(tally.cases)
        for violation in tally.violations:
            self._failed = True
            case = f"{self.name}/{violation.case}"
            self._tell("violation", violation.kind, case, violation.text)
        for name, count in tally.notes.items():
            self.note(name, count)
        return results


def end_with(parent: int) -> None:
    """Have this process end when its parent does."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class _Child:
    """One forked child: it appends to a file what it counts, which outlives it."""

    def __init__(self, run: Run, name: str, inner: str, seconds: float, memory: int) -> None:
        self.run, self.name, self.inner = run, name, inner
        self.seconds, self.memory = seconds, memory
        clean = "".join(c if c.isalnum() or c in "-." else "_" for c in name)[:80]
        self.home = Path(tempfile.mkdtemp(prefix=f"{clean}-", dir=run.scratch))
        self.out = self.home / "counted"

    def start(self, work: Callable[..., Any], item: Any) -> None:
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._be(parent, work, item)
            finally:
                os._exit(1)
        self.watched = os.pidfd_open(self.pid)

    def _be(self, parent: int, work: Callable[..., Any], item: Any) -> None:
        os.setpgid(0, 0)
        end_with(parent)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)
        if not SANITIZED:
            resource.setrlimit(resource.RLIMIT_AS, (self.memory, self.memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        work_directory = self.home / "case"
        work_directory.mkdir()
        with self.out.open("ab") as out:
            case = Case(self.run, self.name, self.inner, work_directory, out)
            try:
                result = work(case, item)
            except Exception:
                case.violation("error", traceback.format_exc())
                result = None
            case._tell("result", result)
        os._exit(0)

    def finish(self, tally: Tally, counts: bool) -> Any:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # what the case left running
        _, status = os.waitpid(self.pid, 0)
        os.close(self.watched)
        tally.case(int(counts))
        before = len(tally.violations)
        result = None
        for what, *values in self._told():
            if what == "violation":
                tally.violation(*values)
            elif what == "cases":
                tally.case(*values)
            elif what == "note":
                tally.note(*values)
            else:
                (result,) = values
        exit_code = os.waitstatus_to_exitcode(status)
        if exit_code == -signal.SIGALRM:
            tally.violation("hung", self.name, f"still at it after {self.seconds} s")
        elif exit_code != 0:
            tally.violation("died", self.name, f"exit code {exit_code}")
        if len(tally.violations) > before and self.run.kept < KEPT:
            self.run.kept += 1
        else:
            shutil.rmtree(self.home, ignore_errors=True)
        return result

    def _told(self) -> list[tuple[Any, ...]]:
        told = []
        # The last word of a child that was killed while it wrote may be cut.
        ends = contextlib.suppress(FileNotFoundError, EOFError, pickle.UnpicklingError)
        with ends, self.out.open("rb") as file:
            while True:
                told.append(pickle.load(file))
        return told


def perform(run: Run) -> Run:
    """Run the campaign; what goes wrong in the campaign itself is a violation as well."""
    begun = time.monotonic()
    try:
        CAMPAIGNS[run.name].work(run)
    except Exception:
        run.violation("error", "-", traceback.format_exc())
    run.seconds = time.monotonic() - begun
    return run
