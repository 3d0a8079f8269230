"""``help``: times, formats, places and other subjects that all verbs share, and help of verbs."""

from __future__ import annotations

import difflib
import textwrap

import click
from click.shell_completion import CompletionItem

from rmqstore.cli.completion import complete_from
from rmqstore.cli.output import write_bytes
from rmqstore.cli.render import format_help

__all__ = ["SUBJECTS", "help", "subject_text"]

# subject: heading, text; "{fields}" stands for the letters of a format.
SUBJECTS = {
    "times": (
        "How times are given and shown",
        """
2026-11-20T19:59:28.804Z      ISO-8601, as times are shown
2026-11-20T20:59:28+01:00     in another zone
2026-11-20 20:59, 2026-11-20  without a zone: UTC, with --local this machine's
@1763668768804                milliseconds since 1970-01-01T00:00Z
-90s -30m -2h -1d -1w         so long ago
now

Times are shown in UTC, with --local in this machine's zone. --since and --from
are inclusive, --until is exclusive. For cat a bare number is an offset, and -N
means the last N.

Example:
  rmqstore cat STORE -t orders --since -2h --until now
""",
    ),
    "formats": (
        "Letters of -f, --format",
        """
{fields}

%% is a percent sign; \\n \\t \\r \\0 \\\\ and \\xHH are bytes. No line break is added.

Example:
  rmqstore cat STORE -f '%t/%q@%o %T %k %s\\n'
""",
    ),
    "places": (
        "Where a message is",
        """
TOPIC/QUEUE@OFFSET  its place in a queue, as -f '%t/%q@%o' writes it; for get
physical offset     byte of the log, %p; for cat without -t and -q
queue offset        number in its queue, %o; for cat with -t and -q
message id          address of the broker and physical offset, %i; for get
unique key          set by its sender's client, %u; for get, find and trace
key                 chosen by its sender, %k; for find and trace

Example:
  rmqstore get STORE orders/0@5
""",
    ),
    "output": (
        "Tables, JSON lines, CSV",
        """
-o table  Default on a terminal, which it fits: columns that are equal in all
          rows go first and are named once above; then texts are shortened, then
          other columns left out.
-o jsonl  Default elsewhere: an object a line, with all columns; times as
          ISO-8601, sizes in bytes. "body" is a body that is UTF-8, another one
          is "body_base64".
-o csv    A heading, and a line for each row; lists are separated by blanks.

Progress and diagnostics go to standard error.

Example:
  rmqstore topics STORE -o jsonl | jq -r .topic
""",
    ),
    "exit-codes": (
        "Exit codes",
        """
0    fine
1    problems or differences found, nothing found, or a change to --apply
2    usage
3    open for writing elsewhere
4    unreadable: no such store, damage, an error of the system
130  interrupted
""",
    ),
    "stores": (
        "Which store a verb takes",
        """
STORE is the directory that holds "commitlog". It is left out where
RMQSTORE_PATH names it; --store overrides that. -c FILE gives the broker.conf,
for file sizes, paths and retention.

Verbs that read write nothing, take no lock, and may be used beside a running
broker. Those that change a store need it for themselves, most with --apply.

Example:
  RMQSTORE_PATH=/data/store rmqstore info
""",
    ),
}


def subject_text(name: str) -> str:
    """Return the text of a subject."""
    heading, text = SUBJECTS[name]
    fields = textwrap.fill(format_help(), 80)
    return f"{heading}\n{text.rstrip().replace('{fields}', fields)}"


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a subject or a verb."""
    main = ctx.find_root().command
    assert isinstance(main, click.Group)
    return complete_from([*SUBJECTS, *main.list_commands(ctx)], incomplete)


_EXAMPLES = """\b
Examples:
  rmqstore help times
  rmqstore help cat
"""


@click.command(epilog=_EXAMPLES)
@click.argument("topic", required=False, shell_complete=_complete)
@click.pass_context
def help(ctx: click.Context, topic: str | None) -> None:
    """Explain TOPIC: a verb, times, formats, places, output, exit-codes or stores."""
    root = ctx.find_root()
    main = root.command
    assert isinstance(main, click.Group)
    if topic is None:
        subjects = [f"  {name:<10}  {heading}" for name, (heading, _) in SUBJECTS.items()]
        text = "\n".join([main.get_help(root), "", "Subjects of 'rmqstore help':", *subjects])
    elif topic in SUBJECTS:
        text = subject_text(topic)
    elif topic in main.list_commands(root):
        verb = main.get_command(root, topic)
        assert verb is not None
        text = verb.get_help(click.Context(verb, parent=root, info_name=topic))
    else:
        near = difflib.get_close_matches(topic, [*SUBJECTS, *main.list_commands(root)], n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"subjects are {', '.join(SUBJECTS)}"
        raise click.UsageError(f"no help on {topic!r}; {hint}")
    write_bytes(text.encode() + b"\n")
