"""Command that mends what a check has found."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable

from rmqstore.files import paths
from rmqstore.offline.findings import Finding

__all__ = ["QUEUE_KINDS", "asking", "command_line", "is_in_use", "next_command"]

QUEUE_KINDS = frozenset(
    ("ext-mismatch", "queue-extra", "queue-file-missing", "queue-missing", "unit-duplicate",
     "unit-mismatch", "unit-missing")
)  # fmt: skip
# Warnings that ask for nothing: the state of a store in use or killed, and what cannot be changed.
_NOTES = frozenset(
    ("abort", "clock", "index-duplicate", "lock", "offset-below-start",
     "quarantine", "queue-unsaved", "record-field", "topic-unknown")
)  # fmt: skip
# Nothing here mends these; as long as one of the second is there, nothing mends any other either.
_BY_HAND = frozenset(("config-size", "missing-file", "newer-format", "permission", "queue-count"))
_FIRST = frozenset(("link", "unreadable"))
_OFFSET = "offset-beyond-end"
_NO_LOG = ("missing-file", paths.COMMIT_LOG)


def asking(problems: Collection[Finding]) -> list[Finding]:
    """Return the problems that ask for something."""
    found = [one for one in problems if not _is_note(one)]
    if not is_in_use(problems):
        return found
    return [one for one in found if one.kind != "index-behind"]  # its times follow at intervals


def is_in_use(problems: Iterable[Finding]) -> bool:
    """Whether a store is open for writing, as a check has found."""
    return any((one.kind, one.severity) == ("lock", "warn") for one in problems)


def _is_note(one: Finding) -> bool:
    """Whether a problem asks for nothing, whoever has the store."""
    # A size that one file alone shows may be right; an index file of another size is not.
    is_doubt = one.kind == "size" and not one.file.startswith(paths.INDEX)
    # A backup is replaced, and a delay level is corrected, by a broker as it runs.
    mends_itself = (one.kind == "json" and one.file.endswith(".bak")) or (
        one.kind == _OFFSET and one.file.endswith(paths.DELAY_OFFSET_JSON)
    )
    return one.severity == "warn" and (one.kind in _NOTES or is_doubt or mends_itself)


def _is_first(one: Finding) -> bool:
    """Whether a problem is mended by hand before any other."""
    return (
        one.kind in _FIRST
        or one.file == paths.DELETED_TOPICS
        or (one.kind, one.file) == _NO_LOG
        or (one.kind == "permission" and one.severity == "stop")
        # a log for another broker: it is not to be mended for this one
        or (one.kind == "newer-format" and one.by_start)
    )


def command_line(
    verb: str, root: str, options: Iterable[str] = (), config_file: str | None = None
) -> str:
    """Return a command as it is typed."""
    config = [] if config_file is None else ["-c", config_file]
    return shlex.join(["rmqstore", verb, root, *options, *config])


def next_command(
    root: str, problems: Collection[Finding], config_file: str | None = None
) -> str | None:
    """Return the command that mends the problems, or the first of several, if one does."""
    if is_in_use(problems) or any(map(_is_first, problems)):
        return None
    mended = [one for one in asking(problems) if one.kind not in _BY_HAND]
    alone = [one for one in mended if one.command]
    kinds = {one.kind for one in mended} - {_OFFSET}
    of_index = {kind for kind in kinds if kind.startswith("index-")}
    of_queues = kinds & QUEUE_KINDS
    if kinds - of_index - of_queues:
        words = ["repair"]
    elif kinds:
        words = ["rebuild", *["--queues"] * bool(of_queues), *["--index"] * bool(of_index)]
    elif alone:
        words = list(alone[0].command)
    else:
        return None
    return command_line(words[0], root, words[1:], config_file)
