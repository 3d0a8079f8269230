"""Signal handlers that raise between any two steps of a change: no state is half changed.

A handler runs where a line begins or a Python function returns, never between a lock written in C
and the block of its ``with``.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from rmqstore.brokerfiles.groups import GroupConfig, GroupTable
from rmqstore.brokerfiles.topics import TopicConfig, TopicTable
from rmqstore.services.housekeeping import Housekeeper
from rmqstore.services.schedule import _Sleep

MOST = 200  # places in a call
FILES = ("entrytable.py", "housekeeping.py", "schedule.py", "threading.py")


class Interrupt(BaseException):
    """Raised by the handler."""


def is_end_of_with(frame: FrameType) -> bool:
    """Whether the line is a ``with``: it is traced again at its end, where no handler runs."""
    text = Path(frame.f_code.co_filename).read_text().splitlines()[frame.f_lineno - 1]
    return text.lstrip().startswith("with ")


def interrupted(call: Callable[[], object], place: int) -> bool:
    """Make a call whose place of this number raises; return whether it has so many."""
    left = place

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal left
        if Path(frame.f_code.co_filename).name not in FILES:
            return None
        frame.f_trace_lines = True
        if event == "return" or (event == "line" and not is_end_of_with(frame)):
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def at_each_place(call_of: Callable[[], Callable[[], object]]) -> Iterator[int]:
    """Interrupt calls, each anew and at its next place; yield after each."""
    for place in range(MOST):
        if not interrupted(call_of(), place):
            assert place >= 3
            return
        yield place
    pytest.fail(f"more than {MOST} places")


TABLES: list[tuple[Any, Any]] = [(TopicTable, TopicConfig), (GroupTable, GroupConfig)]
CHANGES: dict[str, Callable[[Any, Any], object]] = {
    "replace": lambda table, entry: table.put(entry("a")),
    "add": lambda table, entry: table.put(entry("new")),
    "remove": lambda table, _: table.remove("b"),
    "save": lambda table, _: table.save(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("table_of", "entry"), TABLES)
def test_a_table_stays_readable(tmp_path: Path, table_of: Any, entry: Any, change: str) -> None:
    whole = table_of(tmp_path)
    for name in "abc":
        whole.put(entry(name))
    whole.save()
    table = whole

    def anew() -> Callable[[], object]:
        nonlocal table
        whole.save()
        table = table_of.load(tmp_path)  # entries that have no text yet
        return lambda: CHANGES[change](table, entry)

    names = {"add": ["abc", "abcnew"], "remove": ["abc", "ac"]}.get(change, ["abc"])
    for place in at_each_place(anew):
        table.save()
        found = "".join(one.name for one in table_of.load(tmp_path))
        assert found in names, place
        assert found == "".join(one.name for one in table)


def ends(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "a lock was not released"


class Clock:
    def now(self) -> int:
        return 0


@pytest.mark.parametrize("name", ["wake", "run_due", "stop"])
def test_housekeeping_keeps_no_lock(name: str) -> None:
    clock = Clock()
    housekeeper = Housekeeper(clock.now)

    def anew() -> Callable[[], object]:
        nonlocal housekeeper
        housekeeper = Housekeeper(clock.now)
        return getattr(housekeeper, name)

    for _ in at_each_place(anew):
        ends(housekeeper.wake)
        ends(housekeeper.stop)


@pytest.mark.parametrize("name", ["wake", "stop"])
def test_delivery_keeps_no_lock(name: str) -> None:
    sleep = _Sleep()

    def anew() -> Callable[[], object]:
        nonlocal sleep
        sleep = _Sleep()
        return getattr(sleep, name)

    for _ in at_each_place(anew):
        ends(sleep.wake)
        ends(sleep.stop)
