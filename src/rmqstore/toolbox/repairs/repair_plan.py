"""Parts of a repair's plan: an action as data, and the change that makes it."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rmqstore.files.regular import kind_of
from rmqstore.offline.start_files import listed, relative
from rmqstore.toolbox.repairs.journal import Journal

__all__ = ["UNREACHED", "Action", "Change", "foreign_changes", "move", "nothing"]

UNREACHED = "cannot be examined: check the permissions"


@dataclass(frozen=True, slots=True)
class Action:
    """Change of a repair.

    Attributes
    ----------
    action : str
        Stable, lower case with hyphens; ``"none"`` for damage that cannot be mended.
    file : str
        Relative to the store.
    offset : int or None
        Byte in the file's log or queue.
    bytes : int
        Bytes changed or moved.
    saved_to : str or None
        The old bytes, relative to the store.
    done : bool
    message : str
        The reason, and for ``"none"`` the remedy.
    lost : int
        Messages that queues name in these bytes, lost for good.
    dummies : int
        Those of them in whose place a dummy keeps the queue offset.
    """

    action: str
    file: str
    offset: int | None
    bytes: int
    message: str
    saved_to: str | None = None
    done: bool = False
    lost: int = 0
    dummies: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """An action and its making, which returns where the old bytes are."""

    action: Action
    make: Callable[[Journal], str | None] | None = None

    def made(self, journal: Journal) -> Action:
        """Make the change, and return its action."""
        if self.make is None:
            return self.action
        return replace(self.action, saved_to=self.make(journal), done=True)


def nothing(file: str, offset: int | None, message: str) -> Change:
    """Return the entry for damage that cannot be mended."""
    return Change(Action("none", file, offset, 0, message))


def move(action: str, file: str, size: int, message: str) -> Change:
    """Return the move of a file or directory into the journal."""
    made = Action(action, file, None, size, message)
    return Change(made, lambda journal: journal.move(file))


def foreign_changes(
    root: Path, directory: str | Path, step: int, *, name: Callable[[str], int | None]
) -> Iterator[Change]:
    """Yield the moves of a directory's entries that are none of a store's files.

    ``name`` parses a file's name; its number is a multiple of ``step``.
    """
    for one in listed(directory) or []:
        file = relative(root, one.path)
        if one.size < 0:
            yield nothing(file, None, UNREACHED)
            continue
        number = name(one.name)
        if not stat.S_ISREG(one.mode):
            yield move("move-foreign", file, 0, f"{kind_of(one.mode)}, not a file of the store")
        elif number is None or number % step:
            yield move("move-foreign", file, one.size, "no file of the store has such a name")
