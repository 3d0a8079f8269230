"""Queue files and directories that may not be read: an error wherever they matter, never "none"."""

from __future__ import annotations

import ctypes
from pathlib import Path

import rmqstore
from faults import tiny
from faults.framework import Case
from faults.tiny import Image

_libc = ctypes.CDLL(None, use_errno=True)
_OVERRIDE = 0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH: by these root reads everything


def become_ordinary() -> None:
    """From now on this process may read what the modes of files let it read."""
    head, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if _libc.capget(head, sets) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    sets[0] &= ~_OVERRIDE
    if _libc.capset(head, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def names_of(image: Image) -> list[str]:
    """The files of the queues, and their directories."""
    files = sorted(name for name in image.files if name.startswith("consumequeue/"))
    return sorted({name.rpartition("/")[0] for name in files}) + files


def one_shut(case: Case, image: Image, name: str, *, configured: bool) -> None:
    """Messages of other queues are there; those of this one are, or reading them raises."""
    root = case.scratch / "store"
    image.write(root)
    become_ordinary()
    shut = root / name
    mode = shut.stat().st_mode
    shut.chmod(0)
    settings = image.config if configured else None
    queue_id = int(name.split("/")[2])
    for how in ("r", "r+"):
        where = f'{image.name}, {name} may not be read, "{how}"'
        try:
            store = rmqstore.open(root, how, config=settings)
        except PermissionError as error:
            if how == "r" or not _names(error, shut):
                case.violation("refused", f"{where}: {error!r}")
            continue
        with store:
            _look(case, store, image, shut, queue_id, where)
    shut.chmod(mode)


def _names(error: OSError, shut: Path) -> bool:
    """Whether it names what is shut, what is in it, or at the least that it is a queue."""
    named = Path(str(error.filename))
    above = "consumequeue" in named.parts and shut.is_relative_to(named)
    return above or named.is_relative_to(shut)


def _look(
    case: Case, store: rmqstore.MessageStore, image: Image, shut: Path, queue_id: int, where: str
) -> None:
    for place, fields in image.messages.items():
        try:
            found = store.get(*place, 1).messages
        except PermissionError as error:
            if place[1] != queue_id or not _names(error, shut):
                case.violation("I1", f"{where}: {place}: {error!r}")
            continue
        except rmqstore.StoreError as error:
            case.violation("I1", f"{where}: {place}: {error!r}")
            return
        if not found or tiny.all_of(found[0]) != fields:
            case.violation("I1", f"{where}: {place} shows {found!r}, and nothing is said")
            return
