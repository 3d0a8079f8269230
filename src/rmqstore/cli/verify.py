"""``verify``: whether a broker would start on a store, each problem, and what mends it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from rmqstore.base.foreign import printable
from rmqstore.base.warn import log_nothing
from rmqstore.cli.common import jobs_option, load_config, output_option, store_command
from rmqstore.cli.failures import NOT_FOUND
from rmqstore.cli.output import Column, json_bytes, resolve, write_bytes
from rmqstore.cli.progress import Progress
from rmqstore.cli.table import print_fields
from rmqstore.cli.text import human_count, plural, shorten
from rmqstore.cli.writers import writer_for
from rmqstore.files.links import absolute
from rmqstore.files.paths import COMMIT_LOG

if TYPE_CHECKING:
    from rmqstore.offline import Finding
    from rmqstore.toolbox import Report

__all__ = ["verify"]

_SHOWN = 20  # problems; JSON has them all
_LINE_WIDTH = 200
_COLUMNS = [Column(name) for name in ("severity", "kind", "file", "offset", "message")]
_UNSEEN = (
    "a changed FLAG, time, host, RECONSUMETIMES or property other than tags and keys, unless its "
    "value is impossible: no checksum covers them"
)


@store_command(
    examples=(
        "verify STORE -c broker.conf",
        "verify STORE --full --jobs 2 -o jsonl",
    )
)
@click.option("--full", is_flag=True, help="Read every record, unit and index entry.")
@jobs_option("Threads")
@output_option
@click.pass_context
def verify(
    ctx: click.Context,
    *,
    store: str,
    config: str | None,
    full: bool,
    jobs: int | None,
    output: str | None,
) -> None:
    """Check a store: would a 4.9.3 broker start, what is wrong, what mends it.

    Names, lengths, headers and both ends of files are read, with --full and in small stores
    everything.  Nothing is written.  "stop" keeps a broker from starting, "lost" is lost or would
    be by its start, "warn" is neither.  Exit code 1 if there is something to do.
    """
    from rmqstore.toolbox.checks.verify import report_on

    log_nothing()
    settings = load_config(config)
    progress = Progress("verifying", "bytes" if full else "")

    def count(done: int) -> None:
        progress.done = done

    with progress:
        report = report_on(
            store,
            settings,
            full=full,
            jobs=jobs,
            done=count,
            config_file=None if config is None else absolute(config),
        )
    form = resolve(output)
    if form == "table":
        _show(store, report)
    elif form == "jsonl":
        for one in (_verdict(report), *(found.to_json() for found in report.problems)):
            write_bytes(json_bytes(one))
        write_bytes(json_bytes(_end(report)))
    else:
        with writer_for(form, _COLUMNS) as writer:
            for found in report.problems:
                writer.row(found.to_json())
    if not report.clean:
        ctx.exit(NOT_FOUND)


def _verdict(report: Report) -> dict[str, object]:
    return {
        "broker": report.broker,
        "line": report.line,
        "messages_lost": report.messages_lost,
    }


def _end(report: Report) -> dict[str, object]:
    checked = report.checked
    return {
        "checked": {
            "records": checked.records,
            "queues": checked.queues,
            "units": checked.units,
            "index_files": checked.index_files,
            "files": checked.files,
        },
        "fix": report.fix,
    }


def _show(store: str, report: Report) -> None:
    """Show a report to people."""
    fields = []
    if report.line:
        line = shorten(printable(" ".join(report.line.split())), _LINE_WIDTH)
        fields.append(("its log", line))
    fields += [(one.severity, _text(one)) for one in report.problems[:_SHOWN]]
    if len(report.problems) > _SHOWN:
        more = len(report.problems) - _SHOWN
        fields.append(("more", f"and {human_count(more)} more: -o jsonl has them all"))
    fields.append(("checked", _checked(report)))
    if report.full:
        fields.append(("unseen", _UNSEEN))
    if report.fix is not None:
        fields.append(("next", report.fix))
        if (more := _alone(report) - 1) > 0:
            fields.append(("then", f"verify again: {plural(more, 'offset')} more to set"))
    elif not report.clean:
        fields.append(("next", _by_hand(store, report)))
    else:
        fields.append(("next", "nothing: there is nothing to mend"))
    text = report.start.text
    print_fields(
        f"{store}: {text}",
        fields,
        bad=text if report.broker != "starts" else "",
        red=("stop", "lost"),
        whole=("its log", "next"),
    )


def _by_hand(store: str, report: Report) -> str:
    """Return what is done about problems that no command mends."""
    from rmqstore.toolbox.checks.next_command import command_line, is_in_use

    if is_in_use(report.problems):
        return "stop the process that has it, then verify again"
    if any(one.kind == "newer-format" and one.by_start for one in report.problems):
        away = command_line("export", store, ("messages.jsonl",))
        return f"run RocketMQ 5 on it; to take its messages elsewhere: {away}"
    if any((one.kind, one.file) == ("missing-file", COMMIT_LOG) for one in report.problems):
        again = command_line("verify", store, ("-c", "broker.conf"))
        return f"put the log's files back; if they are elsewhere: {again}"
    return "see to these by hand, then verify again"


def _alone(report: Report) -> int:
    """Return the number of commands, if each mends one problem."""
    commands = [one.command for one in report.problems if one.command]
    verb = shlex.split(report.fix or "")[1:2]
    return len(commands) if commands and verb == [commands[0][0]] else 0


def _text(one: Finding) -> str:
    place = f"{one.file}: " if one.file else ""
    return f"{one.kind}: {place}{one.message}"


def _checked(report: Report) -> str:
    """Return what was read."""
    checked = report.checked
    index = plural(checked.index_files, "index file")
    text = (
        f"{plural(checked.records, 'record')}, {plural(checked.units, 'unit')} of "
        f"{plural(checked.queues, 'queue')}, {index}, {plural(checked.files, 'file')}"
    )
    return text if report.full else f"{text}, at their ends; --full reads them whole"
