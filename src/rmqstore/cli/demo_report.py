"""What ``demo`` says at the end: with rich on a terminal, else in plain columns."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqstore.cli.output import (
    human_bytes,
    pad,
    printable,
    rich_print,
    rich_table,
    stdout_is_terminal,
    width_of,
)
from rmqstore.times import format_millis

if TYPE_CHECKING:
    from rmqstore._core import Message

__all__ = ["Line", "Report", "print_report"]

_NAMES = {
    "commitlog": "the messages, in order of arrival",
    "consumequeue": "20 bytes a message, by topic and queue",
    "index": "keys to messages",
    "config": "topics",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One measurement: what was done, how often, in how many seconds."""

    verb: str
    what: str
    count: int
    seconds: float
    rate: bool = True

    def cells(self) -> list[str]:
        """Return the cells of its row."""
        speed = f"{self.count / self.seconds:,.0f}/s" if self.rate and self.seconds else ""
        count = f"{self.count:,}" if self.rate else ""
        return [self.verb, self.what, count, _human_seconds(self.seconds), speed]


@dataclass
class Report:
    """Everything that is shown."""

    title: str
    lines: list[Line] = field(default_factory=list)
    disk: dict[str, dict[str, int]] = field(default_factory=dict)
    example: tuple[str, list[Message]] = ("", [])
    seed: tuple[str, Message] | None = None
    first_order: int = 0
    orders: int = 1  # that are there, from the first on
    root: Path = field(default_factory=Path)


def print_report(report: Report) -> None:
    """Print it to standard output."""
    maker = rich_table() if stdout_is_terminal() else None
    print()
    _table(
        maker,
        report.title,
        ["", "", "count", "time", "rate"],
        [line.cells() for line in report.lines],
    )
    _table(
        maker,
        "On disk",
        ["", "", "files", "bytes", "allocated"],
        [
            [
                name,
                _NAMES.get(name, ""),
                f"{one['files']:,}",
                human_bytes(one["bytes"]),
                human_bytes(one["allocated"]),
            ]
            for name, one in report.disk.items()
        ],
    )
    name, events = report.example
    _table(
        maker,
        f"Order {name.removeprefix('order-')}, found by key",
        ["event", "topic", "stored", "queue", "offset"],
        [
            [
                message.tags or "",
                message.topic,
                format_millis(message.store_timestamp),
                str(message.queue_id),
                str(message.queue_offset),
            ]
            for message in events
        ],
    )
    if report.seed is not None:
        where, message = report.seed
        body = message.body.decode("utf-8", "replace")
        psly = message.properties.get("psly")
        print(printable(f"{where}: {body!r}, tag {message.tags}, psly={psly}"))
        print()
    root = shlex.quote(str(report.root))
    print(f"Go on:  rmqstore info {root}")
    print(f"        rmqstore find {root} --key {name}")
    print(f"        rmqstore cat {root} -t orders -q 0 --from -3")


def _human_seconds(seconds: float) -> str:
    """Return a time with a fitting unit."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.1f} ms" if seconds >= 0.001 else f"{seconds * 1e6:.0f} us"


def _table(maker: Any, title: str, headings: list[str], rows: list[list[str]]) -> None:
    """Print a small table: the first two columns are text, the others stand at the right."""
    if maker is not None:
        from rich.text import Text

        table = maker(
            title=Text(title, style="bold"),
            title_justify="left",
            pad_edge=False,
            header_style="dim",
        )
        for number, heading in enumerate(headings):
            style = "bold cyan" if number == 0 else "green" if number == 4 else None
            justify = "left" if number < 2 else "right"
            table.add_column(heading, justify=justify, style=style, no_wrap=True)
        for row in rows:
            table.add_row(*[Text(printable(cell)) for cell in row])
        rich_print(table)
        print()
        return
    lines = [headings, *rows]
    widths = [max(map(width_of, column)) for column in zip(*lines, strict=True)]
    print(title)
    for line in lines:
        cells = [
            pad(printable(cell), width, right=number >= 2)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())
    print()
