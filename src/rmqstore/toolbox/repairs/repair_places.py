"""Directories of a store's log as a repair uses them: which file lies where, and what is written.

Source: ``store/MultiPathMappedFileQueue.java``, ``store/MappedFileQueue.java doLoad``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqstore.config.store_config import StoreConfig
from rmqstore.directory.layout import LogPath, log_paths
from rmqstore.files import paths
from rmqstore.files.regular import open_regular
from rmqstore.offline.start_files import ListedFile, listed, relative
from rmqstore.toolbox.repairs.repair_plan import Change, move, nothing

__all__ = ["LogPlaces", "repeated_changes"]

_PIECE = 1 << 20


@dataclass(frozen=True)
class LogPlaces:
    """The directories of a store's log, in the order in which they take new files."""

    root: Path
    directories: Sequence[LogPath]

    @classmethod
    def of(cls, root: Path, config: StoreConfig | None) -> LogPlaces:
        """Return the directories that a configuration names, by default the store's own."""
        own = [LogPath(str(root / paths.COMMIT_LOG), False)]
        return cls(root, log_paths(str(root), config) or own)

    @property
    def paths(self) -> list[Path]:
        """Paths of the directories."""
        return [Path(one.path) for one in self.directories]

    @staticmethod
    def is_used(directory: Path) -> bool:
        """Whether a directory has a file that is named like a log's."""
        return any(
            paths.parse_offset_file_name(one.name) is not None for one in listed(directory) or []
        )

    def listed(self) -> list[ListedFile]:
        """Return the entries of all directories."""
        return [one for place in self.directories for one in listed(place.path) or []]

    def starts(self) -> list[int]:
        """Return the first bytes of the files that are named like a log's, in order."""
        names = (
            paths.parse_offset_file_name(one.name)
            for one in self.listed()
            if stat.S_ISREG(one.mode)
        )
        return sorted({one for one in names if one is not None})

    def path(self, start: int, size: int) -> Path:
        """Return the path of a log file; of a missing one, as a broker would choose it."""
        name = paths.offset_file_name(start)
        there = (Path(one.path, name) for one in self.directories)
        new = [Path(one.path, name) for one in self.directories if not one.read_only]
        return next((one for one in there if os.path.lexists(one)), new[start // size % len(new)])

    def file(self, start: int, size: int) -> str:
        """Return the path of a log file relative to the store, absolute if it lies elsewhere."""
        return relative(self.root, self.path(start, size))

    def allowed(self, changes: Iterable[Change]) -> Iterator[Change]:
        """Yield changes; for one in a directory that is only read, the remedy instead."""
        closed = {one.path for one in self.directories if one.read_only}
        for one in changes:
            if one.make is None or str((self.root / one.action.file).parent) not in closed:
                yield one
                continue
            message = (
                f"{one.action.message}; {one.action.action} is not done in a directory of "
                "readOnlyCommitLogStorePaths: put a whole copy of the file there, or repair with a "
                "broker.conf that names the directory in storePathCommitLog alone"
            )
            yield nothing(one.action.file, one.action.offset, message)


def repeated_changes(places: LogPlaces) -> Iterator[Change]:
    """Yield the moves of log files that lie in several directories, but for the whole one.

    A 4.9.3 broker maps all of them, in the order of a hash of the paths, and then finds records
    in either.
    """
    found: dict[int, list[ListedFile]] = {}
    for one in places.listed():
        start = paths.parse_offset_file_name(one.name)
        if start is not None and stat.S_ISREG(one.mode):
            found.setdefault(start, []).append(one)
    closed = {one.path for one in places.directories if one.read_only}
    for start, files in sorted(found.items()):
        if len(files) == 1:
            continue
        # Of equal ones that stays which cannot be moved away.
        by_place = sorted(files, key=lambda one: str(Path(one.path).parent) not in closed)
        whole = next(
            (one for one in by_place if all(_has_all(one, other) for other in files)), None
        )
        names = [relative(places.root, one.path) for one in files]
        if whole is None:
            message = (
                f"also {' and '.join(names[1:])}, with other bytes, and a broker reads either: "
                "compare them, and move all but the right one away"
            )
            yield nothing(names[0], start, message)
            continue
        for one, name in zip(files, names, strict=True):
            if one is not whole:
                message = f"all of it is in {relative(places.root, whole.path)}, too"
                yield move("move-repeated", name, one.size, message)


def _has_all(one: ListedFile, other: ListedFile) -> bool:
    """Whether a file has the bytes of another, but for zeros at that one's end."""
    if one is other:
        return True
    with open_regular(one.path) as file, open_regular(other.path) as part:
        ended = False  # only zeros may follow
        while data := part.read(_PIECE):
            mine = b"" if ended else file.read(len(data))
            if data != mine:
                used = data.rstrip(b"\0")
                if mine[: len(used)] != used:
                    return False
                ended = True
    return True
