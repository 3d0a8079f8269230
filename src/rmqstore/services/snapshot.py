"""Snapshot: a copy of a store in use, which opens clean.

The log is copied up to an offset at which it, the queues and the index are on the disk; all other
files as they are. Then the copy is opened as after a crash, so that recovery removes units and
entries behind that offset, and closed. Until the copy is complete, its log directory has another
name too, so that nothing mistakes the remains of a crash for a store.

Source: ``store/DefaultMessageStore.java`` ``load``, ``recover``; RocketMQ has no snapshots.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rmqstore._core import Core, crc32
from rmqstore.base.arguments import wrong_value
from rmqstore.base.layout import (
    CHECKPOINT_BYTES,
    INDEX_RANGE,
    WATERMARK,
    WATERMARK_AT,
    WATERMARK_CRC,
    WATERMARK_MAGIC,
    WATERMARK_VERSION,
)
from rmqstore.base.syncing import make_directories, sync_file, sync_path
from rmqstore.directory.layout import LogPath, log_directories, surroundings, without_paths
from rmqstore.errors import IncompatibleStoreError, StoreCorruptError
from rmqstore.files import paths
from rmqstore.files.links import absolute, files_below, target_of
from rmqstore.files.regular import open_regular
from rmqstore.services.base import Ownership, Services
from rmqstore.types import Snapshot

if TYPE_CHECKING:
    from rmqstore.config.store_config import StoreConfig
    from rmqstore.directory.registry import TopicRegistry

__all__ = ["Snapshots"]

_NONE_MADE = "no snapshot is made of such a store"
_UNFINISHED = ".unfinished"
_MAKING_LOG = f"{paths.COMMIT_LOG}{_UNFINISHED}"
_FICLONE = 0x40049409
_NO_CLONE = frozenset(
    (errno.EXDEV, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EPERM, errno.ENOSYS)
)
_PIECE = 8 << 20
_TRIES = 5
_TRY_SECONDS = 0.01
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK

Progressed = Callable[[int, int], None]  # bytes so far, bytes in all
Filling = Literal["raise", "fill"]
Reuse = Callable[[Path, Path], bool]  # put a full log file in place without copying it, if possible


class Snapshots:
    """Snapshots of a store.

    ``settle(directory, config, log, on_corruption)`` opens a copy for writing, so that recovery
    removes units and entries behind the log's end, and closes it; its log is in a directory of its
    own.
    """

    def __init__(
        self,
        core: Core,
        ownership: Ownership,
        services: Services,
        topics: TopicRegistry,
        settle: Callable[[str, StoreConfig, LogPath, Filling], object],
    ) -> None:
        self._core = core
        self._ownership = ownership
        self._services = services
        self._topics = topics
        self._settle = settle

    def snapshot(self, directory: str | os.PathLike[str]) -> Snapshot:
        """Copy the store into a directory, while it is in use; the copy opens clean.

        The copy has every message that was acknowledged before the call, and may have some that
        were put meanwhile. It is on the disk when this returns. Puts and reads continue; only a put
        that creates a topic waits, until the log is on the disk. Files are shared with the store
        where the file system supports that (reflinks), else copied.

        With mode ``"r"`` the copy has the messages that a reader sees: after a crash, all that
        opening would recover; beside a live owner, all in the log by then. The owner's state in
        memory, such as the progress of consumers, is copied as far as the owner has written it.

        Parameters
        ----------
        directory : path-like
            Directory of the copy: created if missing, otherwise empty; a link stays, and leads to
            the copy. Until the copy is complete it is named ``<directory>.unfinished``, beside the
            target of a link; an error removes that, a kill leaves it, and it does not open as a
            store.

        Returns
        -------
        Snapshot
            ``path``, ``bytes`` and ``until``.

        Raises
        ------
        FileExistsError
            ``directory`` is not empty, or ``<directory>.unfinished`` exists.
        FileNotFoundError
            ``directory`` is, or lies behind, a link that leads nowhere.
        ValueError
            ``directory`` lies in the store, or is a mount point.
        StoreCorruptError
            The log is damaged: neither it nor its copy would open for writing.
        OSError
            The operating system refuses, for example as the disk is full.
        StoreClosedError, ForkedStoreError, StoreFailedError
            The store is not open here, or has failed.
        """
        return self.make(directory, lambda done, total: None)

    def make(
        self,
        directory: str | os.PathLike[str],
        progressed: Progressed,
        *,
        fill: bool = False,
        reuse: Reuse = lambda source, target: False,
    ) -> Snapshot:
        """Make a snapshot; ``progressed`` is called after each piece.

        ``fill``: the copy of a damaged log has fillers for its damage, whose bytes it keeps.
        ``reuse`` is asked for each log file that is full: it may put a file of the same bytes at
        its target. The copy is opened for writing, but full files do not change in that unless
        with ``fill``.
        """
        import shutil  # and with it lzma and bz2

        self._core.check_open()
        named = Path(absolute(directory))
        target = target_of(named)
        self._check_target(named, target)
        making = target.with_name(target.name + _UNFINISHED)
        make_directories(target.parent, sync_parent=False)
        try:
            making.mkdir()
        except FileExistsError as error:
            why = "a snapshot that was not finished, or is under way"
            raise FileExistsError(errno.EEXIST, why, str(making)) from error
        try:
            copy = _Copy(making, progressed, reuse)
            until = self._copy(copy)
            try:
                self._complete(making, "fill" if fill else "raise")
            except IncompatibleStoreError as error:
                why = self._of_original(str(error), making)
                raise IncompatibleStoreError(f"{why}; {_NONE_MADE}") from None
            except StoreCorruptError as error:
                path = self._of_original(error.path, making)
                why = f"{self._of_original(error.reason, making)}; {_NONE_MADE}"
                raise StoreCorruptError(path, error.offset, why) from None
            copy.name(target)
        except OSError as error:
            shutil.rmtree(making, ignore_errors=True)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not copy.total:
                if error.filename is None and error.errno is not None:
                    error.filename = str(copy.at)
                raise
            why = f"{os.strerror(error.errno)}: nothing of the snapshot is left; free {copy.total} "
            why += "bytes at most, or name a directory on another disk"
            raise OSError(error.errno, why, error.filename or str(copy.at)) from error
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
        return Snapshot(str(named), copy.done, until)

    def _of_original(self, text: str, making: Path) -> str:
        """Return a text about the copy with the store's own paths in it."""
        log = str(log_directories(self._core.path, self._core.config)[0])
        for name in (_MAKING_LOG, paths.COMMIT_LOG):
            text = text.replace(str(making / name), log)
        return text.replace(str(making), self._core.path).replace(_MAKING_LOG, paths.COMMIT_LOG)

    def _check_target(self, named: Path, target: Path) -> None:
        """Raise unless a snapshot can be made at a path, of which links lead to ``target``."""
        real = Path(os.path.realpath(target))
        if named.is_relative_to(self._core.path) or real.is_relative_to(
            os.path.realpath(self._core.path)
        ):
            raise wrong_value("directory", "outside the store", str(named))
        if (around := surroundings(named)) is not None:
            raise wrong_value("directory", f"outside {around}", str(named))
        if os.path.lexists(target):
            if os.path.ismount(target):
                raise wrong_value("directory", "no mount point, but may be in one", str(named))
            if next(target.iterdir(), None) is not None:  # NotADirectoryError, if it is none
                raise FileExistsError(errno.EEXIST, "is not empty", str(named))

    def _copy(self, copy: _Copy) -> int:
        """Copy every file of the store, of the log up to the offset returned."""
        self._ownership.check()
        self._services.save()
        root = Path(self._core.path)
        directories = log_directories(self._core.path, self._core.config)
        file_size = self._core.sizes()[0]
        copy.expect([*directories, root / paths.CONSUME_QUEUE, root / paths.INDEX])
        # The progress of consumers first: it must not be ahead of the log.
        if self._core.mode == "r":
            copy.tree(root, paths.CONFIG)
            page = _read_page(root)
            found = self._core.recovery()
            until: int = found["log_end"]
            for kind, start, _, _, reason, *_ in found["ranges"]:
                if kind == "damaged" and start >= until:  # the copy would not show it
                    path = directories[0] / paths.offset_file_name(start - start % file_size)
                    raise StoreCorruptError(path, start, f"{reason}; {_NONE_MADE}")
            copy.tree(root, paths.CONFIG, only=paths.TOPICS_JSON)  # with the log's newest topics
        else:
            with self._topics.lock:  # else a topic created now may have messages below the cut
                copy.tree(root, paths.CONFIG)
                self._core.flush()
                page, until = _watermark(root)
        # Held open, so that the copy has a log, whatever retention removes meanwhile.
        with contextlib.closing(_LastFile(directories, until, file_size)) as last:
            copy.file(root / paths.DELETED_TOPICS, copy.making / paths.DELETED_TOPICS)
            copy.write(paths.CHECKPOINT, page)
            copy.write(paths.ABORT, b"")
            # Recovery removes units ahead of the log: the sooner copied, the fewer.
            for name in (paths.INDEX, paths.CONSUME_QUEUE, paths.CONSUME_QUEUE_EXT):
                copy.tree(root, name)
            copy.drop_index_from(until)
            copy.log(directories, until, file_size, last)
        return until

    def _complete(self, making: Path, on_corruption: Filling) -> None:
        """Open the copy, for recovery to remove units behind the log's end, and close it."""
        import shutil

        has_index = next((making / paths.INDEX).glob("*"), None) is not None
        config = without_paths(self._core.config).replace(
            message_index_enable=has_index or self._core.config.message_index_enable,
            flush_disk_type="ASYNC_FLUSH",
        )
        log = LogPath(str(making / _MAKING_LOG), False)
        times = {one: one.stat() for one in (making / _MAKING_LOG).iterdir()}
        self._settle(str(making), config, log, on_corruption)
        # After a kill recovery writes the same bytes again: retention, and the next run of a
        # backup, go by the times of the store's files.
        for one, status in times.items():
            with contextlib.suppress(FileNotFoundError):
                os.utime(one, ns=(status.st_atime_ns, status.st_mtime_ns))
        # Index files that recovery rebuilt: the copy needs no old ones.
        shutil.rmtree(making / paths.QUARANTINE / paths.INDEX, ignore_errors=True)
        with contextlib.suppress(OSError):
            (making / paths.QUARANTINE).rmdir()


class _LastFile:
    """The last file of the log below ``until``, held open as long as it is needed."""

    def __init__(self, directories: list[Path], until: int, file_size: int) -> None:
        self.start = max(0, until - 1) // file_size * file_size
        self.fd = -1
        for directory in directories:
            with contextlib.suppress(FileNotFoundError):
                self.fd = os.open(directory / paths.offset_file_name(self.start), _OPEN_FLAGS)
                return

    def close(self) -> None:
        """Close the file."""
        if self.fd >= 0:
            os.close(self.fd)


class _Copy:
    """Copier of files into the unfinished directory."""

    def __init__(self, making: Path, progressed: Progressed, reuse: Reuse) -> None:
        self.making = making
        self._reuse = reuse
        self.at = making  # file being written
        self.done = 0
        self.total = 0
        self._progressed = progressed
        self._clones = True

    def expect(self, directories: list[Path]) -> None:
        """Add up the bytes to be copied."""
        for directory in directories:
            for path in files_below(directory):
                with contextlib.suppress(OSError):
                    status = path.stat()
                    self.total += min(status.st_size, status.st_blocks * 512)

    def tree(self, root: Path, name: str, only: str = "") -> None:
        """Copy the files of one of the store's directories whose names begin with ``only``.

        If the oldest files of a queue are removed meanwhile, the files before them are left out.
        """
        made: dict[Path, list[Path]] = {}
        for path in files_below(root / name):
            if not path.name.startswith(only) or path.name.endswith(".tmp"):
                continue
            target = self.making / path.relative_to(root)
            if self.file(path, target):
                made.setdefault(target.parent, []).append(target)
            elif paths.parse_offset_file_name(path.name) is not None:
                for before in made.pop(target.parent, []):
                    before.unlink()

    def drop_index_from(self, until: int) -> None:
        """Remove index files all of whose entries are behind ``until``."""
        for path in files_below(self.making / paths.INDEX):
            with path.open("rb") as file:
                head = file.read(INDEX_RANGE.size)
            if len(head) == INDEX_RANGE.size and INDEX_RANGE.unpack(head)[2] >= until:
                path.unlink()

    def log(self, directories: list[Path], until: int, file_size: int, last: _LastFile) -> None:
        """Copy the log below ``until``; each file has its full length, with zeros behind that.

        Retention removes files from the log's front meanwhile: files before a removed one are left
        out.
        """
        into = self.making / _MAKING_LOG
        into.mkdir()
        found: dict[int, Path] = {}
        for directory in directories:
            for path in files_below(directory):
                start = paths.parse_offset_file_name(path.name)
                if start is not None and start < until:
                    found.setdefault(start, path)
        made: list[Path] = []
        for start in sorted(found):
            target = into / paths.offset_file_name(start)
            if start == last.start and last.fd >= 0:
                continue
            full = start + file_size <= until
            if (full and self._reuse(found[start], target)) or self.file(
                found[start], target, stop=until - start, size=file_size
            ):
                made.append(target)
                continue
            while made:
                made.pop().unlink()
        if last.fd >= 0 and last.start < until:
            target = into / paths.offset_file_name(last.start)
            self._file(last.fd, target, stop=until - last.start, size=file_size)
        if until % file_size == 0:  # else 4.9.3 would continue before the blank at a file's end
            self.at = into / paths.offset_file_name(until)
            with self.at.open("wb", buffering=0) as file:
                file.truncate(file_size)
                sync_file(file.fileno(), file.name)

    def file(self, source: Path, target: Path, *, stop: int | None = None, size: int = 0) -> bool:
        """Copy a file with its holes and its time; ``False`` if it is gone.

        With ``stop`` only the bytes below it; then the file is extended to ``size`` bytes.
        """
        try:
            opened = open_regular(source)
        except FileNotFoundError:
            return False
        with opened:
            self._file(opened.fileno(), target, stop=stop, size=size)
        return True

    def _file(self, fd: int, target: Path, *, stop: int | None, size: int) -> None:
        """Copy an open file, as :meth:`file`."""
        self.at = target
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb", buffering=0) as into:
            status = os.fstat(fd)
            end = status.st_size if stop is None else min(stop, status.st_size)
            if not self._cloned(fd, into.fileno()):
                self._copied(fd, into.fileno(), end)
            else:
                self._more(min(end, status.st_blocks * 512))
            into.truncate(end)
            into.truncate(max(end, size))
            os.utime(into.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
            sync_file(into.fileno(), target)

    def _cloned(self, fd: int, into: int) -> bool:
        """Let the file system share the file's blocks; ``False`` if it cannot."""
        if not self._clones:
            return False
        try:
            fcntl.ioctl(into, _FICLONE, fd)
        except OSError as error:
            if error.errno not in _NO_CLONE:
                raise
            self._clones = False
        return self._clones

    def _copied(self, fd: int, into: int, end: int) -> None:
        """Copy the data of a file below ``end``."""
        for start, stop in _data(fd, end):
            at = start
            while at < stop:
                count = _copy_piece(fd, into, at, min(_PIECE, stop - at))
                if count == 0:
                    return
                at += count
                self._more(count)

    def _more(self, count: int) -> None:
        self.done += count
        self._progressed(self.done, max(self.done, self.total))

    def write(self, name: str, data: bytes) -> None:
        """Write a small file."""
        self.at = self.making / name
        with self.at.open("wb") as file:
            file.write(data)
            file.flush()
            sync_file(file.fileno(), file.name)

    def name(self, target: Path) -> None:
        """Give log and directory their final names, once all names within are on the disk."""
        (self.making / _MAKING_LOG).rename(self.making / paths.COMMIT_LOG)
        for directory, _, _ in os.walk(self.making):
            sync_path(directory)
        self.making.rename(target)
        sync_path(target.parent)


def _data(fd: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of data below ``end``; one range where holes are unknown."""
    at = 0
    while at < end:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
            stop = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                return
            start, stop = at, end
        if start >= end:
            return
        yield start, min(stop, end)
        at = stop


def _copy_piece(fd: int, into: int, at: int, count: int) -> int:
    """Copy bytes to the same offset, in the kernel if possible; return their number."""
    try:
        return os.copy_file_range(fd, into, count, at, at)
    except OSError as error:
        if error.errno not in _NO_CLONE:
            raise
    return os.pwrite(into, os.pread(fd, count, at), at)


def _read_page(root: Path) -> bytes:
    """Return the checkpoint, empty if there is none."""
    try:
        with open_regular(root / paths.CHECKPOINT) as file:
            return file.read(CHECKPOINT_BYTES)
    except FileNotFoundError:
        return b""


def _watermark(root: Path) -> tuple[bytes, int]:
    """Return the checkpoint, and the offset below which everything is durable.

    It may be read while it is written.
    """
    for _ in range(_TRIES):
        page = _read_page(root)
        mark = page[WATERMARK_AT : WATERMARK_AT + WATERMARK.size]
        if len(mark) == WATERMARK.size:
            magic, version, dispatched, _, checksum = WATERMARK.unpack(mark)
            if (magic, version) == (
                WATERMARK_MAGIC,
                WATERMARK_VERSION,
            ) and checksum == crc32(mark[:WATERMARK_CRC]):
                assert isinstance(dispatched, int)
                return page, dispatched
        time.sleep(_TRY_SECONDS)
    raise StoreCorruptError(
        str(root / paths.CHECKPOINT),
        WATERMARK_AT,
        "holds no watermark; flush or close the store to have it written, and try again",
    )
