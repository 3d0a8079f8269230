"""Files that a 4.9.3 broker maps at its start: names, lengths, and obstacles to loading.

Source: ``store/MappedFileQueue.java doLoad``, ``store/MappedFile.java init``,
``store/DefaultMessageStore.java loadConsumeQueue``, ``store/ConsumeQueueExt.java load``,
``store/index/IndexService.java load``, ``store/StoreCheckpoint.java``.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from struct import Struct
from typing import Literal

from rmqstore import _core
from rmqstore.config.file_sizes import java_keys, sizes_left_open
from rmqstore.config.store_config import StoreConfig
from rmqstore.files import paths
from rmqstore.files.regular import kind_of, not_regular, open_regular
from rmqstore.offline.findings import Finding

__all__ = [
    "FileSizes",
    "ListedFile",
    "listed",
    "load_findings",
    "numbers_at",
    "numbers_of",
    "relative",
]

_JAVA_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT_BITS, _LONG_BITS = 32, 64
_LENGTH_LINE = "{}\t{} length not matched message store config value, please check it manually"
_MOVE = "move it out of the directory"
_EXT_BYTES = StoreConfig.mapped_file_size_consume_queue_ext  # if no file shows its size
_COMPLETED = "opening the store to write here completes it"
_LAST_COMPLETED = f"{_COMPLETED}, unless queues or index name more of it: then put a copy back"
_COPY_BACK = "put a whole copy of it back; what is there can be read without it"
_NOWHERE = "a link that leads nowhere: mount its disk, or put back a copy"


@dataclass(frozen=True, slots=True)
class FileSizes:
    """Sizes of the files that a broker maps, in bytes."""

    log: int
    queue: int
    index: int
    ext: int  # 0: as the files are
    slots: int  # of the existing index files, as are the entries
    entries: int
    configured: dict[str, int]  # by field; the broker uses them, whatever the files are

    @classmethod
    def of(cls, in_force: StoreConfig, config: StoreConfig | None) -> FileSizes:
        """Return the sizes of an open store, or those set by the broker's configuration."""
        names = (
            "mapped_file_size_commit_log",
            "mapped_file_size_consume_queue",
            "mapped_file_size_consume_queue_ext",
            "max_hash_slot_num",
            "max_index_num",
        )
        named: dict[str, int] = {}
        if config is not None:
            left_open = sizes_left_open(config)
            named = {name: getattr(config, name) for name in names if name not in left_open}
        return cls(
            named.get(names[0], in_force.mapped_file_size_commit_log),
            named.get(names[1], in_force.mapped_file_size_consume_queue),
            in_force.index_file_bytes,
            named.get(names[2], 0),
            in_force.max_hash_slot_num,
            in_force.max_index_num,
            named,
        )

    def named(self, field: str) -> str:
        """Return the name of a configured field, else an empty text."""
        return field if field in self.configured else ""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """Directory entry, links followed; ``size`` is -1 if it cannot be examined."""

    name: str
    path: str
    size: int
    mode: int


def listed(directory: str | Path) -> list[ListedFile] | None:
    """Return a directory's entries by name; None if unreadable, as Java's listFiles()."""
    try:
        names = sorted(os.listdir(directory))  # noqa: PTH208 - names alone
    except OSError:
        return None
    found = []
    for name in names:
        path = os.path.join(directory, name)  # noqa: PTH118 - thousands of files
        try:
            status = os.stat(path)  # noqa: PTH116
        except FileNotFoundError:
            if os.path.lexists(path):
                found.append(ListedFile(name, path, -1, 0))
            continue  # else removed meanwhile
        except OSError:
            found.append(ListedFile(name, path, -1, 0))
            continue
        found.append(ListedFile(name, path, status.st_size, status.st_mode))
    return found


def relative(root: Path, path: str | Path) -> str:
    """Return a path relative to the store's directory, unchanged if outside it."""
    text = os.fspath(path)
    prefix = os.path.join(root, "")  # noqa: PTH118
    return text.removeprefix(prefix)


def load_findings(
    root: Path, directories: Iterable[Path], sizes: FileSizes, *, ext: bool | None
) -> Iterator[Finding]:
    """Yield obstacles to loading the store's files, in the broker's order.

    ``ext``: whether the broker reads ext files; ``None``: if there are any.
    """
    yield from _store_findings(root)
    field = "mapped_file_size_commit_log"
    shown: list[ListedFile] = []
    found = [
        finding
        for directory in directories
        for finding in _mapped(root, directory, sizes.log, sizes.named(field), shown, of_log=True)
    ]
    yield from _with_doubt(root, found, shown, sizes, field)
    shown = []
    found = list(_queue_findings(root, sizes, shown, ext=ext))
    yield from _with_doubt(root, found, shown, sizes, "mapped_file_size_consume_queue")
    yield from _index_findings(root, sizes)


def _with_doubt(
    root: Path, found: list[Finding], shown: list[ListedFile], sizes: FileSizes, field: str
) -> Iterator[Finding]:
    """Yield findings, with the doubt about a size known from a single file."""
    default = getattr(StoreConfig, field)
    if field in sizes.configured or len(shown) != 1 or shown[0].size == default:
        yield from found
        return
    doubt = Finding(
        "warn",
        "size",
        relative(root, shown[0].path),
        None,
        f"{shown[0].size:,} bytes, and no other file to compare with; a broker whose broker.conf "
        f"does not set {java_keys(field)} loads only {default:,}: give the file with -c or config=",
    )
    wrong = [one for one in found if (one.file, one.kind) == (doubt.file, "size")]
    if not wrong:
        yield doubt
    for one in found:
        yield replace(one, message=doubt.message) if one in wrong else one


def _store_findings(root: Path) -> Iterator[Finding]:
    """Yield obstacles among the entries of the store's own directory."""
    lines = {paths.LOCK: "Failed to initialize", paths.CHECKPOINT: "load exception"}
    for one in listed(root) or []:
        if one.name not in paths.STORE_ENTRIES:
            continue
        line = lines.get(one.name)
        if one.size < 0:
            yield (
                _to_nothing(one.name)
                if line is None
                else Finding("stop", "link", one.name, None, _NOWHERE, line=line)
            )
        elif line and not stat.S_ISREG(one.mode):
            message = f"{kind_of(one.mode)}, not a regular file: move it away"
            yield Finding("stop", one.name, one.name, None, message, line=line)
    if (what := not_regular(root / paths.ABORT)) is not None:
        yield Finding("warn", "foreign-file", paths.ABORT, None, f"{what}: move it away")
    elif os.path.lexists(root / paths.ABORT):
        message = "the store was not closed, or is in use: a broker recovers it"
        yield Finding("warn", "abort", paths.ABORT, None, message, line="last shutdown abnormally")


def _to_nothing(directory: str) -> Finding:
    """Return the finding for a directory that a broken link keeps from being made."""
    return Finding("lost", "link", directory, None, _NOWHERE, by_start=True)


def _mapped(
    root: Path,
    directory: str | Path,
    size: int,
    field: str,
    shown: list[ListedFile],
    *,
    of_log: bool = False,
) -> Iterator[Finding]:
    """Yield obstacles to loading a directory of mapped files.

    ``field`` names a configured size. Appends the files that show a size to ``shown``.
    """
    entries = listed(directory) or []
    shown += (
        one
        for one in entries
        if one.size > 0
        and stat.S_ISREG(one.mode)
        and paths.parse_offset_file_name(one.name) is not None
    )
    lengths = Counter(one.size for one in entries)
    usual = lengths.most_common(1)[0][0] if lengths else size
    for at, one in enumerate(entries):
        cure = _COMPLETED
        if of_log:
            is_last = all(later.size <= 0 for later in entries[at + 1 :])
            cure = _LAST_COMPLETED if is_last else _COPY_BACK
        finding = _mapped_file(root, one, size, cure)
        if finding is None:
            continue
        if field and one.size == usual and finding.kind in ("size", "short-file") and usual > 0:
            finding = replace(
                finding,
                kind="config-size",
                message=f"{one.size} bytes, and {java_keys(field)} is {size}: configure the size "
                "of the files",
            )
        yield finding
        if finding.severity == "stop":
            return  # the broker stops here


def _mapped_file(root: Path, one: ListedFile, size: int, cure: str) -> Finding | None:
    """Return the obstacle to loading a file, if any; ``cure`` is for one that is too short."""
    line: str | None = _LENGTH_LINE.format(one.path, max(one.size, 0))
    regular = stat.S_ISREG(one.mode)
    severity: Literal["stop", "warn"] = "stop"
    kind = "foreign-file"
    if one.size == size and regular:
        line = None
        if _java_number(one.name, _LONG_BITS) is None:
            line, message = "load exception", _core.foreign_text(one.name)
        elif paths.parse_offset_file_name(one.name) is None or int(one.name) % size:
            severity, message = "warn", f"the name is that of no file of {size} bytes: {_MOVE}"
        else:
            return None
    elif one.size < 0:
        kind, message = "link", _NOWHERE
    elif paths.parse_offset_file_name(one.name) is None or not regular:
        message = (
            _core.foreign_text(one.name)
            if paths.parse_offset_file_name(one.name) is None
            else f"{kind_of(one.mode)}, not a regular file; {_MOVE}"
        )
        if one.size == size:
            line = f"load file {one.path} error"
    elif one.size == 0:
        kind = "empty-file"
        message = f"empty, not of {size} bytes: {cure}"
    elif one.size < size:
        kind = "short-file"
        message = f"{one.size} bytes, not {size}: {cure}"
    else:
        kind = "size"
        message = f"{one.size} bytes, not {size}: save and cut what is behind (truncate -s {size})"
    return Finding(severity, kind, relative(root, one.path), None, message, line=line)


def _java_number(name: str, bits: int) -> int | None:
    """Parse a name as Java's parseInt or parseLong; None if it is no such number."""
    if _JAVA_NUMBER.fullmatch(name) is None or len(name) > bits:
        return None
    number = int(name)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def _queue_findings(
    root: Path, sizes: FileSizes, shown: list[ListedFile], *, ext: bool | None
) -> Iterator[Finding]:
    """Yield obstacles to loading the consume queues; ``shown`` as in :func:`_mapped`."""
    base = str(root / paths.CONSUME_QUEUE)
    queue_field = "mapped_file_size_consume_queue"
    ext_field = "mapped_file_size_consume_queue_ext"
    for topic in listed(base) or []:
        if topic.size < 0:
            yield _to_nothing(relative(root, topic.path))
        for queue in listed(topic.path) or []:
            number = _java_number(queue.name, _INT_BITS)
            file = relative(root, queue.path)
            if queue.size < 0:
                yield _to_nothing(file)
                continue
            if number is None:
                message = "no queue: a broker ignores it"
                yield Finding("warn", "foreign-file", file, None, message)
                continue
            if paths.parse_queue_id(queue.name) is None:
                message = f"read as the queue {number}: {_MOVE}"
                yield Finding("warn", "foreign-file", file, None, message)
            if not stat.S_ISDIR(queue.mode):
                message = f"no directory, so that the queue takes no message: {_MOVE}"
                yield Finding("warn", "foreign-file", file, None, message)
                continue
            directory = os.path.join(topic.path, str(number))  # noqa: PTH118
            yield from _mapped(root, directory, sizes.queue, sizes.named(queue_field), shown)
            if ext is False:
                continue
            extra = root / paths.CONSUME_QUEUE_EXT / topic.name / str(number)
            found = listed(extra)
            if found:
                lengths = Counter(one.size for one in found if one.size > 0)
                usual = lengths.most_common(1)[0][0] if lengths else _EXT_BYTES
                yield from _mapped(root, extra, sizes.ext or usual, sizes.named(ext_field), [])


def _index_findings(root: Path, sizes: FileSizes) -> Iterator[Finding]:
    """Yield findings on index files; none stops a broker."""
    size = sizes.index
    differing = [
        f"{java_keys(field)} is {sizes.configured[field]}, and the files have {now}"
        for field, now in (("max_hash_slot_num", sizes.slots), ("max_index_num", sizes.entries))
        if sizes.configured.get(field, now) != now
    ]
    for one in listed(root / paths.INDEX) or []:
        file = relative(root, one.path)
        line = f"load file {one.path} error"
        if _java_number(one.name, _LONG_BITS) is None:
            message = f"a foreign file, passed over: {_MOVE}"
            yield Finding("warn", "foreign-file", file, None, message, line=line)
        elif not stat.S_ISREG(one.mode):
            message = f"no file: the index files after it are not loaded: {_MOVE}"
            yield Finding("warn", "foreign-file", file, None, message, line=line)
        elif differing and one.size == size:
            message = (
                f"{'; '.join(differing)}: a broker maps the file by its own sizes, finds wrong "
                "keys or none, and writes among them: configure the sizes of the files"
            )
            yield Finding("lost", "config-size", file, None, message, by_start=True)
        elif one.size != size:
            kind = "empty-file" if one.size == 0 else "size"
            message = (
                f"{one.size} bytes, not {size}: a broker maps it as one of {size}, and finds wrong "
                "keys or none; opening the store to write here makes it anew"
            )
            yield Finding("warn", kind, file, None, message)


def numbers_at(fd: int, form: Struct, at: int) -> tuple[int, ...]:
    """Read numbers at an offset; zeros beyond the end."""
    return form.unpack(os.pread(fd, form.size, at).ljust(form.size, b"\0"))


def numbers_of(path: str | Path, form: Struct, at: int = 0) -> tuple[int, ...]:
    """Read numbers of a file; zeros if it is unreadable."""
    try:
        with open_regular(path) as file:
            return numbers_at(file.fileno(), form, at)
    except OSError:
        return form.unpack(bytes(form.size))
