"""``completion``: the script for a shell to complete the command line."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

__all__ = ["complete_directory", "complete_file", "completion"]

_SHELLS = ("bash", "zsh", "fish")


_HELP = """Print what SHELL needs to complete verbs, options and directories.

\b
bash  rmqstore completion bash > \\
        ~/.local/share/bash-completion/completions/rmqstore
zsh   rmqstore completion zsh > "${fpath[1]}/_rmqstore"
fish  rmqstore completion fish > \\
        ~/.config/fish/completions/rmqstore.fish

For the running shell alone: eval "$(rmqstore completion bash)".
"""


@click.command(help=_HELP)
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
