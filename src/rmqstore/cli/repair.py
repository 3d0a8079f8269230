"""``repair`` and ``rebuild``: a stopped store mended, its queues and index made anew."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqstore.base.warn import log_nothing
from rmqstore.cli.common import jobs_option, load_config, once, output_option, store_command
from rmqstore.cli.failures import NOT_FOUND, UNREADABLE, USAGE, CliError, say
from rmqstore.cli.output import Column, resolve
from rmqstore.cli.progress import Progress
from rmqstore.cli.text import human_bytes, plural
from rmqstore.cli.writers import writer_for
from rmqstore.errors import StoreCorruptError
from rmqstore.files.paths import CONSUME_QUEUE

if TYPE_CHECKING:
    from rmqstore.config.store_config import StoreConfig
    from rmqstore.toolbox.repairs.rebuild import Rebuilt
    from rmqstore.toolbox.repairs.repair import Action, Repair

__all__ = ["rebuild", "repair"]

_ACTION_COLUMNS = (
    Column("action"),
    Column("file", "path", least=24),
    Column("offset", "number", rank=3),
    Column("bytes", "bytes", rank=2),
    Column("saved_to", "path", rank=4),
    Column("done", rank=1),
    Column("lost", "count", rank=1),
    Column("dummies", "count", rank=1),
    Column("message", wrap=True),
)
_REBUILT_COLUMNS = (
    Column("rebuilt"),
    Column("file", "path", least=24),
    Column("units", "number", rank=1),
    Column("entries", "number", rank=1),
    Column("same"),
)


@store_command(
    examples=(
        "repair STORE",
        "repair STORE -c broker.conf --apply",
    )
)
@click.option("--apply", is_flag=True, help="Repair; the default is to show the plan.")
@once("--undo", metavar="JOURNAL", text="Undo a repair or rebuild by its journal.")
@output_option
@click.pass_context
def repair(
    ctx: click.Context,
    *,
    store: str,
    config: str | None,
    apply: bool,
    undo: str | None,
    output: str | None,
) -> None:
    """Repair a stopped store, so that a broker starts and shows all that is still there.

    Log, queues, index, JSON files, checkpoint.  Nothing is deleted: old bytes go into
    rmqstore-repair-TIME/ in the store.  Damaged records become dummies, so that queue offsets
    stay.  A repair that was killed is undone by the next one.  Exit code 1: there is something
    to do, or with --apply something is left.
    """
    from rmqstore import toolbox

    if apply and undo is not None:
        raise click.UsageError("--undo takes no --apply")
    log_nothing()
    settings = load_config(config)
    with Progress("repairing" if apply or undo else "examining"):
        if undo is not None:
            try:
                found = toolbox.undo(store, undo, config=settings)
            except ValueError as error:
                raise CliError(re.sub("^journal must", "--undo must", str(error)), USAGE) from None
        else:
            found = toolbox.repair(store, config=settings, apply=apply)
    for name in found.undone:
        say(f"{name}: ended in the middle; its changes were undone first")
    with writer_for(output, _ACTION_COLUMNS) as writer:
        for one in found.actions:
            writer.row(_action_row(one, explained=resolve(output) == "table"))
    if found.lost:
        say(_losses(found))
    if not found.actions:
        say("there is nothing to repair")
    elif found.journal is not None:
        say(f"the old bytes are in {found.journal}; --undo {found.journal} puts them back")
    elif undo is None:
        mended = any(one.action != "none" for one in found.actions)
        say("nothing was changed; --apply repairs it" if mended else "nothing was changed")
    if found.left:
        ctx.exit(NOT_FOUND)


def _losses(found: Repair) -> str:
    """Return the messages that are lost for good, and their bytes."""
    size = human_bytes(sum(one.bytes for one in found.actions if one.lost))
    became = f"{found.dummies:,} become dummies, so that their queue offsets stay"
    return f"{plural(found.lost, 'message')} in {size} of damage are lost for good: {became}"


def _action_row(one: Action, *, explained: bool) -> dict[str, object]:
    row: dict[str, object] = {
        "action": one.action,
        "file": one.file,
        "offset": one.offset,
        "bytes": one.bytes,
        "saved_to": one.saved_to,
        "done": one.done,
    }
    if one.lost:
        row.update(lost=one.lost, dummies=one.dummies)
    if explained or one.action in ("none", "set-aside-json"):
        row["message"] = one.message
    return row


@store_command(
    examples=(
        "rebuild STORE",
        "rebuild STORE --index --jobs 4 --apply",
    )
)
@click.option("--queues", is_flag=True, help="Only the consume queues.")
@click.option("--index", is_flag=True, help="Only the index; with --queues both, the default.")
@jobs_option("Threads")
@click.option("--apply", is_flag=True, help="Replace what differs; the default is to compare.")
@output_option
@click.pass_context
def rebuild(
    ctx: click.Context,
    *,
    store: str,
    config: str | None,
    queues: bool,
    index: bool,
    jobs: int | None,
    apply: bool,
    output: str | None,
) -> None:
    """Compare queues and index of a stopped store with its log, and make anew what differs.

    New files are as a broker builds them, in the sizes of the old ones; the old ones go into
    rmqstore-repair-TIME/, see repair --undo.  Exit code 1: a file differs.
    """
    from rmqstore import toolbox

    log_nothing()
    both = queues == index
    settings = load_config(config)
    guessed = _guessed_sizes(store, settings) if queues or both else None
    try:
        with Progress("rebuilding" if apply else "comparing"):
            found = toolbox.rebuild(
                store,
                queues=queues or both,
                index=index or both,
                jobs=jobs,
                apply=apply,
                config=settings,
            )
    except StoreCorruptError as error:
        raise CliError(f"{error}; 'rmqstore repair' mends the log first", UNREADABLE) from None
    with writer_for(output, _REBUILT_COLUMNS) as writer:
        for one in found:
            writer.row(_rebuilt_row(one))
    differing = sum(not one.same for one in found)
    if not differing:
        say("all files are as the log has them")
        return
    if apply:
        say("made anew; the old files are in the newest rmqstore-repair-*: repair --undo takes it")
    else:
        say(f"{differing} of {len(found)} files differ; --apply makes them anew")
    if guessed:
        say(guessed)
    if not apply:
        ctx.exit(NOT_FOUND)


def _guessed_sizes(store: str, settings: StoreConfig | None) -> str | None:
    """Return a warning where new queues get a size that nothing shows."""
    from rmqstore.config.file_sizes import sizes_left_open
    from rmqstore.config.store_config import StoreConfig

    chosen = settings or StoreConfig()
    is_open = "mapped_file_size_consume_queue" in sizes_left_open(chosen)
    if not is_open or any(Path(store, CONSUME_QUEUE).glob("*/*/*")):
        return None
    return (
        f"no file of a queue shows its size: {chosen.mapped_file_size_consume_queue:,} bytes are "
        "taken; if the broker.conf has another mappedFileSizeConsumeQueue, give it with -c, or "
        "the broker does not start"
    )


def _rebuilt_row(one: Rebuilt) -> dict[str, object]:
    counted = "units" if one.rebuilt == "queue" else "entries"
    return {"rebuilt": one.rebuilt, "file": one.file, counted: one.count, "same": one.same}
