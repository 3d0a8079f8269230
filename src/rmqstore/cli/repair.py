"""``repair`` and ``rebuild``: a stopped store mended, its queues and index made anew."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
from rmqstore.directory.lock_owner import LockOwner, lock_owner
from rmqstore.errors import StoreCorruptError
from rmqstore.files.paths import CONSUME_QUEUE, parse_offset_file_name

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
    is_table = resolve(output) == "table"
    columns: Sequence[Column] = _ACTION_COLUMNS
    if is_table and not found.lost:
        columns = [one for one in columns if one.name not in ("lost", "dummies")]
    with writer_for(output, columns) as writer:
        for one in found.actions:
            writer.row(_action_row(one, explained=is_table))
    if found.lost:
        say(_losses(found))
    say(_outcome(found, store, config, apply=apply, undo=undo is not None))
    if found.left:
        ctx.exit(NOT_FOUND)


def _outcome(found: Repair, store: str, config: str | None, *, apply: bool, undo: bool) -> str:
    """Return what was changed, and the command that goes on."""
    from rmqstore.toolbox.checks.next_command import command_line

    owner = None if apply or undo else _owner(store)
    if owner is not None:
        text = _in_use(owner)
    elif not found.actions:
        text = "there is nothing to repair"
    elif undo:
        text = f"{plural(len(found.actions), 'change')} undone: the files are as they were before"
    elif found.journal is not None:
        back = command_line("repair", store, ("--undo", found.journal), config)
        text = f"the old bytes are in {found.journal}; to put them back: {back}"
    elif apply or all(one.action == "none" for one in found.actions):
        text = "nothing was changed"
    else:
        change = command_line("repair", store, ("--apply",), config)
        text = f"nothing was changed; to repair it: {change}"
    return text


def _in_use(owner: LockOwner) -> str:
    return f"the store is in use by {owner}; stop it first: until then nothing is changed"


def _owner(store: str) -> LockOwner | None:
    try:
        return lock_owner(store)
    except OSError:
        return None


def _losses(found: Repair) -> str:
    """Return the messages that are lost for good, and their bytes."""
    size = human_bytes(sum(one.bytes for one in found.actions if one.lost))
    became = f"{found.dummies:,} become dummies, so that their queue offsets stay"
    if found.dummies:
        became += "; consumers get each as a body of zeros with the property RMQSTORE_LOST"
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
    if explained:
        row["file"] = _shown(one.file)
    if explained or one.action in ("none", "set-aside-json"):
        row["message"] = one.message
    return row


def _shown(file: str) -> str:
    """Return a file for people: of a queue's, the topic and queue, and where it begins."""
    first, *place = file.split("/")
    start = parse_offset_file_name(place[-1]) if len(place) == 3 else None
    if first != CONSUME_QUEUE or start is None:
        return file
    return "/".join(place[:2]) + (f" at {start}" if start else "")


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
    from rmqstore.toolbox.checks.next_command import command_line
    from rmqstore.toolbox.repairs.journal import journals

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
        first = command_line("repair", store, (), config)
        raise CliError(f"{error}; to mend the log first: {first}", UNREADABLE) from None
    with writer_for(output, _REBUILT_COLUMNS) as writer:
        for one in found:
            writer.row(_rebuilt_row(one, explained=resolve(output) == "table"))
    differing = sum(not one.same for one in found)
    if not differing:
        say("all files are as the log has them")
        return
    if apply:
        name = journals(Path(store))[-1].name
        back = command_line("repair", store, ("--undo", name))
        say(f"made anew; the old files are in {name}; to put them back: {back}")
    else:
        only = ["--queues"] * (queues and not both) + ["--index"] * (index and not both)
        way = f"to make them anew: {command_line('rebuild', store, (*only, '--apply'), config)}"
        if (owner := _owner(store)) is not None:
            way = _in_use(owner)
        say(f"{differing} of {len(found)} files differ; {way}")
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


def _rebuilt_row(one: Rebuilt, *, explained: bool) -> dict[str, object]:
    counted = "units" if one.rebuilt == "queue" else "entries"
    file = _shown(one.file) if explained else one.file
    return {"rebuilt": one.rebuilt, "file": file, counted: one.count, "same": one.same}
