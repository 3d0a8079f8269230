"""Open what is left of a store in all the ways that users do, and check I1 to I8 each time."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rmqstore
from crash.writer import message_of
from faults import invariants
from faults.framework import Case
from faults.model import Model, Named, content_of

MORE = 30  # messages that are put after recovery
SLOW = 0.3  # of many stores alike: the slow codec looks at what is closed as well
LATER = 7  # every so manyth key is asked for again where all of them were before


class Telling:
    """A case whose violations say how it was."""

    def __init__(self, case: Case, tell: invariants.Tell) -> None:
        self.violation = tell
        self.draw = case.draw


@contextlib.contextmanager
def opened(
    case: Case | Telling, where: str, root: Path, mode: str, **options: Any
) -> Iterator[Any]:
    """The open store, or None if that was refused, which is a violation."""
    try:
        store = rmqstore.open(root, mode, **options)
    except invariants.REFUSALS as error:
        case.violation("refused", f"{where}: {error!r}")
        yield None
        return
    with store:
        yield store


def put_more(store: Any, model: Model, prefix: str, draw: random.Random) -> None:
    """Put single messages, a batch and many; the model learns where they are."""
    assert isinstance(model.known, Named)
    model.known.prefixes.add(prefix)
    for number in range(MORE):
        name = f"{prefix}.{number}.{draw.getrandbits(32):x}"
        m = message_of(name)
        done = store.put(
            m["topic"], m["body"], queue_id=m["queue_id"], tags=m["tags"], keys=m["keys"]
        )
        place = m["topic"], m["queue_id"], done.queue_offset
        model.acked[place] = content_of(name), done.physical_offset


def check_reopened(
    case: Case | Telling,
    root: Path,
    model: Model,
    *,
    config: Any = None,
    modes: tuple[str, ...] = ("r", "r+"),
    gone: str = "",
    more: str | Callable[[Any, Model, random.Random], None] = "after",
    slot_num: int | None = None,
    slow: bool = True,
    **options: Any,
) -> None:
    """Open with "r", which changes nothing; with "r+", which recovers; and put; and once more.

    ``config`` goes to each opening; ``options`` to the writing ones.  Where "r+" sees what "r" did
    not, "r" hid it.  ``more`` is the prefix of the names that are put, or what puts;
    ``gone`` a pattern of files that may be removed; without ``slow`` the slow codec does not look
    at what is closed.
    """
    tell = case.violation
    before = invariants.contents(root)
    files = invariants.sizes(root)
    read = None
    if "r" in modes:
        with opened(case, '"r"', root, "r", config=config) as store:
            if store is not None:
                read = invariants.check(store, model, tell, where='"r"')
        if names := invariants.changed(before, invariants.contents(root)):
            tell("I5", f'"r" changed {names}')
    if "r+" not in modes:
        return
    with opened(case, '"r+"', root, "r+", config=config, **options) as store:
        if store is None:
            if names := invariants.changed(before, invariants.contents(root)):
                tell("I5", f"a refused opening changed {names}")
            return
        found = invariants.check(store, model, tell, where='"r+"')
        invariants.check_erased(store, root, tell, where='"r+"')
        if read is not None and read.messages.keys() != found.messages.keys():
            hidden = sorted(found.messages.keys() - read.messages.keys())
            extra = sorted(read.messages.keys() - found.messages.keys())
            tell("I1", f'"r" hid {hidden[:3]} ({len(hidden)}), "r+" {extra[:3]} ({len(extra)})')
        if isinstance(more, str):
            put_more(store, model, more, case.draw)
        else:
            more(store, model, case.draw)
        invariants.check(store, model, tell, where="after more puts", each_key=LATER)
    invariants.check_files(files, root, tell, gone=gone)
    if slow:
        invariants.check_closed(root, tell, model.deleted_topics, slot_num=slot_num)
    closed = invariants.contents(root)
    with opened(case, "the second opening", root, "r+", config=config) as store:
        if store is not None:
            invariants.check(store, model, tell, where="the second opening", each_key=LATER)
    if names := invariants.changed(closed, invariants.contents(root)):
        tell("I5", f"opening it once more changed {names}")
