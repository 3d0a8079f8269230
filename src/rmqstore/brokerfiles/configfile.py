"""A JSON file of the broker and its ``.bak``: read either, replace atomically.

Source: ``common/ConfigManager.java``, ``common/MixAll.java`` ``string2File``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from rmqstore.base.syncing import SyncError, sync_file
from rmqstore.brokerfiles import fastjson
from rmqstore.errors import StoreCorruptError
from rmqstore.files.links import absolute, broken_link, target_of
from rmqstore.files.regular import kind_of, open_regular

__all__ = ["MAX_BYTES", "ConfigFile", "ReplacedError"]

MAX_BYTES = 64 << 20  # some hundred thousand topics; parsing takes several times as much
_PIECE = 1 << 20
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
_NO_HARD_LINKS = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS, errno.EXDEV))

T = TypeVar("T")

_SETTLED_NS = 2_000_000_000  # a file changed more recently may change again with the same time


class ReplacedError(SyncError):
    """The file was replaced, but its name could not be synced: a power cut may undo that."""


class ConfigFile:
    """A JSON file that a broker may also read and write; ``.bak`` has the previous contents."""

    path: Path
    backup: Path
    loaded_from: Path | None  # the file that the last load used
    check_owned: Callable[[], object]  # raises if the store may no longer be written here

    def __init__(
        self, path: str | os.PathLike[str], check_owned: Callable[[], object] = lambda: None
    ) -> None:
        self.check_owned = check_owned
        self.path = Path(path)
        self.backup = self.path.with_name(self.path.name + ".bak")
        self.loaded_from = None
        self._main_is_good = False  # known to parse: worth keeping as .bak
        self._loaded: tuple[tuple[int, ...] | None, ...] | None = None  # identities of both files

    def is_current(self) -> bool:
        """Whether both files are unchanged since the last load."""
        return self._loaded is not None and self._loaded == self._files()

    def _files(self) -> tuple[tuple[int, ...] | None, ...] | None:
        """Return the identities of both files, ``None`` while their times may hide a change."""
        found: list[tuple[int, ...] | None] = []
        for path in (self.path, self.backup):
            try:
                status = path.stat()
            except OSError:
                found.append(None)
                continue
            changed = max(status.st_mtime_ns, status.st_ctime_ns)
            if abs(time.time_ns() - changed) < _SETTLED_NS:
                return None
            found.append((status.st_dev, status.st_ino, status.st_size, changed))
        return tuple(found)

    def load(self, decode: Callable[[Any], T]) -> T | None:
        """Read the main file, or ``.bak`` if that is missing, empty or torn; ``None`` without any.

        A ``ValueError`` of ``decode`` counts as torn. ``StoreCorruptError`` if neither is usable,
        but ``None`` for an empty main file without ``.bak``, left by a crash in its first write.
        """
        self.loaded_from = None
        self._main_is_good = False
        self._loaded = None
        files = self._files()
        failures: list[tuple[Path, int, str]] = []
        for path in (self.path, self.backup):
            text: str | None = ""
            try:
                text = _read(path)
                if text is None:
                    continue
                if not text.strip():
                    raise fastjson.JsonError("the file is empty", 0, 1)
                result = decode(fastjson.loads(text))
            except ValueError as error:
                position = error.position if isinstance(error, fastjson.JsonError) else 0
                at = len((text or "")[:position].encode("utf-8", "surrogateescape"))
                failures.append((path, at, str(error)))
                continue
            self.loaded_from = path
            self._main_is_good = path == self.path
            self._loaded = files
            return result
        if not failures or (len(failures) == 1 and "the file is empty" in failures[0][2]):
            return None
        path, position, reason = failures[0]
        if len(failures) > 1:
            reason += f"; and {failures[1][0]}: {failures[1][2]}"
        elif path == self.path:
            reason += f"; and there is no {self.backup}"
        else:
            reason += f"; and there is no {self.path}"
        reason += "; put a copy back, or move what is there away to begin without it"
        raise StoreCorruptError(path, position, reason)

    def save(self, value: Any) -> None:
        """Replace the main file; a crash leaves the old or the new one.

        From the second save on, ``.bak`` is the old one, unless that is torn: it must not replace a
        valid one. After an ``OSError``, including ``SyncError``, the old file is in place; after a
        ``ReplacedError``, for the directory's sync, the new one, at least until a power cut.
        """
        data = fastjson.dumps(value).encode("utf-8", "surrogateescape")
        self.check_owned()
        self.path.parent.mkdir(exist_ok=True)
        main, backup = target_of(self.path), target_of(self.backup)
        # Opened before any change, so that only its sync can fail afterwards.
        with contextlib.ExitStack() as opened:
            directories: dict[Path, int] = {}
            for parent in dict.fromkeys((backup.parent, main.parent)):
                directories[parent] = os.open(parent, _DIRECTORY_FLAGS)
                opened.callback(os.close, directories[parent])
            self._replace_main(main, backup, data)
            try:
                for parent, descriptor in directories.items():
                    sync_file(descriptor, parent)
            except SyncError as error:
                raise ReplacedError(error.errno, error.strerror, error.filename) from error

    def _replace_main(self, main: Path, backup: Path, data: bytes) -> None:
        """Write the new file, keep the main one as ``.bak``, and rename the new one to it.

        ``main`` and ``backup`` are targets of links, which stay. If both are one file, that becomes
        the new one.
        """
        temporary = _temporary(main)
        try:
            _write(temporary, data, like=main)
            self.check_owned()  # again: the sync may have taken long
            if _are_apart(main, backup) and self._main_can_be_kept():
                _keep(main, backup)
            temporary.replace(main)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self._main_is_good = True

    def _main_can_be_kept(self) -> bool:
        """Whether the main file exists and parses."""
        if self._main_is_good:
            return self.path.exists()
        try:
            text = _read(self.path)
            if text is None:
                return False
            fastjson.loads(text)
        except (OSError, StoreCorruptError, ValueError):
            return False
        return True


def _temporary(path: Path) -> Path:
    """Return the temporary name of a file being written."""
    return path.with_name(path.name + ".tmp")


def _are_apart(main: Path, backup: Path) -> bool:
    """Whether both files and their temporary names are four different names."""
    names = set()
    for path in (main, _temporary(main), backup, _temporary(backup)):
        directory = path.parent.stat()  # independent of links and mounts
        names.add((directory.st_dev, directory.st_ino, path.name))
    return len(names) == 4


def _keep(main: Path, backup: Path) -> None:
    """Make ``backup`` a copy of the main file, with neither ever missing."""
    link = _temporary(backup)
    with contextlib.suppress(FileNotFoundError):
        if main.samefile(backup):
            return  # a rename to a hard link of the same file does nothing
    with contextlib.suppress(FileNotFoundError):
        link.unlink()
    try:
        os.link(main, link, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        with open_regular(main) as file:
            _write(link, file.read(), like=main)
    link.replace(backup)


def _read(path: Path) -> str | None:
    """Return the text of a regular file, ``None`` if there is none.

    Invalid UTF-8 (Java writes in its platform's charset) is preserved for writing back.
    """
    try:
        fd = os.open(path, _READ_FLAGS)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise
        if (link := broken_link(absolute(path))) is not None:
            raise ValueError(link) from None
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise StoreCorruptError(
                path, 0, f"{kind_of(status.st_mode)}, not a regular file; move it away"
            )
        # Not MAX_BYTES at once: read() allocates that much first, and memory may be short.
        size = status.st_size
        data = os.read(fd, size + 1) if size <= MAX_BYTES else b""
        while size <= MAX_BYTES and (more := os.read(fd, _PIECE)):
            data += more
            size = len(data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        os.close(fd)
    if size > MAX_BYTES:
        raise StoreCorruptError(
            path, MAX_BYTES, f"{size} bytes, at most {MAX_BYTES} are read; move it away"
        )
    return data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")


def _write(path: Path, data: bytes, *, like: Path) -> None:
    """Write a whole file and force it to disk, with the permissions of ``like`` if it exists."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(path, flags, 0o666)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.fchmod(fd, stat.S_IMODE(like.stat().st_mode) & 0o777)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        sync_file(fd, path)
    except SyncError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        os.close(fd)
