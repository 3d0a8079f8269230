"""``restore``: contents of the quarantine, and their return to the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rmqstore.cli.common import load_config, output_option, store_command, zone_option
from rmqstore.cli.failures import NOT_FOUND, say
from rmqstore.cli.output import Column
from rmqstore.cli.progress import Progress
from rmqstore.cli.writers import writer_for

if TYPE_CHECKING:
    from rmqstore.config.store_config import StoreConfig
    from rmqstore.offline.quarantine import SavedRange

__all__ = ["restore"]

_PREPARED = 0x4  # bit of sys_flag in prepared records and rollbacks, which are in no queue

_COLUMNS = (
    Column("file", "path", least=24),
    Column("offset", "number", rank=3),
    Column("saved", "time", rank=5),
    Column("bytes", "bytes", rank=2),
    Column("records", "count", rank=1),
    Column("place", rank=4),
    Column("state"),
)


@store_command(
    examples=(
        "restore STORE",
        "restore STORE --apply",
    )
)
@click.option("--apply", is_flag=True, help="Put back what fits; the default is to show the plan.")
@zone_option
@output_option
@click.pass_context
def restore(
    ctx: click.Context,
    *,
    store: str,
    config: str | None,
    apply: bool,
    output: str | None,
    local: bool,
) -> None:
    """List the files of rmqstore-quarantine/, and with --apply put them back into the log.

    PLACE is the log's present content at their place: filler, empty, same, written, gone. Valid
    records go back over a filler, or to the end of the log if nothing was written there since.
    First --apply recovers the store, as opening it to write does.  Exit code 1: there is something
    to apply, or with --apply valid records are left.
    """
    from rmqstore.offline import quarantine

    settings = load_config(config, strict=True)
    with Progress("restoring" if apply else "reading"):
        if apply:
            found = quarantine.restore(store, config=settings)
        else:
            found = quarantine.saved_ranges(store, config=settings)
    left = 0
    with writer_for(output, _COLUMNS, local=local) as writer:
        for each in found:
            if each.restorable:
                state = "restored" if apply else "restorable"
                left += not apply
            elif each.place == "same":
                state = "in the log"
            elif each.records:
                state = "kept"
                left += 1
            else:
                state = "no good record"
            writer.row(
                {
                    "file": each.path,
                    "offset": each.offset,
                    "saved": each.saved_at,
                    "bytes": each.size,
                    "records": each.records,
                    "place": each.place,
                    "state": state,
                }
            )
    if not apply and any(each.restorable for each in found):
        say("nothing was changed; --apply puts them back")
    if not found:
        say("nothing lies in the quarantine")
    if apply and (unqueued := _without_place(store, settings, found)):
        say(
            f"{unqueued} of the messages are in no queue: others have their places by "
            "now, or their topic was deleted; 'get' and a scan show them"
        )
    if left:
        ctx.exit(NOT_FOUND)


def _without_place(store: str, settings: StoreConfig | None, found: list[SavedRange]) -> int:
    """Return the number of restored messages that are not in their queues."""
    import rmqstore

    count = 0
    if not any(each.restorable for each in found):
        return 0
    with rmqstore.open(store, "r", config=settings) as opened:
        for each in found:
            if not each.restorable:
                continue
            for message in opened.scan(start=each.offset, stop=each.offset + each.size):
                if message.sys_flag & _PREPARED:
                    continue
                topic, at = opened.topics.get(message.topic), message.queue_offset
                queue = topic[message.queue_id] if topic and message.queue_id in topic else None
                count += (
                    queue is None
                    or not queue.min_offset <= at < queue.max_offset
                    or queue.units(at, at + 1)["physical_offset"][0] != message.physical_offset
                )
    return count
