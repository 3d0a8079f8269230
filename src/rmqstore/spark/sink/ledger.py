"""Ledger of the sink in ``.spark`` of a store: committed batches, and a pending write.

``ledger/<job>.json`` has the last batch of a query, or a finished job; ``intent.json`` a write
whose rows may be partly in the log; ``staging/<job>/`` has files of tasks; ``created.json`` marks
a store made by the sink.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from rmqstore.base.syncing import sync_path
from rmqstore.errors import StoreCorruptError
from rmqstore.files.regular import open_regular
from rmqstore.spark.common.side_files import IN_STORE, TEMPORARY, digest
from rmqstore.spark.sink.staging import PREFIX_DIGITS, StagedFile

__all__ = [
    "Intent",
    "Job",
    "Ledger",
    "LedgerEntry",
    "is_earlier",
    "last_change",
]

_VERSION = 1
_STALE_SECONDS = 86400.0
_WAY_ON = "put a copy back: without it, a batch that was written may come once more"
_T = TypeVar("_T")


@dataclass(frozen=True)
class Job:
    """One write: a batch job, or a batch of a streaming query."""

    kind: Literal["batch", "stream"]
    name: str  # of the job or of the query
    batch: int  # number of the query's batch; for a batch job, 0 or its option
    directory: str  # name of the directory with its staged files
    kept: bool  # whether the ledger remembers it, as its name may be repeated

    @property
    def prefix(self) -> str:
        """Prefix of its rows' unique keys, the same in each attempt."""
        return digest(f"{self.kind}\0{self.name}\0{self.batch}")[:PREFIX_DIGITS].upper()

    @property
    def text(self) -> str:
        """Name in messages."""
        if self.kind == "stream":
            return f"batch {self.batch} of the query {self.name}"
        return f"the job {self.name!r}" + (f", batch {self.batch}" if self.batch else "")


@dataclass(frozen=True)
class LedgerEntry:
    """Ledger entry of a query or a job."""

    batch: int  # number of the last batch in the store
    end: int  # physical offset after its last row


@dataclass(frozen=True)
class Intent:
    """A write whose rows may be in the log, in whole or in part."""

    job: Job
    start: int  # physical offset; no row is before it
    queue_nums: int | None  # queues of topics it creates
    files: tuple[StagedFile, ...]  # in the order of their rows in the log

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def topics(self) -> list[str]:
        """Topics of all rows."""
        return sorted({topic for file in self.files for topic in file.topics})


class Ledger:
    """Files of the sink in a store.

    Changes are written under another name, forced to the disk and renamed, by the holder of the
    store's lock; only staged files need no lock.
    """

    def __init__(self, store: str | os.PathLike[str]) -> None:
        self.store = Path(store)
        self.root = self.store / IN_STORE
        self.entries_path = self.root / "ledger"
        self.intent_path = self.root / "intent.json"  # the pending write
        self._created = self.root / "created.json"
        self.staging = self.root / "staging"  # a directory for each job with staged files

    # Committed jobs

    def is_done(self, job: Job) -> bool:
        """Whether the store already has a write."""
        entry = self.entry(job)
        return entry is not None and job.batch <= entry.batch

    def entry(self, job: Job) -> LedgerEntry | None:
        """Return the entry of a job's name, or None; ``StoreCorruptError`` if it is invalid."""
        if not job.kept:
            return None
        path = self._entry_path(job)
        return _load(path, lambda found: _entry_of(found, job))

    def seal(self, job: Job, end: int) -> None:
        """Record that the store has a write, up to a physical offset."""
        if job.kept:
            data = {"kind": job.kind, "name": job.name, "batch": job.batch, "end": end}
            _save(self._entry_path(job), data)

    def copy_entries(self, other: Ledger) -> None:
        """Copy another ledger's entries, with the marks of its store."""
        if other.entries_path.is_dir():
            shutil.copytree(other.entries_path, self.entries_path, dirs_exist_ok=True)
            for path in self.entries_path.iterdir():
                sync_path(path)
            sync_path(self.entries_path)

    def _entry_path(self, job: Job) -> Path:
        return self.entries_path / f"{job.kind}-{digest(job.name)}.json"

    # The pending write

    def intent(self) -> Intent | None:
        """Return the pending write, or None; ``StoreCorruptError`` if it is invalid."""
        return _load(self.intent_path, _intent_of)

    def begin(self, intent: Intent) -> None:
        """Record that rows are about to enter the log; from here on all of them will."""
        _save(self.intent_path, asdict(intent))

    def end(self) -> None:
        """Record that no write is pending."""
        self.intent_path.unlink(missing_ok=True)
        sync_path(self.root)

    # The store itself

    @property
    def is_alone(self) -> bool:
        """Whether the store's directory is missing, or has only the sink's files."""
        if not self.store.is_dir():
            return True
        return all(path == self.root for path in self.store.iterdir())

    @property
    def created(self) -> bool:
        """Whether the sink made the store."""
        return self._created.exists()

    def mark_created(self) -> None:
        """Record that the sink made the store."""
        _save(self._created, {})

    # Staged files

    def directory(self, job: Job) -> Path:
        """Return the directory of a job's staged files."""
        return self.staging / job.directory

    def discard(self, job: Job) -> None:
        """Remove a job's staged files, and directories left empty."""
        shutil.rmtree(self.directory(job), ignore_errors=True)
        for directory in (self.staging, self.root):
            with contextlib.suppress(OSError):
                directory.rmdir()

    def keep_staging_only(self) -> None:
        """Remove remains of an earlier attempt to make the store, except staged files."""
        for directory, kept in ((self.store, self.root), (self.root, self.staging)):
            for path in directory.iterdir() if directory.is_dir() else ():
                if path.is_dir() and path != kept:
                    shutil.rmtree(path)
                elif path != kept:
                    path.unlink()

    def staged_jobs(self) -> list[str]:
        """Return the names of directories with staged files."""
        try:
            return sorted(os.listdir(self.staging))  # noqa: PTH208 - names, not paths
        except FileNotFoundError:
            return []

    def sync_staging(self) -> None:
        """Force the names of the jobs' directories to the disk."""
        for directory in (self.staging, self.root, self.store):
            sync_path(directory)

    def sweep(self, job: Job, now: float | None = None) -> None:
        """Remove remains of a query's earlier batches, and jobs abandoned a day ago."""
        limit = (time.time() if now is None else now) - _STALE_SECONDS
        intent = self.intent()
        kept = {job.directory} if intent is None else {job.directory, intent.job.directory}
        for name in self.staged_jobs():
            path = self.staging / name
            if name not in kept and (is_earlier(name, job) or last_change(path) < limit):
                shutil.rmtree(path, ignore_errors=True)


def is_earlier(directory: str, job: Job) -> bool:
    """Whether a directory is another attempt's at a query's batch, or an earlier batch's."""
    stem, dot, rest = directory.partition(".")
    if not dot or job.kind != "stream" or stem != job.directory.partition(".")[0]:
        return False
    number = rest.partition(".")[0]
    return number.isdecimal() and int(number) <= job.batch


def last_change(path: Path) -> float:
    """Return the time of the last change in a directory, its entries or its staged jobs."""
    times = [0.0]
    for found in (path, *path.glob("*"), *path.glob(f"{IN_STORE}/staging/*/*")):
        with contextlib.suppress(OSError):
            times.append(found.stat().st_mtime)
    return max(times)


def _save(path: Path, data: dict[str, Any]) -> None:
    """Replace a small file; a crash leaves the old one or the new one."""
    made = [directory for directory in (path.parent, *path.parents) if not directory.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}{TEMPORARY}")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump({"version": _VERSION} | data, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_path(path.parent)
    for directory in made:
        sync_path(directory.parent)


def _load(path: Path, parse: Callable[[dict[str, Any]], _T]) -> _T | None:
    """Read a small file; None if it is missing."""
    try:
        with open_regular(path) as file:
            text = file.read().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise StoreCorruptError(path, error.start, f"no UTF-8; {_WAY_ON}") from None
    try:
        found = json.loads(text)
        if found["version"] != _VERSION:
            raise ValueError(f"version {found['version']!r}, this one reads {_VERSION}")
        return parse(found)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise StoreCorruptError(path, 0, f"not what the sink wrote: {error!r}; {_WAY_ON}") from None


def _entry_of(found: dict[str, Any], job: Job) -> LedgerEntry:
    if (found["kind"], found["name"]) != (job.kind, job.name):
        raise ValueError(f"it is of {found['kind']} {found['name']!r}, not of {job.text}")
    return LedgerEntry(int(found["batch"]), int(found["end"]))


def _intent_of(found: dict[str, Any]) -> Intent:
    files = tuple(
        StagedFile(**(entry | {"topics": tuple(entry["topics"])})) for entry in found["files"]
    )
    return Intent(Job(**found["job"]), int(found["start"]), found["queue_nums"], files)
