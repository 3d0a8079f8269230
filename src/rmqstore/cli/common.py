"""Parts shared by all verbs: the STORE argument, common options, opening."""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.base.arguments import did_you_mean
from rmqstore.base.times import parse_time
from rmqstore.base.warn import log_nothing
from rmqstore.cli.completion import (
    Completer,
    complete_directory,
    complete_file,
    complete_group,
    complete_topic,
    complete_words,
)
from rmqstore.cli.failures import NOT_FOUND, UNREADABLE, USAGE, CliError, say
from rmqstore.cli.interrupts import interruptible
from rmqstore.cli.progress import Progress
from rmqstore.files.links import absolute
from rmqstore.files.paths import (
    ABORT,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    LOCK,
    STORE_ENTRIES,
    parse_offset_file_name,
)

if TYPE_CHECKING:
    from rmqstore.config.store_config import StoreConfig
    from rmqstore.store import MessageStore, Mode
    from rmqstore.topic import Topic

__all__ = [
    "OUTPUTS",
    "STORE_VARIABLE",
    "TIME_FORMS",
    "corruption_option",
    "damage_option",
    "group_option",
    "jobs_option",
    "known_queue",
    "known_topic",
    "load_config",
    "once",
    "open_store",
    "output_option",
    "read_config",
    "refuse_file",
    "refuse_foreign",
    "reported_damage",
    "store_command",
    "time_of",
    "topic_option",
    "unknown_name",
    "zone_option",
]

STORE_VARIABLE = "RMQSTORE_PATH"
OUTPUTS = ("table", "jsonl", "csv")
TIME_FORMS = "ISO-8601 (without a zone it is UTC, with --local local time), @MS, or -2h"

_READING = frozenset((
    "info", "topics", "queues", "du", "stats", "groups", "lag", "delays", "txn", "dlq", "cat",
    "get", "find", "grep", "trace", "unconsumed", "verify", "plan", "diff",
))  # fmt: skip
_APPLYING = ("clean", "rebuild", "repair", "restore")  # with --apply
_NAMES_SHOWN = 6
_FILES = ("DIR", "FILE", "JOURNAL")  # metavars
_PATHS = ("b", "directory", "file", "out.html")  # places

Function = Callable[..., None]


def time_of(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Parse a time option into ms; callback for verbs that also have :func:`zone_option`."""
    if value is None:
        return None
    try:
        return parse_time(value, name=param.opts[0], local=ctx.params["local"])
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None


def store_command(
    *places: str,
    store_name: str = "STORE",
    instead: str | None = None,
    store_last: bool = False,
    examples: Sequence[str] = (),
) -> Callable[[Function], click.Command]:
    """Make a verb of a function that takes ``store``, ``config`` and ``places``.

    ``places`` are the arguments behind STORE, passed on by their names in lower case. Even if
    ``RMQSTORE_PATH`` names the store, one argument more than ``places`` is STORE. ``instead`` is
    the option that may replace the only place; ``store_last``: STORE is behind ``places``. The help
    ends with ``examples``, each without the program's name.
    """
    every_place = places
    named_words = [*places, store_name] if store_last else [store_name, *places]
    optional = [*places] if instead else []
    usage = [f"[{one}]" if one in optional else one for one in named_words]
    lines = "".join(f"  rmqstore {one}\n" for one in examples)

    def decorate(function: Function) -> click.Command:
        @functools.wraps(function)
        def run(words: tuple[str, ...], store: str | None, **options: Any) -> None:
            path = store or os.environ.get(STORE_VARIABLE) or None
            given = list(words)
            is_option = instead is not None and options.get(instead) is not None
            places = () if is_option else every_place
            hint = f"; {every_place[0]} may also be given as --{instead}" if instead else ""
            if store is None and len(given) == len(places) + 1:
                path = given.pop(-1 if store_last else 0)
            if len(given) > len(places):
                # Without --store and the variable the first word was the store.
                extra = len(places) + (path is None)
                raise click.UsageError(f"unexpected argument {given[extra]!r}")
            if path is None:
                wanted = " and ".join(named_words if places else [store_name])
                raise click.UsageError(
                    f"{wanted} {'are' if places else 'is'} needed, or {STORE_VARIABLE} for "
                    f"{store_name}{hint if places else ''}"
                )
            if len(given) < len(places):
                raise click.UsageError(f"{places[len(given)]} is missing{hint}")
            named = {place.lower(): word for place, word in zip(places, given, strict=True)}
            _check_paths({store_name: path, **named})
            _check_texts(named)
            with interruptible() if _only_reads(options) else contextlib.nullcontext():
                _run(function, {**options, **named, "store": path})

        decorators = [
            click.command(epilog=f"\b\nExamples:\n{lines}" if lines else None),
            click.argument(
                "words",
                nargs=-1,
                metavar=" ".join(usage),
                shell_complete=complete_words(every_place),
            ),
            click.option(
                "--store",
                metavar="DIR",
                shell_complete=complete_directory,
                help=f"The store; overrides {STORE_VARIABLE}.",
            ),
            click.option(
                "-c",
                "--config",
                metavar="FILE",
                shell_complete=complete_file,
                help="A broker.conf, for file sizes, paths and retention.",
            ),
        ]
        made: Any = run
        for one in reversed(decorators):
            made = one(made)
        assert isinstance(made, click.Command)
        return made

    return decorate


def _run(function: Function, given: dict[str, Any]) -> None:
    """Call a verb's function; an error for damage of the log has the option that passes over it."""
    from rmqstore.errors import StoreCorruptError

    try:
        function(**given)
    except StoreCorruptError as error:
        if given.get("on_corruption") != "raise" or CONFIG in Path(error.path).parts:
            raise
        raise CliError(f"{error}; --on-corruption skip goes on behind it", UNREADABLE) from None


def _only_reads(options: Mapping[str, object]) -> bool:
    """Whether a verb with these options writes nothing, neither into a store nor beside it."""
    verb = click.get_current_context().info_name
    return verb in _READING or (
        verb in _APPLYING and not options["apply"] and options.get("undo") is None
    )


def _check_paths(places: Mapping[str, str]) -> None:
    """Raise if a path is empty, as of a variable that is not set: not the working directory."""
    for place, word in places.items():
        if not word and (place.isupper() or place in _PATHS):
            raise click.UsageError(f"{place.upper()} is empty")


def _check_texts(places: Mapping[str, str]) -> None:
    """Raise unless the verb's texts are UTF-8; file names may be any bytes."""
    ctx = click.get_current_context()
    given: list[tuple[str, object]] = [
        (place.upper(), word) for place, word in places.items() if place not in _PATHS
    ]
    given += [
        (param.opts[-1], ctx.params.get(param.name or ""))
        for param in ctx.command.params
        if param.name not in ("words", "form") and getattr(param, "metavar", "") not in _FILES
    ]
    for name, value in given:
        for text in value if isinstance(value, tuple) else (value,):
            try:
                str(text).encode()
            except UnicodeEncodeError:
                raise click.UsageError(f"{name} must be UTF-8, got {text!r}") from None


def _only(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> str | None:
    """Return the single value of an option; refuse several, of which one would win unnoticed."""
    if len(values) > 1:
        raise click.UsageError(f"{param.opts[-1]} is given {len(values)} times", ctx)
    return values[0] if values else None


def once(
    *names: str,
    text: str,
    metavar: str | None = None,
    required: bool = False,
    complete: Completer | None = None,
) -> Callable[[Function], Function]:
    """Add an option with a text that may be given once."""
    return click.option(
        *names,
        metavar=metavar,
        multiple=True,
        callback=_only,
        help=text,
        required=required,
        shell_complete=complete,
    )


def topic_option(text: str) -> Callable[[Function], Function]:
    """Add ``-t TOPIC``, which may be given once."""
    return once("-t", "--topic", metavar="TOPIC", text=text, complete=complete_topic)


def group_option(text: str, *, required: bool = False) -> Callable[[Function], Function]:
    """Add ``-g GROUP``, which may be given once."""
    return once(
        "-g", "--group", metavar="GROUP", text=text, required=required, complete=complete_group
    )


def unknown_name(kind: str, name: str, known: Iterable[str]) -> CliError:
    """Return the error for an unknown name of a ``kind``, with the nearest of ``known``."""
    names = sorted(known)
    hint = did_you_mean(name, names)
    if not hint and names:
        names.sort(key=_is_of_the_broker)  # the user's own first
        hint = f"there {'is' if len(names) == 1 else 'are'} " + ", ".join(names[:_NAMES_SHOWN])
        hint += f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    elif not hint:
        hint = f"there is no {kind} at all"
    return CliError(f"no {kind} {name!r}; {hint}", NOT_FOUND)


def _is_of_the_broker(name: str) -> bool:
    from rmqstore.consume.groups import is_system_group
    from rmqstore.services.stored import is_system_topic

    return is_system_group(name) or is_system_topic(name)


def known_topic(store: MessageStore, name: str) -> Topic:
    """Return a topic; the error for an unknown one names the nearest."""
    topics = store.topics
    if name not in topics:
        raise unknown_name("topic", name, topics)
    return topics[name]


def known_queue(topic: Topic, queue_id: int) -> None:
    """Raise, naming the topic's queues, unless one has this id."""
    if queue_id not in topic:
        ids = sorted(topic)
        shown = ", ".join(map(str, ids[:_NAMES_SHOWN]))
        if ids and ids == list(range(ids[0], ids[-1] + 1)) and len(ids) > 1:
            shown = f"{ids[0]} to {ids[-1]}"
        elif len(ids) > _NAMES_SHOWN:
            shown += f" and {len(ids) - _NAMES_SHOWN} more"
        there = f"queue{'s' if len(ids) > 1 else ''} {shown}" if ids else "no queue at all"
        raise CliError(f"no queue {queue_id} in topic {topic.name!r}; it has {there}", NOT_FOUND)


def output_option(function: Function) -> Function:
    """Add ``-o table|jsonl|csv``, passed on as ``output``; ``None`` by default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(OUTPUTS),
        help="Default: a table on a terminal, JSON lines elsewhere. A table leaves out what does "
        "not fit the terminal.",
    )(function)


def corruption_option(function: Function) -> Function:
    """Add ``--on-corruption raise|skip``, passed on as ``on_corruption``."""
    return click.option(
        "--on-corruption",
        type=click.Choice(("raise", "skip")),
        default="raise",
        show_default=True,
        help="At a damaged record: end with an error, or go on behind it.",
    )(function)


def damage_option(function: Function) -> Function:
    """Add ``--on-corruption raise|skip``, passed on as ``on_corruption``; ``None`` by default."""
    return click.option(
        "--on-corruption",
        type=click.Choice(("raise", "skip")),
        help="At a damaged record: end, or go on and end with exit code 0.  [default: go on, and "
        "end with exit code 4]",
    )(function)


def jobs_option(of: str) -> Callable[[Function], Function]:
    """Return the decorator that adds ``--jobs N``, passed on as ``jobs``; ``None`` by default."""
    return click.option("--jobs", type=click.IntRange(1, 256), help=f"{of}.  [default: cores]")


def zone_option(function: Function) -> Function:
    """Add ``--utc`` and ``--local``, passed on as ``local``."""
    return click.option(
        "--utc/--local",
        "utc",
        default=True,
        is_eager=True,  # time options use it
        callback=_set_local,
        expose_value=False,
        help="Show times in UTC, or in this machine's zone; a time given without a zone is read "
        "as times are shown.  [default: utc]",
    )(function)


def _set_local(ctx: click.Context, param: click.Parameter, utc: bool) -> None:
    """Add ``local`` to the values of a verb's options."""
    ctx.params["local"] = not utc


def refuse_foreign(root: Path) -> None:
    """Raise unless ``root`` is missing, empty, or a store, and lies in no other store."""
    from rmqstore.directory.layout import refuse_inside
    from rmqstore.errors import IncompatibleStoreError

    if root.exists():
        _refuse_other(root)
    try:
        refuse_inside(str(root))
    except IncompatibleStoreError as error:
        raise CliError(str(error), USAGE) from None


def refuse_file(root: Path) -> None:
    """Raise if anything but a directory is at a path where one is to be made."""
    if root.exists() and not root.is_dir():
        raise CliError(f"{root} is no directory: give an empty directory or a new name", USAGE)


def _refuse_other(root: Path) -> None:
    """Raise unless the directory is empty or a store."""
    refuse_file(root)
    log = root / COMMIT_LOG
    is_store = (root / CONSUME_QUEUE).is_dir() or (
        log.is_dir() and any(parse_offset_file_name(one.name) is not None for one in log.iterdir())
    )
    entries = {one.name for one in root.iterdir()}
    # A process killed while creating a store leaves no more than this.
    begun = entries <= STORE_ENTRIES and not entries.isdisjoint((LOCK, ABORT))
    if entries and not is_store and not begun:
        from rmqstore.directory.layout import stores_near

        near = stores_near(str(root))
        hint = "name a directory that is empty or not there yet"
        if near:
            hint = f"did you mean {' or '.join(near)}?"
        raise CliError(f"{root} holds something else than a store; {hint}", USAGE)


def read_config(config: str, *, strict: bool = False) -> tuple[StoreConfig, list[str]]:
    """Read a broker.conf; return it, and the warnings about the file.

    ``strict``: refuse values that a broker passes over.
    """
    from rmqstore.config.store_config import StoreConfig, read_as_broker

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            settings = (StoreConfig.from_file if strict else read_as_broker)(config)
        except ValueError as error:
            raise CliError(str(error), USAGE) from None
    return settings, [str(warning.message) for warning in caught]


def load_config(
    config: str | None, warn: Callable[[str], None] | None = None, *, strict: bool = False
) -> StoreConfig | None:
    """Read a broker.conf; warnings about it go to ``warn``, by default to standard error."""
    if config is None:
        return None
    settings, warned = read_config(config, strict=strict)
    for text in warned:
        (warn or say)(text)
    return settings


def open_store(
    path: str, mode: Mode, config: str | None, *, warn: bool = True, copy: bool = False
) -> MessageStore:
    """Open a store; write repairs and damage found to standard error, a line each.

    ``copy``: it may be a copy of the configured one.
    """
    import rmqstore
    from rmqstore.directory.layout import config_of_copy

    # Ranges are shown here: logging would repeat them on standard error.
    log_nothing()
    settings = load_config(config, strict=mode != "r")
    if copy:
        settings = config_of_copy(absolute(path), settings)
    with Progress("opening"):
        store = rmqstore.open(path, mode, config=settings)
    for damage in reported_damage(store) if warn else ():
        say(damage)
    return store


def reported_damage(store: MessageStore) -> list[str]:
    """Return the log's damage that no later read reports, a line for each place."""
    recovery = store.recovery
    mended = [
        str(one)
        for one in recovery.ranges
        if one.kind in ("cut", "filled") or (one.kind == "damaged" and not one.named)
    ]
    return [*(f"commit log: {one}" for one in recovery.damaged_files), *mended]
