"""``completion``: the script for a shell to complete the command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    from rmqstore.store import MessageStore

__all__ = [
    "Completer",
    "complete_directory",
    "complete_file",
    "complete_from",
    "complete_group",
    "complete_topic",
    "complete_words",
    "completion",
]

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_SHELLS = ("bash", "zsh", "fish")


_HELP = """Print what SHELL needs to complete verbs, options, directories, topics and groups.

\b
bash  rmqstore completion bash > \\
        ~/.local/share/bash-completion/completions/rmqstore
zsh   rmqstore completion zsh > "${fpath[1]}/_rmqstore"
fish  rmqstore completion fish > \\
        ~/.config/fish/completions/rmqstore.fish

For the running shell alone: eval "$(rmqstore completion bash)".
"""
_EXAMPLES = """\b
Examples:
  rmqstore completion zsh > "${fpath[1]}/_rmqstore"
  rmqstore completion fish | source
"""


@click.command(help=_HELP, epilog=_EXAMPLES)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print click's script for a shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "rmqstore", "_RMQSTORE_COMPLETE").source())


def complete_directory(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Make the shell complete a directory."""
    return [CompletionItem(incomplete, type="dir")]


def complete_file(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Make the shell complete a file."""
    return [CompletionItem(incomplete, type="file")]


def complete_words(places: Iterable[str]) -> Completer:
    """Return what completes a verb's arguments: the store, then names for TOPIC in ``places``."""
    named = list(places)

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        given = len(_words(ctx))
        before = 0 if _variable(ctx) else 1  # the store
        if 0 <= given - before < len(named) and named[given - before] == "TOPIC":
            return complete_topic(ctx, param, incomplete)
        return complete_directory(ctx, param, incomplete)

    return complete


def complete_from(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return those of the names that begin so."""
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_topic(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete a topic of the store that was given."""
    from rmqstore.services.stored import is_system_topic

    return _names(ctx, incomplete, lambda store: store.topics, is_system_topic)


def complete_group(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete a consumer group of the store that was given."""
    from rmqstore.consume.groups import is_system_group

    return _names(ctx, incomplete, lambda store: store.groups, is_system_group)


def _variable(ctx: click.Context) -> str | None:
    """Return the store named by an option or by the variable."""
    return ctx.params.get("store") or os.environ.get("RMQSTORE_PATH") or None


def _words(ctx: click.Context) -> list[str]:
    """Return the arguments so far; before an option's value click leaves them unparsed."""
    return [*(ctx.params.get("words") or ()), *(one for one in ctx.args if one[:1] != "-")]


def _names(
    ctx: click.Context,
    incomplete: str,
    names: Callable[[MessageStore], Iterable[str]],
    is_system: Callable[[str], bool],
) -> list[CompletionItem]:
    """Return the names that begin so; those of the system only if no other does."""
    import warnings

    import rmqstore
    from rmqstore.base.warn import log_nothing

    words = _words(ctx)
    path = _variable(ctx) or (words[0] if words else None)
    if path is None:
        return []
    log_nothing()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with rmqstore.open(path, config=ctx.params.get("config")) as store:
                found = complete_from(names(store), incomplete)
    except (rmqstore.StoreError, OSError, ValueError):
        return []  # the verb itself says why
    users = [one for one in found if not is_system(one.value)]
    return users if users or not incomplete else found
