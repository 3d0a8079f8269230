"""Files that a repair has to read or to change, and that its user may not."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from rmqstore.files import paths
from rmqstore.offline.start_files import relative
from rmqstore.offline.start_json import JSON_FILES
from rmqstore.toolbox.checks.file_checks import Tree
from rmqstore.toolbox.repairs.repair_plan import Change, nothing

__all__ = ["refuse", "unreadable", "unwritable", "unwritable_files"]

# Actions that write into a file, instead of putting another one in its place.
_IN_PLACE = ("cut-file", "extend-file", "fill", "mend-record", "zero-blank", "zero-tail")
_SINGLE = (paths.CHECKPOINT, paths.LOCK, paths.DELETED_TOPICS)
_JSON = {f"{name}{end}" for name, *_ in JSON_FILES for end in ("", ".bak")}


def unreadable(root: Path, tree: Tree) -> list[Change]:
    """Return an entry for each file or directory of a store that a repair needs and cannot read.

    Without it the others would be compared with half of a log, or replaced as missing.
    """
    return [
        nothing(file, None, f"{reason}: {_remedy(root / file)}")
        for file, reason in tree.unread.items()
        if (root / file).is_dir() or _is_needed(file)
    ]


def _is_needed(file: str) -> bool:
    """Whether a repair reads a file; foreign ones are moved unread."""
    place, _, name = file.rpartition("/")
    if place == paths.CONFIG:
        return name in _JSON
    if place == paths.INDEX:
        return paths.parse_index_file_name(name) is not None
    return file in _SINGLE if not place else paths.parse_offset_file_name(name) is not None


def unwritable(root: Path, changes: Iterable[Change]) -> list[Change]:
    """Return an entry for each place where changes need to write and this user may not."""
    made = [one.action for one in changes if one.make is not None]
    in_place = [one.file for one in made if one.action in _IN_PLACE]
    return unwritable_files(root, [one.file for one in made], in_place)


def unwritable_files(
    root: Path, files: Iterable[str], in_place: Iterable[str] = ()
) -> list[Change]:
    """Return as :func:`unwritable` for files replaced or moved, or written to in their place."""
    needed: dict[Path, None] = {}
    for file in files:
        needed.update(dict.fromkeys(_directories(root, root / file)))
    needed.update(dict.fromkeys(root / one for one in in_place if (root / one).is_file()))
    return [
        nothing(
            "." if one == root else relative(root, one),
            None,
            f"this user may not write it, so that nothing is changed: {_remedy(one)}",
        )
        for one in needed
        if not os.access(one, os.W_OK | (os.X_OK if one.is_dir() else 0))
    ]


def _directories(root: Path, path: Path) -> Iterator[Path]:
    """Yield the directories that a change of a file writes to, first the journal's."""
    yield root
    if path.is_dir() and not path.is_symlink():  # a move writes its ".."
        yield path
    parent = path.parent
    while not parent.exists():
        parent = parent.parent
    yield parent


def refuse(root: Path, entries: Iterable[Change]) -> None:
    """Raise ``PermissionError`` for the first entry, if there is any."""
    for one in entries:
        raise PermissionError(errno.EACCES, one.action.message, str(root / one.action.file))


def _remedy(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return "run as its owner, or chmod u+rwX its directory"
    bits = "u+rwx" if path.is_dir() else "u+rw"
    return f"run as its owner, user {status.st_uid}, or chmod {bits} it"
