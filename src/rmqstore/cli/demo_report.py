"""Final report of ``demo``."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.base.foreign import printable
from rmqstore.cli.output import Column
from rmqstore.cli.table import print_table

if TYPE_CHECKING:
    from rmqstore._core import Message

__all__ = ["DemoReport", "Line", "print_report"]

_NAMES = {
    "commitlog": "the messages, in order of arrival",
    "consumequeue": "20 bytes a message, by topic and queue",
    "index": "keys to messages",
    "config": "topics",
}


_BLANK = " "  # an empty heading

_MEASURED = (
    Column("verb", heading=_BLANK),
    Column("what", heading=_BLANK, rank=3, least=16),
    Column("count", "count", rank=1),
    Column("time", "number"),
    Column("rate", "number", rank=2),
)
_ON_DISK = (
    Column("name", heading=_BLANK),
    Column("what", heading=_BLANK, rank=3, least=16),
    Column("files", "count", rank=1),
    Column("bytes", "bytes"),
    Column("allocated", "bytes", rank=2),
)
_EVENTS = (
    Column("tags", heading="event"),
    Column("topic"),
    Column("store_timestamp", "time", heading="stored", rank=1),
    Column("queue_id", "number", heading="queue", rank=2),
    Column("queue_offset", "number", heading="offset", rank=2),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One measurement: its subject, count and seconds."""

    verb: str
    what: str
    count: int
    seconds: float
    rate: bool = True

    def row(self) -> dict[str, object]:
        """Return the line's row."""
        return {
            "verb": self.verb,
            "what": self.what,
            "count": self.count if self.rate else None,
            "time": _human_seconds(self.seconds),
            "rate": f"{self.count / self.seconds:,.0f}/s" if self.rate and self.seconds else None,
        }


@dataclass
class DemoReport:
    """Contents of the final report."""

    title: str
    lines: list[Line] = field(default_factory=list)
    disk: dict[str, dict[str, int]] = field(default_factory=dict)
    example: tuple[str, list[Message]] = ("", [])
    seed: tuple[str, Message] | None = None
    first_order: int = 0
    orders: int = 1  # number of orders, from the first on
    root: Path = field(default_factory=Path)


def print_report(report: DemoReport, local: bool) -> None:
    """Print the report to standard output; times in this machine's zone if ``local``."""
    print(flush=True)
    rows = [line.row() for line in report.lines]
    print_table(report.title, _MEASURED, rows, local=local)
    print(flush=True)
    files = [
        {"name": name, "what": _NAMES.get(name, ""), **one} for name, one in report.disk.items()
    ]
    print_table("On disk", _ON_DISK, files, local=local)
    print(flush=True)
    name, events = report.example
    print_table(
        f"Order {name.removeprefix('order-')}, found by key",
        _EVENTS,
        [{one.name: getattr(message, one.name) for one in _EVENTS} for message in events],
        local=local,
    )
    print(flush=True)
    if report.seed is not None:
        where, message = report.seed
        body = message.body.decode("utf-8", "replace")
        psly = message.properties.get("psly")
        print(printable(f"{where}: {body!r}, tag {message.tags}, psly={psly}"))
        print()
    root = shlex.quote(str(report.root))
    command = _command()
    for line in (
        f"Go on:  {command} info {root}",
        f"        {command} find {root} --key {name}",
        f"        {command} cat {root} -t orders -q 0 --from -3",
    ):
        print(printable(line))


def _command() -> str:
    """Return the words that run this command line again, in a shell as it is."""
    if shutil.which("rmqstore"):
        return "rmqstore"
    if Path(sys.argv[0]).name == "rmqstore":
        return shlex.quote(sys.argv[0])
    return f"{shlex.quote(sys.executable)} -m rmqstore"


def _human_seconds(seconds: float) -> str:
    """Return a time with a fitting unit."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.1f} ms" if seconds >= 0.001 else f"{seconds * 1e6:.0f} us"
