"""What a power cut may leave of a directory: built from what a run under ``power_shim.c`` synced.

A page of a file that differs from what was last synced is the new or the old one, or some sectors
of each; a file's length is the new or the old one; changes of names that no sync of their directory
has followed are undone from some point on.  ``journal`` says how names become durable:

``"strict"``  by a sync of their directory alone, which is all that POSIX promises;
``"ext4"``    a sync of a directory or of a new file makes every earlier change of names durable,
              and a file that has a name has the length that it was given.
"""

from __future__ import annotations

import ctypes
import os
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from faults.invariants import copy_file

PAGE, SECTOR = 4096, 512
PART = PAGE // SECTOR
TORN = 0.1  # of the pages of which something is new
_STATX_ALL = 0xFFF
_AT_SYMLINK_NOFOLLOW = 0x100
_libc = ctypes.CDLL(None, use_errno=True)

Name = tuple[str, str]  # id of a directory, name in it
Entry = tuple[str, str] | None  # "d" or "f", id; None: there is no such name


def id_of(path: Path) -> str:
    """Inode and time of birth, as the shim writes them: no two files of a run have the same."""
    status = ctypes.create_string_buffer(256)
    if _libc.statx(-100, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, _STATX_ALL, status) != 0:
        raise OSError(ctypes.get_errno(), "statx", str(path))
    (inode,) = struct.unpack_from("=Q", status, 32)
    seconds, nanoseconds = struct.unpack_from("=qI", status, 80)
    return f"{inode}-{seconds * 1_000_000_000 + nanoseconds}"


@dataclass
class Change:
    names: list[tuple[Name, Entry]]  # all of them at once
    durable: bool = False
    synced: set[str] = field(default_factory=set)  # since it was made: ids of directories

    def sync(self, folder: str) -> None:
        """A name moved to another directory is durable there when both of them are synced."""
        self.synced.add(folder)
        self.durable = all(name[0] in self.synced for name, _ in self.names)


@dataclass
class Bytes:
    """One file: pages as they are durable and as they were at the cut, where those differ."""

    durable: np.ndarray  # of sectors, by page: (pages, PART, SECTOR)
    now: np.ndarray  # the pages of ``differ`` alone
    differ: np.ndarray
    durable_size: int
    size: int


@dataclass
class Recording:
    """A directory before a run, and what the run made durable of it."""

    top: Path
    shadow: Path
    tree: dict[str, dict[str, Entry]] = field(default_factory=dict)
    files: dict[str, Bytes] = field(default_factory=dict)
    lines: list[list[str]] = field(default_factory=list)
    changes: dict[str, list[Change]] = field(default_factory=dict)  # by journal

    @classmethod
    def begin(cls, top: Path, shadow: Path) -> Recording:
        """Take the directory as it is for durable."""
        shadow.mkdir()
        recording = cls(top, shadow)
        for folder, _, names in os.walk(top):
            recording.tree[id_of(Path(folder))] = {
                path.name: ("d" if path.is_dir() else "f", id_of(path))
                for path in Path(folder).iterdir()
            }
            for name in names:
                path = Path(folder, name)
                copy_file(path, shadow / id_of(path))
        return recording

    def environment(self, library: Path) -> dict[str, str]:
        return {
            # Behind a sanitizer's library, which has to be the first.
            "LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {library}".strip(),
            "RMQ_POWER_ROOT": str(self.top),
            "RMQ_POWER_SHADOW": str(self.shadow),
        }

    def catch_up(self) -> None:
        """Say what the process that was killed did last to the names, and had no time to say.

        What the next process syncs is then told of them as well.
        """
        self._read_lines()
        text = "".join("\t".join(line) + "\n" for line in self.lines)
        os.truncate(self.shadow / "operations", len(text.encode()))  # a torn last line
        changes = self._changes("strict")
        said = _names_of(self._tree_of(changes, set(map(id, changes))))
        there = {
            (id_of(path.parent), path.name): ("d" if path.is_dir() else "f", id_of(path))
            for path in sorted(self.top.rglob("*"))
        }
        gone = {entry: name for name, entry in said.items() if there.get(name) != entry}
        with (self.shadow / "operations").open("a") as file:
            for name, entry in there.items():
                if said.get(name) == entry:
                    continue
                moved = gone.pop(entry, None)
                words = ("put", *name, *entry) if moved is None else ("move", *moved, *name, *entry)
                file.write("\t".join(words) + "\n")
            for name in gone.values():
                if name not in there:  # else it was replaced
                    file.write("\t".join(("cut", *name)) + "\n")

    def _read_lines(self) -> None:
        text = (self.shadow / "operations").read_text()
        self.lines = [line.split("\t") for line in text[: text.rfind("\n") + 1].splitlines()]

    def end(self) -> None:
        """Read what the run left, after its process is gone."""
        self._read_lines()
        self.changes = {journal: self._changes(journal) for journal in ("strict", "ext4")}
        now = {id_of(path): path for path in self.top.rglob("*") if path.is_file()}
        durable = {path.name: path for path in self.shadow.iterdir() if "-" in path.name}
        for name in now.keys() | durable.keys():
            self.files[name] = _compare(durable.get(name), now.get(name))

    def _changes(self, journal: str) -> list[Change]:
        changes: list[Change] = []
        pending: list[Change] = []
        for verb, *rest in self.lines:
            if verb in {"sync", "held"}:
                (synced,) = rest
                made = any(
                    entry is not None and entry[1] == synced
                    for change in pending
                    for _, entry in change.names
                )
                for change in pending:
                    if journal == "ext4":
                        change.durable = verb == "sync" or made
                    else:
                        change.sync(synced)
                pending = [change for change in pending if not change.durable]
                continue
            if verb == "put":
                folder, name, kind, made_id = rest
                names: list[tuple[Name, Entry]] = [((folder, name), (kind, made_id))]
            elif verb == "cut":
                folder, name = rest
                names = [((folder, name), None)]
            else:
                folder, name, to_folder, to_name, kind, made_id = rest
                names = [((folder, name), None), ((to_folder, to_name), (kind, made_id))]
            changes.append(Change(names))
            pending.append(changes[-1])
        return changes

    def _tree_after(self, draw: random.Random, journal: str) -> dict[str, dict[str, Entry]]:
        """The names after the cut: the pending changes are undone from some point on."""
        changes = self.changes[journal]
        pending = [change for change in changes if not change.durable]
        way = draw.choice(["all", "none", "suffix", "suffix", "by directory"])
        if way == "by directory" and journal == "strict":
            folders = sorted({change.names[0][0][0] for change in pending})
            kept: set[int] = set()
            for folder in folders:
                own = [change for change in pending if change.names[0][0][0] == folder]
                kept |= {id(change) for change in own[: draw.randint(0, len(own))]}
        else:
            count = {"all": len(pending), "none": 0}.get(way, draw.randint(0, len(pending)))
            kept = {id(change) for change in pending[:count]}
        return self._tree_of(changes, kept)

    def _tree_of(self, changes: list[Change], kept: set[int]) -> dict[str, dict[str, Entry]]:
        """The names with the durable changes, and those kept of the others."""
        tree = {folder: dict(names) for folder, names in self.tree.items()}
        for change in changes:
            if change.durable or id(change) in kept:
                for (folder, name), entry in change.names:
                    tree.setdefault(folder, {})[name] = entry
        return tree

    def synced(self, to: Path, journal: str) -> None:
        """Make the directory with what was synced, and nothing else."""
        tree = self._tree_of(self.changes[journal], set())
        for path, entry in _walk(tree, id_of(self.top), to):
            if entry[0] == "d":
                path.mkdir()
                continue
            found = self.files.get(entry[1])
            path.write_bytes(found.durable.tobytes()[: found.durable_size] if found else b"")

    def image(self, draw: random.Random, to: Path, journal: str) -> None:
        """Make one of the directories that the cut may have left."""
        share = draw.choice([0, 1, 0.5, 0.1, 0.9])
        alike = draw.random() < 0.5  # the same share of new pages for every file
        in_order = draw.random() < 0.4  # a file's first pages came to the disk first
        tree = self._tree_after(draw, journal)
        for path, entry in _walk(tree, id_of(self.top), to):
            if entry[0] == "d":
                path.mkdir()
                continue
            own = share if alike else draw.choice([0, 1, 0.5, 0.1, 0.9])
            found = self.files.get(entry[1])
            with path.open("wb") as file:
                if found is not None:
                    # A store's files get their length at once; others grow as they are written.
                    at_once = path.name.isdigit()
                    size = _length(found, draw, at_once=at_once, kept=at_once and journal == "ext4")
                    _write(file.fileno(), found, own, size, draw, in_order=in_order)

    def everything_new(self) -> int:
        """How many pages are not durable: 0 means that a cut changes no bytes."""
        return sum(len(found.differ) for found in self.files.values())


def _names_of(tree: dict[str, dict[str, Entry]]) -> dict[Name, tuple[str, str]]:
    return {
        (folder, name): entry
        for folder, names in tree.items()
        for name, entry in names.items()
        if entry is not None
    }


def _walk(
    tree: dict[str, dict[str, Entry]], folder: str, at: Path
) -> Iterator[tuple[Path, tuple[str, str]]]:
    yield at, ("d", folder)
    for name, entry in sorted(tree.get(folder, {}).items()):
        if entry is None:
            continue
        if entry[0] == "d":
            yield from _walk(tree, entry[1], at / name)
        else:
            yield at / name, entry


def _pages(path: Path | None, size: int) -> np.ndarray:
    pages = np.zeros(((size + PAGE - 1) // PAGE, PART, SECTOR), np.uint8)
    if path is not None:
        data = np.frombuffer(path.read_bytes(), np.uint8)
        pages.reshape(-1)[: len(data)] = data
    return pages


def _compare(durable: Path | None, now: Path | None) -> Bytes:
    durable_size = durable.stat().st_size if durable else 0
    size = now.stat().st_size if now else durable_size
    longest = max(durable_size, size)
    old = _pages(durable, longest)
    new = _pages(now, longest) if now else old
    differ = np.flatnonzero((old != new).any(axis=(1, 2)))
    return Bytes(old, new[differ].copy(), differ, durable_size, size)


def _length(found: Bytes, draw: random.Random, *, at_once: bool, kept: bool) -> int:
    """The length after the cut: that before or after the change, or where it grew one between."""
    low, high = sorted((found.durable_size, found.size))
    if kept:
        return high
    return draw.choice([low, high, high if at_once else draw.randint(low, high)])


def _write(
    fd: int, found: Bytes, share: float, size: int, draw: random.Random, *, in_order: bool
) -> None:
    random_of = np.random.default_rng(draw.getrandbits(64))
    count = len(found.differ)
    pages = found.durable.copy()
    kept = np.arange(count) < share * count if in_order else random_of.random(count) < share
    new = np.repeat(kept[:, None], PART, axis=1)
    torn = random_of.random(count) < TORN
    new[torn] &= random_of.random((int(torn.sum()), PART)) < 0.5
    pages[found.differ] = np.where(new[:, :, None], found.now, found.durable[found.differ])
    flat = pages.reshape(-1)[:size]
    used = np.flatnonzero(pages.any(axis=(1, 2)))
    for first, last in _runs(used):
        os.pwrite(fd, flat[first * PAGE : (last + 1) * PAGE].tobytes(), int(first) * PAGE)
    os.ftruncate(fd, size)


def _runs(numbers: np.ndarray) -> Iterator[tuple[int, int]]:
    """First and last of each run of numbers that follow one another."""
    if len(numbers):
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
            yield run[0], run[-1]
