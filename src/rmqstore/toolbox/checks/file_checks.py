"""Checks of a store's files that need no open store: access, links, names, checkpoint, ``.bak``."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.base import layout
from rmqstore.base.times import format_millis
from rmqstore.brokerfiles import fastjson
from rmqstore.brokerfiles.configfile import MAX_BYTES
from rmqstore.directory.lock_owner import LockOwner
from rmqstore.directory.registry import check_deleted_topics
from rmqstore.errors import StoreCorruptError
from rmqstore.files import paths
from rmqstore.files.links import broken_link
from rmqstore.files.newer import find_newer
from rmqstore.files.regular import kind_of, open_regular
from rmqstore.offline.findings import Finding
from rmqstore.offline.start_files import listed, relative
from rmqstore.toolbox.checks.next_command import command_line

__all__ = ["Tree", "file_findings", "tree_of"]

_OF_FILE = stat.S_IRUSR | stat.S_IWUSR
_DEPTH = 8  # directories within each other: topic and queue are at 3
_AHEAD_MS = 60_000  # of this machine's clock
_BROKER_TIMES = 5 * 8  # bytes of a checkpoint: three times, in RocketMQ 5 five
_QUARANTINED = (paths.QUARANTINE, "rmqstore-repair-")


@dataclass
class Tree:
    """Entries of a store's directory and of its log's, links followed.

    Attributes
    ----------
    files : int
        Number of regular files.
    saved : dict of str to (int, int)
        Directories in which recovery or a repair has saved files: their number and size.
    broken : list of (str, str)
        Broken links, each with its error text.
    unread : dict of str to str
        Entries that this process may not read, with the reason.
    closed : list of (str, str)
        Entries that the store's owner may not use, as those, by their mode.
    """

    files: int = 0
    saved: dict[str, tuple[int, int]] = field(default_factory=dict)
    broken: list[tuple[str, str]] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    closed: list[tuple[str, str]] = field(default_factory=list)
    seen: set[tuple[int, int]] = field(default_factory=set)  # directories: device and inode


def tree_of(root: Path, log: Collection[Path]) -> Tree:
    """Examine every entry of a store that a broker uses, and of its log's directories."""
    found = Tree()
    try:
        owner = root.stat()
    except OSError:
        return found
    for one in [root, *log]:
        _examine(root, one, owner, found, 0)
    return found


def _examine(root: Path, directory: Path, owner: os.stat_result, found: Tree, depth: int) -> None:
    """Examine a directory's entries."""
    try:
        status = directory.stat()
        if (status.st_dev, status.st_ino) in found.seen or depth > _DEPTH:
            return
        found.seen.add((status.st_dev, status.st_ino))
        entries = sorted(os.scandir(directory), key=lambda one: one.name)
    except OSError as error:
        found.unread.setdefault(relative(root, directory), error.strerror or str(error))
        return
    for entry in entries:
        if depth == 0 and directory == root and not _belongs(entry.name):
            continue
        try:
            status = entry.stat()
        except OSError as error:
            if entry.is_symlink():
                found.broken.append((relative(root, entry.path), broken_link(entry.path) or ""))
            elif not isinstance(error, FileNotFoundError):  # else removed meanwhile
                found.unread[relative(root, entry.path)] = error.strerror or str(error)
            continue
        if stat.S_ISDIR(status.st_mode):
            if depth == 0 and entry.name.startswith(_QUARANTINED):
                found.saved[entry.name] = _count_saved(Path(entry.path))
                continue
            if _is_open(root, entry.path, status, owner, found):
                _examine(root, Path(entry.path), owner, found, depth + 1)
        elif stat.S_ISREG(status.st_mode):
            found.files += 1
            _is_open(root, entry.path, status, owner, found)


def _belongs(name: str) -> bool:
    return name in paths.STORE_ENTRIES or name.startswith(_QUARANTINED)


def _count_saved(directory: Path) -> tuple[int, int]:
    """Return the number of files in a directory, and their size."""
    count = size = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                size += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118
            except OSError:
                continue
            count += 1
    return count, size


def _is_open(
    root: Path, path: str, status: os.stat_result, owner: os.stat_result, found: Tree
) -> bool:
    """Note an entry that this process may not read, or the store's owner may not use."""
    directory = stat.S_ISDIR(status.st_mode)
    if not os.access(path, os.R_OK | (os.X_OK if directory else 0)):
        found.unread[relative(root, path)] = "this user may not read it"
        return False
    if reason := _closed(status, owner, stat.S_IRWXU if directory else _OF_FILE):
        found.closed.append((relative(root, path), reason))
    return True


def _closed(status: os.stat_result, owner: os.stat_result, bits: int) -> str | None:
    """Return why the store's owner cannot use an entry."""
    if status.st_mode & bits != bits and status.st_uid == owner.st_uid:
        return f"its mode is {stat.filemode(status.st_mode)}"
    if owner.st_uid not in (status.st_uid, 0):
        of_group = status.st_gid == owner.st_gid and status.st_mode & bits >> 3 == bits >> 3
        if not of_group and status.st_mode & bits >> 6 != bits >> 6:
            return (
                f"it belongs to user {status.st_uid}, the store to user {owner.st_uid}, and its "
                f"mode is {stat.filemode(status.st_mode)}"
            )
    return None


def file_findings(
    root: Path, tree: Tree, owner: LockOwner | None, reported: Collection[str], newest: int
) -> Iterator[Finding]:
    """Yield findings on names, access, links and small files.

    ``reported`` names files with one already, ``newest`` is the latest store time known.
    """
    for file, reason in tree.broken:
        if file not in reported:
            yield Finding("lost", "link", file, None, f"{reason}: mount its disk, or remove it")
    for file, reason in [*tree.unread.items(), *tree.closed]:
        yield Finding(
            "stop" if file in tree.unread else "warn",
            "permission",
            file,
            None,
            f"{reason}: a broker run by the store's owner needs to read and to write it",
            line=f"load file {root / file} error",
        )
    yield from _foreign(root)
    yield from _backups(root, reported)
    yield from _deleted(root)
    if owner is not None:
        yield Finding(
            "warn", "lock", paths.LOCK, None, f"the store is in use by {owner}",
            line="Lock failed,MQ already started",
        )  # fmt: skip
    if paths.CHECKPOINT not in reported:
        yield from _checkpoint(root, newest, in_use=owner is not None)
    yield from _saved(root, tree)


def _saved(root: Path, tree: Tree) -> Iterator[Finding]:
    """Yield notes on the files saved by recoveries and repairs, with the command for each."""
    for name, (count, size) in sorted(tree.saved.items()):
        if count:
            if name == paths.QUARANTINE:
                command, use = command_line("restore", os.fspath(root)), "lists them"
            else:
                command = command_line("repair", os.fspath(root), ("--undo", name))
                use = "puts them back"
            yield Finding(
                "warn", "quarantine", name, None,
                f"{count:,} file{'' if count == 1 else 's'}, {size:,} bytes, taken out of the "
                f"store: '{command}' {use}",
            )  # fmt: skip


def newer_findings(root: Path) -> Iterator[Finding]:
    """Yield findings on files of RocketMQ 5."""
    for newer in find_newer(os.fspath(root)):
        yield Finding("warn", "newer-format", newer.place, None, str(newer))


def _foreign(root: Path) -> Iterator[Finding]:
    """Yield entries that are no directory where one is due: a broker ignores them, or cannot."""
    for name in (paths.CONSUME_QUEUE, paths.CONSUME_QUEUE_EXT, paths.INDEX, paths.CONFIG):
        try:
            mode = (root / name).stat().st_mode
        except OSError:
            continue
        if not stat.S_ISDIR(mode):
            message = f"{kind_of(mode)}, not a directory: move it away"
            yield Finding("lost", "foreign-file", name, None, message, by_start=True)
    for name in (paths.CONSUME_QUEUE, paths.CONSUME_QUEUE_EXT):
        for one in listed(root / name) or []:
            if one.size >= 0 and not stat.S_ISDIR(one.mode):
                message = f"{kind_of(one.mode)} among the topics: a broker ignores it"
                yield Finding("warn", "foreign-file", relative(root, one.path), None, message)


def _backups(root: Path, reported: Collection[str]) -> Iterator[Finding]:
    """Yield the ``.bak`` files that a broker could not read where it needed them."""
    for one in listed(root / paths.CONFIG) or []:
        main = f"{paths.CONFIG}/{one.name.removesuffix('.bak')}"
        if not one.name.endswith(".json.bak") or main in reported or one.size == 0:
            continue
        file = f"{paths.CONFIG}/{one.name}"
        if not stat.S_ISREG(one.mode):
            if one.size >= 0:
                message = f"{kind_of(one.mode)}, not a regular file: move it away"
                yield Finding("warn", "json", file, None, message)
            continue
        try:
            if one.size > MAX_BYTES:
                raise ValueError(f"{one.size:,} bytes, of at most {MAX_BYTES:,}")
            with open_regular(one.path) as opened:
                data = opened.read(one.size)
            fastjson.loads(data.decode("utf-8", "surrogateescape").strip("\ufeff \t\r\n"))
        except FileNotFoundError:
            continue
        except (ValueError, OSError) as error:
            message = f"no JSON ({error}); a broker reads it only if {main} is torn"
            yield Finding("warn", "json", file, None, message)


def _deleted(root: Path) -> Iterator[Finding]:
    try:
        check_deleted_topics(os.fspath(root))
    except (StoreCorruptError, OSError) as error:
        reason = error.reason if isinstance(error, StoreCorruptError) else str(error)
        message = f"{reason}; topics deleted here are shown again until then"
        yield Finding("lost", "json", paths.DELETED_TOPICS, None, message)


def _checkpoint(root: Path, newest: int, *, in_use: bool) -> Iterator[Finding]:
    """Yield what a checkpoint's length, times and other bytes show."""
    path = root / paths.CHECKPOINT
    closed = not in_use and not os.path.lexists(root / paths.ABORT)

    def finding(message: str, offset: int | None = None) -> Finding:
        return Finding("warn", "checkpoint", paths.CHECKPOINT, offset, message)

    try:
        with open_regular(path) as file:
            data = file.read(layout.CHECKPOINT_BYTES + 1)
    except FileNotFoundError:
        if closed and not os.path.lexists(path):
            yield finding("missing from a closed store: a broker makes it anew")
        return
    except OSError as error:
        yield finding(f"cannot be read: {error.strerror or error}")
        return
    if in_use:
        return
    if len(data) != layout.CHECKPOINT_BYTES:
        size = f"{len(data)}" if len(data) < layout.CHECKPOINT_BYTES else "more"
        message = f"{size} bytes, not {layout.CHECKPOINT_BYTES}: a broker takes what lacks as zeros"
        yield finding(message)
    times = layout.CHECKPOINT_TIMES.unpack_from(data.ljust(layout.CHECKPOINT_BYTES, b"\0"))
    latest = max(newest, time.time() * 1000) + _AHEAD_MS
    for name, at, millis in zip(("log", "queues", "index"), (0, 8, 16), times, strict=True):
        if not 0 <= millis <= latest:
            shown = format_millis(millis) if 0 <= millis < 1 << 48 else str(millis)
            yield finding(f"the time of the {name} is {shown}", at)
    data = data[: layout.CHECKPOINT_BYTES]
    if data != known_of_checkpoint(data):
        yield finding("bytes that neither a broker nor rmqstore writes")


def known_of_checkpoint(data: bytes) -> bytes:
    """Return a checkpoint with zeros for the bytes that neither a broker nor rmqstore writes."""
    low, high = layout.WATERMARK_AT, layout.WATERMARK_AT + layout.WATERMARK_BYTES
    known = data[:_BROKER_TIMES].ljust(low, b"\0") + data[low:high]
    return known.ljust(layout.CHECKPOINT_BYTES, b"\0")[: len(data)]
