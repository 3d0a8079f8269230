"""The command line: ``rmqstore VERB STORE ...``.

Only click is loaded here; a verb's module when that verb is used, the store when one is opened.

Exit codes: 0 fine, 1 not found, problems, or not all restored, 2 usage, 3 open for writing
elsewhere, 4 unreadable, no such store or an error of the system, 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from keyword import iskeyword
from typing import Any

import click
from click.shell_completion import CompletionItem

from rmqstore import __version__
from rmqstore.cli import failures

__all__ = ["main"]

# By job: verb: module under rmqstore.cli, one line of help
_SECTIONS = {
    "look": {
        "info": ("inspect", "Summary of a store: state, offsets, times, sizes."),
        "topics": ("inspect", "Topics with their messages, bytes and times."),
        "queues": ("inspect", "Queues with their offsets, bytes and times."),
        "du": ("sizes", "Bytes and messages by topic, queue, day, hour, tag or group."),
        "stats": ("sizes", "Rate, sizes, tags and keys of a topic."),
        "groups": ("groups", "Consumer groups, their topics, and with --lag their lag."),
        "lag": ("groups", "Lag of groups: messages, bytes and time."),
        "delays": ("waiting", "Delayed messages that wait, and when they are due."),
        "txn": ("waiting", "Half messages of transactions, and those without an end."),
        "dlq": ("groups", "Dead letters by group."),
        "metrics": ("metrics", "Figures for Prometheus, on standard output or in a file."),
        "report": ("report", "One HTML file on a store, for a ticket."),
    },
    "find": {
        "cat": ("messages", "Show messages, oldest first."),
        "get": ("messages", "Show one message by its id."),
        "find": ("messages", "Find messages by key, newest first."),
        "grep": ("search", "Messages by the text of their bodies and properties."),
        "trace": ("journey", "History of a message: half, delayed, retried, dead, passed."),
        "unconsumed": ("search", "Messages that a group has not consumed."),
    },
    "mend": {
        "verify": ("verify", "Would a broker start, what is wrong, what mends it."),
        "plan": ("plan", "What a broker would do: recover, delete, fill the disk."),
        "repair": ("repair", "Mend a stopped store so that a broker starts; undone by --undo."),
        "rebuild": ("repair", "Queues and index compared with the log, and made anew."),
        "restore": ("restore", "Bytes that recovery removed from the log; puts them back."),
        "clean": ("clean", "Files that retention would delete; deletes them with --apply."),
        "offsets": ("offsets", "Offsets of a group: get, set, by-time, clone."),
        "config": ("settings", "A broker.conf shown and checked; the broker's JSON converted."),
    },
    "move": {
        "put": ("put", "Write one message a line from standard input."),
        "export": ("exporting", "Messages as a file of Parquet, Arrow, CSV or JSON lines."),
        "import": ("exporting", "Messages of such a file, put into a store."),
        "extract": ("copies", "A new store with the messages of some topics."),
        "diff": ("copies", "Differences between two stores or copies."),
        "backup": ("copies", "A copy with sums, brought up to date by later runs."),
        "snapshot": ("copies", "A copy of a store in use, which opens clean."),
    },
    "serve": {
        "serve": ("serve", "Name server and broker for RocketMQ clients, on a store."),
    },
    "more": {
        "demo": ("demo", "Make a store of order events, then read and find them."),
        "completion": ("completion", "Completion script for bash, zsh or fish."),
        "help": ("manual", "A verb, or what verbs share: times, formats, places."),
    },
}
_VERBS = {verb: row for verbs in _SECTIONS.values() for verb, row in verbs.items()}


class _LazyGroup(click.Group):
    """Command group that imports a verb when used, and reports an error in one line."""

    _verb: click.Command | None = None  # the verb being run

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of the help."""
        return list(_VERBS)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the verbs that begin so, by section, without importing any, or options."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(verb, help=f"{section}: {text}")
            for section, verbs in _SECTIONS.items()
            for verb, (_, text) in verbs.items()
            if verb.startswith(incomplete)
        ]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a verb and return its command."""
        if cmd_name not in _VERBS:
            return None
        module = importlib.import_module(f"rmqstore.cli.{_VERBS[cmd_name][0]}")
        command = getattr(module, f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name)
        assert isinstance(command, click.Command)
        self._verb = command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; for an unknown one, fail with the nearest name."""
        if args[0] not in _VERBS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], _VERBS, n=1)
            ctx.fail(f"no verb {args[0]!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs by section, without importing any."""
        width = max(map(len, _VERBS))
        for section, verbs in _SECTIONS.items():
            formatter.write(f"\nVerbs: {section}\n")
            with formatter.indentation():
                formatter.write_dl(
                    [(f"{verb:<{width}}", text) for verb, (_, text) in verbs.items()]
                )

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; end silently when the reader of a pipe closes it."""
        try:
            try:
                result = super().invoke(ctx)
            except click.exceptions.Exit:
                sys.stdout.flush()
                raise
            sys.stdout.flush()
        except BrokenPipeError:
            failures.drop_standard_output()
            return None
        return result

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and end the process with one of the exit codes."""
        prog_name = prog_name or self.name
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        failures.guard_standard_streams()
        sys.excepthook = failures.show_defect
        if sys.stdout is None:
            # A file of the store would be opened as standard output's descriptor.
            failures.say("standard output is closed")
            sys.exit(failures.UNREADABLE)
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except Exception as error:
            code = failures.report(error, self._verb)
        except KeyboardInterrupt:
            code = failures.INTERRUPTED
        sys.exit(code if isinstance(code, int) else 0)


@click.command(
    "rmqstore",
    cls=_LazyGroup,
    subcommand_metavar="VERB STORE ...",
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.version_option(__version__, message="rmqstore %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """RocketMQ 4.9.3 message stores: look into them, find messages, write your own.

    STORE is the directory that holds "commitlog".  Where RMQSTORE_PATH names it, leave it out.
    Verbs only read, but for put, import, serve and demo, and clean, repair, rebuild, restore and
    offsets with --apply, and may be used beside a running broker.

    Times are in UTC, with --local in this machine's zone: those shown and those given without one.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(failures.USAGE)
