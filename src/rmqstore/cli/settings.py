"""``config``: broker.conf shown and checked, the broker's JSON converted."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import click

from rmqstore.base.warn import log_nothing
from rmqstore.cli.common import STORE_VARIABLE, output_option
from rmqstore.cli.completion import complete_directory, complete_file
from rmqstore.cli.failures import NOT_FOUND, USAGE, CliError, say
from rmqstore.cli.output import Column, write_bytes
from rmqstore.cli.text import plural
from rmqstore.cli.writers import writer_for
from rmqstore.toolbox.settings import config_convert, config_lint, config_show

__all__ = ["config"]

_COLUMNS = (
    Column("key", asked=True),
    Column("value", "path", width=80, least=8),
    Column("line", "number", rank=2),
    Column("problem", wrap=True),
    Column("nearest", rank=1),
    Column("meaning", wrap=True),
)
_ACTIONS = ("show", "lint", "convert")
_EXAMPLES = """\b
Examples:
  rmqstore config lint broker.conf STORE
  rmqstore config convert STORE/config/consumerOffset.json
"""


@click.command(epilog=_EXAMPLES)
@click.argument("action", type=click.Choice(_ACTIONS), metavar="show|lint|convert")
@click.argument("words", nargs=-1, metavar="[FILE] [STORE]", shell_complete=complete_file)
@click.option(
    "--store",
    metavar="DIR",
    shell_complete=complete_directory,
    help=f"The store; overrides {STORE_VARIABLE}.",
)
@click.option(
    "--to",
    type=click.Choice(("json", "fastjson")),
    help="For convert: standard JSON, or the broker's dialect.  [default: json]",
)
@output_option
@click.pass_context
def config(
    ctx: click.Context,
    *,
    action: str,
    words: tuple[str, ...],
    store: str | None,
    to: str | None,
    output: str | None,
) -> None:
    """Show or check a broker.conf, or convert the broker's JSON.

    show lists its keys with their meaning here, and the sizes of the store's files.  lint tells of
    unknown, wrong and repeated keys, and of those that contradict each other or the store's files:
    exit code 1.  convert writes topics.json, consumerOffset.json and their like, whose keys may be
    bare integers, as standard JSON, or --to fastjson back.
    """
    log_nothing()
    file, path = _places(action, words, store)
    if to is not None and action != "convert":
        raise click.UsageError(f"{action} takes no --to")
    if action == "convert":
        assert file is not None
        text = config_convert(file, to="fastjson" if to == "fastjson" else "json")
        end = "" if to == "fastjson" else "\n"  # a broker's file ends without a newline
        write_bytes((text + end).encode("utf-8", "surrogateescape"))
        return
    try:
        if action == "lint":
            assert file is not None
            found = config_lint(file, path)
        else:
            found = config_show(file, path)
    except ValueError as error:
        raise CliError(str(error), USAGE) from None
    with writer_for(output, _COLUMNS) as writer:
        for one in found:
            writer.row(dataclasses.asdict(one))
    problems = sum(one.problem is not None for one in found)
    if action == "lint" and problems:
        say(plural(problems, "problem"))
        ctx.exit(NOT_FOUND)


def _places(
    action: str, words: tuple[str, ...], store: str | None
) -> tuple[str | None, str | None]:
    """Return the file and the store of a command line, either may be missing."""
    given = list(words)
    path = store
    if action != "convert":
        if store is None and given and (len(given) > 1 or Path(given[-1]).is_dir()):
            path = given.pop()
        path = path or os.environ.get(STORE_VARIABLE) or None
    if len(given) > 1:
        raise click.UsageError(f"unexpected argument {given[1]!r}")
    file = given[0] if given else None
    if file is None and (action != "show" or path is None):
        wanted = "FILE or STORE" if action == "show" else "FILE"
        raise click.UsageError(f"{action} needs {wanted}")
    return file, path
