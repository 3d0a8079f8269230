"""Journal of changes to a store's files: each is noted, and its bytes saved, before it is made.

A journal is a directory ``rmqstore-repair-TIME`` in the store: ``manifest.jsonl`` with a line for
each change, and the files moved out of the store or saved. Lines are forced to the disk before
their change, so that a process killed anywhere leaves a journal that can be undone.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from rmqstore.base.arguments import wrong_value
from rmqstore.base.syncing import sync_file, sync_path
from rmqstore.errors import StoreCorruptError
from rmqstore.files.paths import ABORT, CHECKPOINT, LOCK
from rmqstore.files.regular import open_regular
from rmqstore.toolbox.repairs.file_pieces import copy_range, used_pieces, zero

__all__ = [
    "PREFIX",
    "Journal",
    "journals",
    "open_journal",
    "reached",
    "undo_unfinished",
    "unfinished",
]

PREFIX = "rmqstore-repair-"
_MANIFEST = "manifest.jsonl"
_OPENED = (ABORT, CHECKPOINT, LOCK)  # written at a broker's start or end, or a writer's
_MANIFEST_MOST = 256 << 20
_UNDONE = "undone"
_UNDOING = "undoing"

Entry = dict[str, Any]


def reached(point: str) -> None:
    """Mark a named point, for tests that end the process there."""


def journals(root: Path) -> list[Path]:
    """Return the journals of a store, oldest first."""
    with os.scandir(root) as entries:
        found = [Path(one.path) for one in entries if one.name.startswith(PREFIX)]
    return sorted(one for one in found if one.is_dir())


def unfinished(root: Path, log: Sequence[Path] = ()) -> list[Journal]:
    """Return the journals whose process was ended in the middle, or is at work."""
    found = []
    for directory in journals(root):
        journal = Journal(root, directory, log)
        entries = journal.entries()
        if not entries or entries[-1]["op"] != "done":
            found.append(journal)
    return found


def undo_unfinished(root: Path, log: Sequence[Path] = ()) -> list[str]:
    """Undo the changes of unfinished journals; return their names.

    ``log`` has the directories of the store's log. REQUIRES: the store's lock is held.
    """
    undone = []
    for journal in unfinished(root, log):
        if not journal.is_undone() and journal.opened_since():
            raise StoreCorruptError(
                str(journal.directory),
                0,
                "a repair was ended in the middle, and the store was opened for writing since: it "
                "is no longer undone; the old bytes are there: move it away to go on",
            )
        journal.undo()
        undone.append(journal.directory.name)
    return undone


class Journal:
    """Changes of a store's files. Paths are relative to the store's directory.

    Those of log files in other directories, ``log``, are absolute. REQUIRES: the store's lock is
    held.
    """

    def __init__(self, root: Path, directory: Path, log: Sequence[Path] = ()) -> None:
        self.root = root
        self.directory = directory
        self._log = log
        self._touched: set[str] = set()
        self._number = itertools.count()

    @classmethod
    def create(cls, root: Path, log: Sequence[Path] = ()) -> Journal:
        """Make a new journal in a store."""
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        for number in itertools.count(1):
            directory = root / (f"{PREFIX}{now}" + (f"-{number}" if number > 1 else ""))
            try:
                directory.mkdir()
            except FileExistsError:
                continue
            break
        journal = cls(root, directory, log)
        try:
            journal._note({"op": "begin", **{name: journal._seen(name) for name in _OPENED}})
            sync_path(root)
        except BaseException:
            shutil.rmtree(directory)
            raise
        return journal

    def entries(self) -> list[Entry]:
        """Return the noted changes; a torn last line was not begun."""
        path = self.directory / _MANIFEST
        found = []
        try:
            with open_regular(path) as file:
                data = file.read(_MANIFEST_MOST + 1)
        except FileNotFoundError:
            if any(self.directory.iterdir()) and not self.is_undone():
                raise StoreCorruptError(
                    str(path), 0, "is missing: nothing is undone; the old bytes are in its "
                    "directory: move that away to go on"
                ) from None  # fmt: skip
            return []
        if len(data) > _MANIFEST_MOST:
            raise StoreCorruptError(
                str(path), _MANIFEST_MOST, "is larger than any repair makes it: nothing is undone; "
                "move its directory away to go on"
            )  # fmt: skip
        torn, at = None, 0
        for line in data.split(b"\n"):
            one = None
            with contextlib.suppress(ValueError, RecursionError):
                one = json.loads(line)
            if isinstance(one, dict) and isinstance(one.get("op"), str):
                if torn is not None and one["op"] != _UNDOING:
                    raise StoreCorruptError(
                        str(path), torn, "a line is damaged: nothing is undone; the old bytes are "
                        "beside it: move the directory away to go on"
                    )  # fmt: skip
                found.append(one)
            elif line and torn is None:
                torn = at
            at += len(line) + 1
        return found

    def _note(self, entry: Entry) -> None:
        path = self.directory / _MANIFEST
        made = not path.exists()
        with path.open("ab") as file:
            file.write(b"\n" + json.dumps(entry, separators=(",", ":")).encode())
            file.flush()
            sync_file(file.fileno(), file.name)
        if made:
            sync_path(self.directory)

    def saved_name(self, name: str) -> str:
        """Return a new path in the journal, relative to the store, ending like a file's name."""
        while True:
            path = self.directory / f"{next(self._number):06d}-{Path(name).name}"
            if not os.path.lexists(path):
                return str(path.relative_to(self.root))

    def _status(self, name: str) -> Entry:
        status = (self.root / name).stat()
        return {"size": status.st_size, "mtime": status.st_mtime_ns}

    # ---- changes

    def _unlink_others(self, name: str) -> None:
        """Put a copy in the place of a file with other hard links, often those of a backup."""
        if (self.root / name).stat().st_nlink == 1:
            return
        new = self.saved_name(name)
        _copy(self.root / name, self.root / new)
        self.move(name)
        self.place(name, new)

    def overwrite(
        self, name: str, start: int, stop: int, pieces: Iterable[tuple[int, bytes]] = ()
    ) -> str:
        """Zero a part of a file and write pieces into it; return where its bytes are saved."""
        self._unlink_others(name)
        saved = self.saved_name(name)
        with open_regular(self.root / name) as source:
            copy_range(source, start, self.root / saved, 0, stop - start)
        sync_path(self.directory)
        with open_regular(self.root / name, write=True) as file:  # else an undo could not, either
            self._note({
                "op": "overwrite", "file": name, "start": start, "stop": stop, "saved": saved,
                **self._status(name),
            })  # fmt: skip
            reached("overwrite-noted")
            zero(file, start, stop)
            for at, data in pieces:
                file.seek(at)
                file.write(data)
            reached("overwrite-written")
            file.flush()
            sync_file(file.fileno(), file.name)
        self._touched.add(name)
        reached("overwrite-done")
        return saved

    def resize(self, name: str, size: int) -> str | None:
        """Extend a file by zeros, or cut it; return where the bytes cut off are saved."""
        self._unlink_others(name)
        status = self._status(name)
        saved = None
        if status["size"] > size:
            saved = self.saved_name(name)
            with open_regular(self.root / name) as source:
                copy_range(source, size, self.root / saved, 0, status["size"] - size)
            sync_path(self.directory)
        with open_regular(self.root / name, write=True) as file:  # else an undo could not, either
            self._note({"op": "resize", "file": name, "now": size, "saved": saved, **status})
            reached("resize-noted")
            file.truncate(size)
            sync_file(file.fileno(), file.name)
        self._touched.add(name)
        reached("resize-done")
        return saved

    def move(self, name: str) -> str:
        """Move a file or directory out of the store; return its place in the journal."""
        saved = self.saved_name(name)
        self._note({"op": "move", "file": name, "saved": saved})
        reached("move-noted")
        _rename(self.root / name, self.root / saved)
        self._touched.add(name)
        reached("move-done")
        return saved

    def place(self, name: str, new: str) -> None:
        """Move a file or directory, complete and on the disk, from the journal to a free name."""
        if os.path.lexists(self.root / name):
            raise FileExistsError(errno.EEXIST, "it is there already", name)
        self._note({"op": "place", "file": name, "new": new})
        reached("place-noted")
        placed = self.root / name
        _rename(self.root / new, placed)
        self._touched |= {name, *(str(one.relative_to(self.root)) for one in placed.rglob("*"))}
        reached("place-done")

    def make_directory(self, name: str) -> None:
        """Make a missing directory, and its missing parents."""
        if (self.root / name).is_dir():
            return
        parent = os.path.dirname(name)  # noqa: PTH120 - relative
        if parent:
            self.make_directory(parent)
        self._note({"op": "make", "file": name})
        reached("make-noted")
        (self.root / name).mkdir()
        sync_path((self.root / name).parent)

    def finish(self) -> None:
        """Note that all changes are made, with the state of the files they left."""
        reached("finish")
        touched = {name: self._seen(name) for name in sorted(self._touched)}
        self._note({"op": "done", "files": touched})

    def _seen(self, name: str) -> list[int] | None:
        try:
            status = (self.root / name).stat()
        except OSError:
            return None
        return [status.st_size, status.st_mtime_ns]

    # ---- undoing

    def changed_since(self) -> str | None:
        """Return the first file that changed since the journal was finished, if any."""
        entries = self.entries()
        done = entries[-1] if entries else {}
        files = done.get("files") if done.get("op") == "done" else None
        for name, seen in files.items() if isinstance(files, dict) else ():
            self._inside(name)
            if self._seen(name) != seen:
                return str(name)
        return None

    def is_undone(self) -> bool:
        """Whether an undo ended when only the journal was left."""
        return (self.directory / _UNDONE).exists()

    def opened_since(self) -> bool:
        """Whether a broker or a writer opened the store since: each leaves one of these changed."""
        entries = self.entries()
        begun = next((one for one in entries if one["op"] == "begin"), {})
        touched = {one.get("file") for one in entries}
        return any(
            name in begun and name not in touched and self._seen(name) != begun[name]
            for name in _OPENED
        )

    def undo(self) -> list[Entry]:
        """Undo all changes, newest first, and remove the journal.

        Needs no space but for copies from another file system. One that was ended in the middle is
        done again from the beginning.
        """
        kinds = ("overwrite", "resize", "move", "place", "make")
        entries = self.entries()
        changes = [one for one in entries if one["op"] in kinds]
        for one in changes:
            self._inside(*(one[key] for key in ("file", "saved", "new") if one.get(key)))
        if entries and entries[-1]["op"] == "done":  # unfinished again, if it is killed
            self._note({"op": _UNDOING})
        for at in reversed(range(len(changes))):
            self._undo(changes[at], changes[:at])
            reached("undo-step")
        self._remove()
        return changes

    def _remove(self) -> None:
        """Remove a journal of which all is undone; on a full disk, too."""
        undone = self.directory / _UNDONE
        with contextlib.suppress(FileNotFoundError):  # first: without it nothing is undone again
            (self.directory / _MANIFEST).rename(undone)
            sync_path(self.directory)
        reached("undo-done")
        for one in self.directory.iterdir():
            if one != undone:
                shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()
        reached("undo-emptied")
        undone.unlink(missing_ok=True)  # last: without it the old bytes might be needed
        self.directory.rmdir()
        sync_path(self.root)

    def _inside(self, *names: str) -> None:
        for name in names:
            path = Path(name)
            if ".." in path.parts or (path.is_absolute() and path.parent not in self._log):
                raise StoreCorruptError(
                    str(self.directory / _MANIFEST), 0, f"{name!r} is no path within the store or "
                    "its log, which a broker.conf names if it is elsewhere: give that with -c"
                )  # fmt: skip

    def _undo(self, one: Entry, before: Sequence[Entry]) -> None:
        path = self.root / one["file"]
        if one["op"] == "place":  # the name was free, unless its old file is back already
            moved = [was for was in before if was["op"] == "move" and was["file"] == one["file"]]
            if not moved or os.path.lexists(self.root / moved[-1]["saved"]):
                with contextlib.ExitStack() as refused:
                    if os.path.lexists(self.root / one["new"]):  # nothing came there
                        refused.enter_context(contextlib.suppress(PermissionError))
                    _remove(path)
                    _remove(_making(path))
                    if path.parent.is_dir():
                        sync_path(path.parent)
            return
        if one["op"] == "move":
            saved = self.root / one["saved"]
            if os.path.lexists(path):  # not done, or a copy to another file system not completed
                _remove(saved)
            elif os.path.lexists(saved):
                _rename(saved, path)
            return
        if one["op"] == "make":
            with contextlib.suppress(OSError):  # it is gone already
                path.rmdir()
                sync_path(path.parent)
            return
        if any((was["op"], was["file"]) == ("place", one["file"]) for was in before):
            return  # it is to be removed, or is already
        with open_regular(path, write=True) as file:
            if one["op"] == "overwrite":
                zero(file, one["start"], one["stop"])
                self._restore(one["saved"], file, one["start"])
            else:
                file.truncate(min(one["size"], one["now"]))
                if one["saved"] is not None:
                    self._restore(one["saved"], file, one["now"])
                file.truncate(one["size"])
            file.flush()
            sync_file(file.fileno(), file.name)
        os.utime(path, ns=(path.stat().st_atime_ns, one["mtime"]))

    def _restore(self, saved: str, file: BinaryIO, start: int) -> None:
        with open_regular(self.root / saved) as source:
            for at, data in used_pieces(source, 0, os.fstat(source.fileno()).st_size):
                file.seek(start + at)
                file.write(data)


def open_journal(root: Path, name: str, log: Sequence[Path] = ()) -> Journal:
    """Return a store's journal by its name or path; ``ValueError`` if it is none."""
    directory = Path(name)
    if directory.parent == Path() and not directory.is_dir():
        directory = root / directory.name
    there = any((directory / one).is_file() for one in (_MANIFEST, _UNDONE))
    if not there or not directory.resolve().parent.samefile(root):
        known = ", ".join(one.name for one in journals(root)) or "there is none"
        raise wrong_value("journal", f"a journal of {root} ({known})", name)
    return Journal(root, root / directory.resolve().name, log)


def _making(target: Path) -> Path:
    """Return the name of a copy that is not complete."""
    return target.with_name(f"{target.name}.rmqstore-making")


def _rename(source: Path, target: Path) -> None:
    """Rename durably; across file systems by a copy, which has the name once it is complete."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        making = _making(target)
        _remove(making)  # of an undo that was killed
        if source.is_symlink():
            making.symlink_to(source.readlink())
        elif source.is_dir():
            shutil.copytree(source, making, symlinks=True, copy_function=_copy)
            directories = (Path(one) for one, _, _ in os.walk(making))
            for one in directories:  # no links
                _copy_status(source / one.relative_to(making), one)
                sync_path(one)
        else:
            _copy(source, making)
        reached("copy-made")
        making.rename(target)
        sync_path(target.parent)
        reached("copy-placed")
        _remove(source)
    sync_path(source.parent)
    sync_path(target.parent)


def _copy(source: str | Path, target: str | Path) -> None:
    """Copy a file with its times; zeros take no space."""
    with open_regular(source) as file:
        copy_range(file, 0, Path(target), 0, os.fstat(file.fileno()).st_size)
    _copy_status(source, target)
    sync_path(target)


def _copy_status(source: str | Path, target: str | Path) -> None:
    """Copy times, mode and owner."""
    shutil.copystat(source, target)
    status = os.stat(source)  # noqa: PTH116 - a text, or a path
    with contextlib.suppress(PermissionError):  # as an unprivileged user's other new files
        os.chown(target, status.st_uid, status.st_gid)


def _remove(path: Path) -> None:
    """Remove a file or a directory, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
