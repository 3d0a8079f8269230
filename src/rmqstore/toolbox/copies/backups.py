"""Backups: copies of a store with a manifest of sums, which later runs bring up to date.

A backup is a store of its own with one file more, the manifest. A run makes the whole directory
anew beside the old one, with hard links to log files that are full and unchanged, writes the
manifest last, and exchanges the two: until then the old state is untouched.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rmqstore import opening
from rmqstore.base.arguments import wrong_value
from rmqstore.base.syncing import make_directories, sync_file, sync_path
from rmqstore.errors import StoreCorruptError, StoreLockedError, StoreNotFoundError
from rmqstore.files import paths
from rmqstore.files.links import absolute, files_below, target_of
from rmqstore.files.regular import open_regular

if TYPE_CHECKING:
    from rmqstore.config.store_config import StoreConfig
    from rmqstore.services.snapshot import Progressed
    from rmqstore.store import MessageStore

__all__ = ["MANIFEST", "BackupCheck", "BackupFile", "backup", "backup_of", "verify_backup"]

MANIFEST = "rmqstore-backup.json"
_VERSION = 1
_MANIFEST_MOST = 1 << 30  # bytes that are read
_NEXT, _PARTS, _OLD = ".next", ".parts", ".old"
_UNFINISHED = ".unfinished"  # of a snapshot
_PIECE = 1 << 20
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


@dataclass(frozen=True, slots=True)
class BackupFile:
    """File of a backup.

    Attributes
    ----------
    file : str
        Path within the store.
    bytes : int
    xxh3 : str
        Its 64-bit XXH3 sum in hexadecimal, as ``xxhsum -H3`` prints it.
    copied : bool
        Copied by this run; else the backup had it.
    """

    file: str
    bytes: int
    xxh3: str
    copied: bool


@dataclass(frozen=True, slots=True)
class BackupCheck:
    """File of a backup, compared with the manifest.

    Attributes
    ----------
    file : str
        Path within the backup.
    bytes : int
        Present length; 0 if it is missing.
    xxh3 : str
        Present sum; empty if it is missing, or not in the manifest.
    problem : {"differs", "missing", "extra"} or None
        None: as the manifest has it. Extra: not in the manifest.
    """

    file: str
    bytes: int
    xxh3: str
    problem: Literal["differs", "missing", "extra"] | None


@dataclass(frozen=True)
class _FileEntry:
    file: str
    bytes: int
    xxh3: str
    mtime_ns: int


def backup(
    path: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    config: StoreConfig | str | os.PathLike[str] | None = None,
) -> list[BackupFile]:
    """Bring a backup of a store up to date, or make the first one.

    The backup opens clean, here and in a 4.9.3 broker, and has what had come into the log when the
    call began. Log files that are full and, by size and time, as the manifest has them are kept;
    all others are copied. What retention has removed from the store goes from the backup too.

    Parameters
    ----------
    path : path-like
        Directory of the store; it may be in use.
    directory : path-like
        Directory of the backup: a backup of this store, an empty directory, or none. While a run
        lasts, ``<directory>.next`` and ``<directory>.parts`` are beside it.
    config : StoreConfig or path of a broker.conf, optional
        As for :func:`rmqstore.open`.

    Returns
    -------
    list of BackupFile
        All files of the backup, in order of their names.

    Raises
    ------
    FileExistsError
        ``directory`` is not empty, and no backup.
    ValueError
        ``directory`` is a backup of another store, lies in a store, or is a mount point.
    StoreLockedError
        Another run is under way.
    StoreCorruptError
        The log is damaged, or the manifest is; the backup stays as it was.
    OSError
        For example, the disk is full; the backup stays as it was.
    StoreNotFoundError, IncompatibleStoreError
        As for :func:`rmqstore.open`.

    Notes
    -----
    A run that was killed is continued by the next one: it keeps log files whose bytes are those of
    the store.
    """
    with opening.open(path, config=config) as store:
        return backup_of(store, directory)


def backup_of(
    store: MessageStore,
    directory: str | os.PathLike[str],
    progressed: Progressed | None = None,
) -> list[BackupFile]:
    """Return :func:`backup` of an open store; ``progressed`` gets bytes so far, and in all."""
    target = target_of(Path(absolute(directory)))
    _restore_exchange(target)
    if target.is_dir() and os.path.ismount(target):
        raise wrong_value("directory", "no mount point, but may be in one", str(target))
    if target.exists() and not (target / MANIFEST).exists() and next(target.iterdir(), None):
        raise FileExistsError(errno.EEXIST, "is not empty, and no backup", str(target))
    with _locked(target, store.path):
        known: dict[str, _FileEntry] = {}
        if (target / MANIFEST).exists():
            origin, known = _load(target)
            if os.path.realpath(origin) != os.path.realpath(store.path):
                raise wrong_value("directory", f"a backup of {store.path}", f"one of {origin}")
        return _BackupRun(store, target, known).make(progressed or (lambda done, total: None))


class _BackupRun:
    """One run: the next state of a backup is made, and takes the place of the last one."""

    def __init__(self, store: MessageStore, target: Path, known: dict[str, _FileEntry]) -> None:
        self._store = store
        self._target = target
        self._known = known
        self._next = target.with_name(target.name + _NEXT)
        self._parts = target.with_name(target.name + _PARTS)
        self._kept: dict[str, _FileEntry] = {}  # linked from the last state

    def make(self, progressed: Progressed) -> list[BackupFile]:
        self._gather_parts()
        self._store.snapshots.make(self._next, progressed, reuse=self._reuse)
        try:
            entries = self._entries()
            _save(self._next, self._store.path, entries)
            self._exchange()
        except BaseException:
            # Once they are exchanged, this is the old state.
            shutil.rmtree(self._next, ignore_errors=True)
            raise
        self._remove_old()
        return [BackupFile(one.file, one.bytes, one.xxh3, one.file not in self._kept)
                for one in entries]  # fmt: skip

    def _remove_old(self) -> None:
        for left in (self._next, self._parts):
            shutil.rmtree(left, ignore_errors=True)

    def _gather_parts(self) -> None:
        """Keep the log files of a run that was killed, and remove the rest of it."""
        unfinished = self._next.with_name(self._next.name + _UNFINISHED)
        for left in (unfinished, self._next):
            for name in (paths.COMMIT_LOG + _UNFINISHED, paths.COMMIT_LOG):
                for file in files_below(left / name):
                    if paths.parse_offset_file_name(file.name) is not None:
                        self._parts.mkdir(exist_ok=True)
                        file.replace(self._parts / file.name)
            if left.exists():
                shutil.rmtree(left)

    def _reuse(self, source: Path, target: Path) -> bool:
        """Link a full log file from the last state, or from a run that was killed."""
        name = f"{paths.COMMIT_LOG}/{source.name}"
        entry = self._known.get(name)
        try:
            status = source.stat()
            if entry is not None and (entry.bytes, entry.mtime_ns) == _stamp(status):
                have = self._target / name
                if _stamp(have.stat()) == _stamp(status):
                    os.link(have, target)
                    self._kept[name] = entry
                    return True
            have = self._parts / source.name
            # A crash of the machine may have lost bytes of a file that has its length and time.
            if _stamp(have.stat()) == _stamp(status) and _is_same(source, have):
                have.replace(target)
                return True
        except OSError:  # gone, or the file system has no hard links: copied instead
            with contextlib.suppress(OSError):
                target.unlink()
            self._kept.pop(name, None)
        return False

    def _entries(self) -> list[_FileEntry]:
        """Return an entry for each file of the next state; those kept are not read."""
        files = {str(one.relative_to(self._next)): one for one in files_below(self._next)}
        fresh = [name for name in files if name not in self._kept]
        sums = dict(zip(fresh, _sums(files[name] for name in fresh), strict=True))
        found = []
        for name, file in sorted(files.items()):
            if name in self._kept:
                found.append(self._kept[name])
            else:
                size, mtime_ns = _stamp(file.stat())
                found.append(_FileEntry(name, size, sums[name], mtime_ns))
        return found

    def _exchange(self) -> None:
        """Put the next state in the place of the last one, which then has its name."""
        if not _exchanged(self._next, self._target):
            old = self._target.with_name(self._target.name + _OLD)
            self._target.rename(old)
            self._next.rename(self._target)
            sync_path(self._target.parent)
            shutil.rmtree(old, ignore_errors=True)
        sync_path(self._target.parent)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two directories in one step; False if the file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    names = (os.fsencode(one), os.fsencode(other))
    if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(other))


def _restore_exchange(target: Path) -> None:
    """Undo an exchange that was killed half-way, where it takes two steps."""
    old = target.with_name(target.name + _OLD)
    if (old / MANIFEST).exists() and not target.exists():
        old.rename(target)


@contextlib.contextmanager
def _locked(target: Path, store: str) -> Iterator[None]:
    """Hold the backup's directory, which is made if it is missing, against other runs."""
    if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(store)):
        raise wrong_value("directory", "outside the store", str(target))
    made = not target.exists()
    make_directories(target, sync_parent=False)
    descriptor = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreLockedError(f"{target}: another run of this backup is under way") from None
        yield
    except BaseException:
        if made:
            with contextlib.suppress(OSError):
                target.rmdir()
        raise
    finally:
        os.close(descriptor)


def verify_backup(
    directory: str | os.PathLike[str],
    progressed: Progressed | None = None,
) -> list[BackupCheck]:
    """Read all files of a backup, and compare them with its manifest.

    Parameters
    ----------
    directory : path-like
        Directory of the backup.
    progressed : callable, optional
        Called with the bytes read so far, and those of the manifest, from several threads.

    Returns
    -------
    list of BackupCheck
        Each file of the manifest and of the directory, in order of their names.

    Raises
    ------
    StoreNotFoundError
        There is no manifest.
    StoreCorruptError
        The manifest is damaged.
    OSError
        A file cannot be read.
    """
    root = Path(directory)
    _, known = _load(root)
    there = {str(one.relative_to(root)): one for one in files_below(root)}
    there.pop(MANIFEST, None)
    total, done = sum(one.bytes for one in known.values()), 0

    def count(size: int) -> None:
        nonlocal done
        done += size
        if progressed is not None:
            progressed(done, total)

    wanted = [name for name in known if name in there]
    sums = dict(zip(wanted, _sums((there[name] for name in wanted), count), strict=True))
    found = []
    for name in sorted({*known, *there}):
        if name not in known:
            found.append(BackupCheck(name, there[name].stat().st_size, "", "extra"))
        elif name not in there:
            found.append(BackupCheck(name, 0, "", "missing"))
        else:
            size = there[name].stat().st_size
            same = (size, sums[name]) == (known[name].bytes, known[name].xxh3)
            found.append(BackupCheck(name, size, sums[name], None if same else "differs"))
    return found


def _sums(files: Iterable[Path], count: Callable[[int], None] = lambda size: None) -> list[str]:
    """Return the sums of files, by threads."""
    stopped = threading.Event()
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        return list(pool.map(lambda one: _sum(one, count, stopped), files))
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)


def _sum(path: Path, count: Callable[[int], None], stopped: threading.Event) -> str:
    from xxhash import xxh3_64

    state = xxh3_64()
    with open_regular(path) as file:
        buffer = bytearray(_PIECE)
        view = memoryview(buffer)
        while not stopped.is_set() and (size := os.readv(file.fileno(), [buffer])):
            state.update(view[:size])
            count(size)
    return str(state.hexdigest())


def _is_same(one: Path, other: Path) -> bool:
    """Whether two files have the same bytes."""
    with open_regular(one) as left, open_regular(other) as right:
        while True:
            data = left.read(_PIECE)
            if data != right.read(_PIECE):
                return False
            if not data:
                return True


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _digest(content: Any) -> str:
    from xxhash import xxh3_64_hexdigest

    return str(xxh3_64_hexdigest(json.dumps(content, sort_keys=True).encode()))


def _save(root: Path, store: str, entries: Iterable[_FileEntry]) -> None:
    """Write the manifest of a directory that is not in its place yet."""
    content = {"version": _VERSION, "store": store, "files": [asdict(one) for one in entries]}
    with (root / MANIFEST).open("w", encoding="ascii") as file:
        json.dump({**content, "xxh3": _digest(content)}, file, indent=1)
        file.flush()
        sync_file(file.fileno(), file.name)
    sync_path(root)


def _load(root: Path) -> tuple[str, dict[str, _FileEntry]]:
    """Return the path of the store that a backup is of, and its files by name."""
    path = root / MANIFEST
    try:
        with open_regular(path) as file:
            data = file.read(_MANIFEST_MOST)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreNotFoundError(f"{root}: no backup: there is no {MANIFEST} in it") from None
    try:
        content = json.loads(data)
        if content.pop("xxh3") != _digest(content):
            raise ValueError("its sum is wrong")
        if content["version"] != _VERSION:
            raise ValueError(f"its version is {content['version']!r}, {_VERSION} is known")
        entries = [_FileEntry(**one) for one in content["files"]]
        return str(content["store"]), {one.file: one for one in entries}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"the manifest is damaged ({error}); move the directory away, and make a new backup"
        raise StoreCorruptError(path, 0, why) from None
