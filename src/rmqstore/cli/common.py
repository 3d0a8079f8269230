"""What every verb shares: the STORE argument, the common options, opening."""

from __future__ import annotations

import functools
import logging
import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.failures import USAGE, CliError
from rmqstore.times import parse_time

if TYPE_CHECKING:
    from rmqstore.config import StoreConfig
    from rmqstore.store import MessageStore, Mode

__all__ = [
    "OUTPUTS",
    "STORE_VARIABLE",
    "load_config",
    "open_store",
    "output_option",
    "store_command",
    "time_of",
]

STORE_VARIABLE = "RMQSTORE_PATH"
OUTPUTS = ("table", "jsonl", "csv")

Function = Callable[..., None]


def time_of(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return what a time option means, in ms; the callback of such an option."""
    if value is None:
        return None
    try:
        return parse_time(value, name=param.opts[0])
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None


def store_command(*places: str, store_name: str = "STORE") -> Callable[[Function], click.Command]:
    """Make a verb of a function that takes ``store``, ``config`` and ``places``.

    Parameters
    ----------
    *places : str
        Arguments behind STORE, as the usage shows them; passed on by their names in small letters.
    store_name : str
        How the usage calls the first one.

    Notes
    -----
    Where ``--store`` or ``RMQSTORE_PATH`` names the store, STORE is left out; one argument more
    than ``places`` is STORE all the same.
    """

    def decorate(function: Function) -> click.Command:
        @functools.wraps(function)
        def run(words: tuple[str, ...], store: str | None, **options: Any) -> None:
            path = store or os.environ.get(STORE_VARIABLE) or None
            given = list(words)
            if store is None and len(given) == len(places) + 1:
                path = given.pop(0)
            if len(given) > len(places):
                raise click.UsageError(f"unexpected argument {given[len(places)]!r}")
            if path is None:
                wanted = " and ".join([store_name, *places])
                raise click.UsageError(
                    f"{wanted} {'are' if places else 'is'} needed, or {STORE_VARIABLE} for "
                    f"{store_name}"
                )
            if len(given) < len(places):
                raise click.UsageError(f"{places[len(given)]} is missing")
            named = {place.lower(): word for place, word in zip(places, given, strict=True)}
            function(store=path, **named, **options)

        decorators = [
            click.command(),
            click.argument("words", nargs=-1, metavar=" ".join([store_name, *places])),
            click.option("--store", metavar="DIR", help=f"The store; overrides {STORE_VARIABLE}."),
            click.option(
                "-c",
                "--config",
                metavar="FILE",
                help="A broker.conf that names file sizes and the like.",
            ),
        ]
        made: Any = run
        for one in reversed(decorators):
            made = one(made)
        assert isinstance(made, click.Command)
        return made

    return decorate


def output_option(function: Function) -> Function:
    """Add ``-o table|jsonl|csv``, passed on as ``output``: ``None`` where it is not given."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(OUTPUTS),
        help="Default: a table on a terminal, JSON lines elsewhere.",
    )(function)


def load_config(config: str | None) -> StoreConfig | None:
    """Read a broker.conf; warnings about it become lines on standard error."""
    from rmqstore.config import StoreConfig

    if config is None:
        return None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            settings = StoreConfig.from_file(config)
        except ValueError as error:
            raise CliError(str(error), USAGE) from None
    for warning in caught:
        click.echo(f"rmqstore: {warning.message}", err=True)
    for name in settings.unsupported():
        click.echo(f"rmqstore: {config}: {name} has no effect in this version", err=True)
    return settings


def open_store(path: str, mode: Mode, config: str | None) -> MessageStore:
    """Open a store; what opening mended becomes lines on standard error."""
    import rmqstore

    # The ranges are shown here: logging would write them to standard error a second time.
    logging.getLogger("rmqstore").addHandler(logging.NullHandler())
    store = rmqstore.open(path, mode, config=load_config(config))
    for mended in store.recovery.ranges:
        click.echo(f"rmqstore: {mended}", err=True)
    return store
