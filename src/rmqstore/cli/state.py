"""State of a store: closed, in use or not closed, and the extent of a torn tail."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqstore.base.foreign import printable
from rmqstore.cli.text import shorten
from rmqstore.directory.layout import log_directories
from rmqstore.directory.lock_owner import LockOwner, lock_owner
from rmqstore.files.paths import ABORT, parse_offset_file_name
from rmqstore.files.regular import open_regular

if TYPE_CHECKING:
    from rmqstore.store import MessageStore

__all__ = ["State", "state_of"]

_BLOCK = 1 << 20  # bytes read at once
_OWNER_WIDTH = 100  # a command line may be of any length


@dataclass(frozen=True, slots=True)
class State:
    """State of a store after, or with, its last owner."""

    # "closed", "in use", "not closed"; "unknown" if the store is not closed and its lock cannot be
    # read.
    name: str
    owner: LockOwner | None  # of a store in use
    log_end: int  # end of the last good record
    # End of the last non-zero byte, if the store is not closed; else ``log_end``.
    written_end: int
    reason: str = ""  # why it is unknown

    def fields(self) -> list[tuple[str, str]]:
        """Return the state as fields for people."""
        if self.name == "closed":
            return [("state", "closed cleanly")]
        if self.name == "in use":
            return [("state", f"in use by {shorten(printable(str(self.owner)), _OWNER_WIDTH)}")]
        if self.name == "unknown":
            return [("state", f"in use, or not closed: its lock cannot be read ({self.reason})")]
        tail = self.written_end - self.log_end
        if tail == 0:
            text = f"none: the log ends with a whole record, at {self.log_end:,}"
        else:
            text = (
                f"{tail:,} bytes behind the last whole record, which ends at {self.log_end:,}: "
                "opening to write saves and cuts them"
            )
        return [
            ("state", "not closed: its owner was killed, or lost power"),
            ("tail", text),
        ]

    def facts(self) -> dict[str, Any]:
        """Return the state for programs."""
        owner = self.owner and {"pid": self.owner.pid, "command": self.owner.command}
        return {
            "state": self.name,
            "owner": owner,
            "tail_bytes": self.written_end - self.log_end,
        }


def state_of(opened: MessageStore) -> State:
    """Return the state of a store that is open for reading."""
    end = opened.recovery.log_end
    try:
        owner = lock_owner(opened.path)
    except OSError as error:
        if opened.recovery.clean:
            return State("closed", None, end, end)
        return State("unknown", None, end, end, reason=error.strerror or str(error))
    if owner is not None:
        return State("in use", owner, end, end)
    if opened.recovery.clean or not os.path.lexists(Path(opened.path, ABORT)):
        return State("closed", None, end, end)
    directories = log_directories(opened.path, opened.config)
    return State("not closed", None, end, max(_written_end(one, end) for one in directories))


def _written_end(log: Path, end: int) -> int:
    """Return the offset after the last non-zero byte of a log, ``end`` if none follows that."""
    written = end
    for path in sorted(log.iterdir()):
        start = parse_offset_file_name(path.name)
        try:
            if start is None or start + path.stat().st_size <= end:
                continue
            file = open_regular(path)
        except OSError:
            continue  # removed, a broken link, or not a file
        with file:
            last = _last_byte(file.fileno(), max(0, end - start))
        if last is not None:
            written = start + last + 1
    return written


def _last_byte(fd: int, at: int) -> int | None:
    """Return the position of a file's last non-zero byte, ``None`` if none from ``at`` on."""
    last = None
    size = os.fstat(fd).st_size
    while at < size:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)  # past the holes
        except OSError:  # only a hole follows
            break
        block = os.pread(fd, _BLOCK, at)
        if not block:
            break
        if kept := len(block.rstrip(b"\0")):
            last = at + kept - 1
        at += len(block)
    return last
