"""Messages in the requested form: the options for it, and the writer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli import render
from rmqstore.cli.common import output_option, zone_option
from rmqstore.cli.message_lines import Bodies, MessageLines
from rmqstore.cli.output import Column, Writer, resolve, write_bytes
from rmqstore.cli.writers import writer_for
from rmqstore.lines import BODY_MODES, csv_heading, csv_lines, formatted, json_lines

if TYPE_CHECKING:
    from rmqstore._core import Message

__all__ = ["Shown", "form_option", "shape_options"]


def form_option(function: Any) -> Any:
    """Add ``-f FORMAT``, passed on as ``form``."""
    return click.option(
        "-f",
        "--format",
        "form",
        metavar="FORMAT",
        help="Write each message by a format: " + render.format_help() + r", %%, \n, \t, \xHH.",
    )(function)


def shape_options(function: Any) -> Any:
    """Add the options for the form of messages."""
    body = click.option(
        "--body",
        type=click.Choice(BODY_MODES),
        default="auto",
        show_default=True,
        help="How bodies are written; auto: as text where they are UTF-8, else base64; in a table "
        "what trace messages say.",
    )
    return body(form_option(zone_option(output_option(function))))


class Shown:
    """Writer of messages in the requested form."""

    def __init__(
        self,
        output: str | None,
        form: str | None,
        body: str,
        local: bool,
        columns: Sequence[Column] = render.TABLE_COLUMNS,
        *,
        topic: str | None = None,  # which the user named: a table need not repeat it
    ) -> None:
        self.body = body
        self.bodies = Bodies()
        chosen = resolve(output)
        self.table: Writer | None = None
        if form is not None:
            pieces = render.parse_format(form)
            lines = self.bodies.noted(
                lambda rows, failed: formatted(rows, pieces, body, local=local, failed=failed)
            )
        elif chosen == "csv":
            cells = "auto" if body == "json" else body
            write_bytes(csv_heading(cells))
            lines = self.bodies.noted(
                lambda rows, failed: csv_lines(rows, cells, local=local, failed=failed)
            )
        elif chosen == "jsonl":
            lines = self.bodies.noted(
                lambda rows, failed: json_lines(rows, body, local=local, failed=failed)
            )
        else:
            self.table = writer_for(
                "table", columns, local=local, typed={"topic": topic}, empty="no messages"
            )
            return
        self.lines = MessageLines(lines)

    @property
    def writer(self) -> Writer | MessageLines:
        """The writer to flush, and to use with ``with``."""
        return self.table or self.lines

    def all(self, messages: Iterable[Message]) -> None:
        """Write the messages."""
        if self.table is not None:
            for message in messages:
                self.table.row(render.as_row(message, self.body, self.bodies))
        else:
            self.lines.all(messages)
