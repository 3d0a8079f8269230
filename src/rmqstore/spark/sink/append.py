"""Append of staged rows to the log, each exactly once, even across a crash.

An intent is on the disk before the first row is in the log, with the staged files and the log's
end. The next commit finds an unfinished intent, determines by the unique keys which of its rows are
in the log, and puts the rest: from the intent's own files, as a query that runs again may give its
rows in another order. Nothing is ever cut from the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.directory.layout import refuse_inside
from rmqstore.errors import IncompatibleStoreError, StoreCorruptError, StoreError
from rmqstore.files import paths
from rmqstore.offline.locking import open_for_writing
from rmqstore.spark.common.options import OptionError
from rmqstore.spark.sink import exchange
from rmqstore.spark.sink.ledger import Intent, Job, Ledger
from rmqstore.spark.sink.options import SinkLimits, WriteOptions, limits_in_force
from rmqstore.spark.sink.staging import (
    StagedFile,
    StagedFileError,
    check_staged,
    row_of_key,
    staged_batches,
)

if TYPE_CHECKING:
    from rmqstore.store import MessageStore

__all__ = [
    "UnfinishedWriteError",
    "append",
    "check_outside",
    "check_place",
    "foreign_entries",
    "has_store",
    "in_order",
    "named",
    "put_files",
    "roll_forward",
]

_MAX_NAMED = 3


class UnfinishedWriteError(StoreError):
    """A write has begun and cannot be finished now; the next write to the store finishes it."""


def append(
    options: WriteOptions, limits: SinkLimits, job: Job, files: Iterable[StagedFile]
) -> None:
    """Put staged files into the store, unless it has the job; first finish a pending write.

    Raises ``StoreLockedError``; ``StagedFileError``, with nothing written; ``UnfinishedWriteError``
    if the write has begun: the next one to this store finishes it.
    """
    exchange.recover(Path(os.path.realpath(options.path)))
    wanted = in_order(files)
    ledger = Ledger(options.path)
    is_new = not has_store(options.path)
    is_ours = is_new and ledger.is_alone
    if not wanted and not is_new and ledger.intent() is None:
        ledger.discard(job)
        return
    with open_for_writing(options.path, options.store_config(), options.lock_timeout) as store:
        if is_ours:
            ledger.mark_created()
        roll_forward(store, ledger, sync=options.sync)
        if wanted and not ledger.is_done(job):
            _check_limits(store, limits)
            for file in wanted:
                check_staged(ledger.directory(job), file)
            if options.sync:  # tasks have synced the files and their directory, not its name
                ledger.sync_staging()
            store.flush()  # the log before the first row survives any crash
            start = store.stats()["wrote_position"]
            intent = Intent(job, start, options.queue_nums, wanted)
            ledger.begin(intent)
            _finish(store, ledger, intent, sync=options.sync, checked=True)
        ledger.sweep(job)
        ledger.discard(job)


def roll_forward(store: MessageStore, ledger: Ledger, *, sync: bool) -> None:
    """Finish an intent's write, if there is one; ``sync`` forces the rows to the disk first.

    Raises ``UnfinishedWriteError`` if it cannot be finished now, ``StoreCorruptError`` if the log
    has impossible rows of it, or the intent is damaged.
    """
    intent = ledger.intent()
    if intent is None:
        return
    if ledger.is_done(intent.job):
        ledger.end()
    else:
        _finish(store, ledger, intent, sync=sync, done=_rows_in_log(store, intent))
    ledger.discard(intent.job)


def check_place(options: WriteOptions) -> None:
    """Refuse, by ``OptionError``, to make a store among other files or inside a store."""
    if has_store(options.path):
        return
    check_outside(options.path)
    foreign = foreign_entries(options.path)
    if foreign:
        raise OptionError(
            f"option 'path' is {options.path!r}: {named(foreign)}, and no store; a store is made "
            "in a directory that is missing or empty"
        )


def check_outside(path: str) -> None:
    """Raise ``OptionError`` if a path is inside a store, which is in the message."""
    try:
        refuse_inside(path)
    except IncompatibleStoreError as error:
        raise OptionError(f"option 'path': {error}") from None


def foreign_entries(path: str) -> list[str]:
    """Return a directory's entries that are neither a store's nor the sink's; none if missing."""
    directory = Path(path)
    if not directory.is_dir():
        return []
    known = paths.STORE_ENTRIES | {Ledger(path).root.name}
    return sorted(entry.name for entry in directory.iterdir() if entry.name not in known)


def named(entries: list[str]) -> str:
    """Return a text naming entries of a directory, at least one, for messages."""
    more = len(entries) - _MAX_NAMED
    text = ", ".join(repr(name) for name in entries[:_MAX_NAMED])
    return f"there is {text}" + (f" and {more} more" if more > 0 else "")


def has_store(path: str) -> bool:
    """Whether there is a store: a log file."""
    found = Path(path, paths.COMMIT_LOG).glob("[0-9]*")
    return any(paths.parse_offset_file_name(file.name) is not None for file in found)


def in_order(files: Iterable[StagedFile]) -> tuple[StagedFile, ...]:
    """Return the non-empty files in the order of their rows in the log."""
    return tuple(sorted((file for file in files if file.rows), key=lambda file: file.partition))


def _check_limits(store: MessageStore, limits: SinkLimits) -> None:
    """Refuse a store with other limits than those used to check the rows."""
    found = limits_in_force(store.config)
    if found != limits:
        raise StoreError(
            f"{store.path}: the rows were checked for a store with {limits}, it has {found}: "
            "it was made or configured again meanwhile; write again"
        )


def _finish(
    store: MessageStore,
    ledger: Ledger,
    intent: Intent,
    *,
    sync: bool,
    done: int = 0,
    checked: bool = False,
) -> None:
    """Put the missing rows, and end the intent; ``checked`` if the staged files are."""
    directory = ledger.directory(intent.job)
    try:
        if done < intent.rows:
            put_files(store, directory, intent, skip=done, checked=checked)
        if sync:
            store.flush()
        ledger.seal(intent.job, store.stats()["wrote_position"])
        ledger.end()
    except Exception as error:
        raise UnfinishedWriteError(
            f"{store.path}: {intent.job.text} has begun and is not complete: {error}; the next "
            "write to this store completes it, so it is not to be repeated under another name"
        ) from error


def put_files(
    store: MessageStore, directory: Path, intent: Intent, *, skip: int = 0, checked: bool = False
) -> None:
    """Put the rows of staged files after the first ``skip``; unless ``checked``, check the files.

    Raises ``StagedFileError`` if a file is missing, or not as its task left it; no row is put.
    """
    rest: list[tuple[StagedFile, int]] = []
    for file in intent.files:
        if skip < file.rows:
            rest.append((file, skip))
        skip = max(0, skip - file.rows)
    if not checked:
        for file, _ in rest:
            check_staged(directory, file)
    if intent.queue_nums is not None:
        known = set(store.topics)
        for topic in intent.topics:
            if topic not in known:
                store.create_topic(topic, intent.queue_nums)
    for file, first in rest:
        count = first
        for batch in staged_batches(directory / file.name, first):
            store.put_table(batch, wait=False)
            count += batch.num_rows
        if count != file.rows:
            raise StagedFileError(
                f"{directory / file.name}: has {count} rows, was staged with {file.rows}"
            )


def _rows_in_log(store: MessageStore, intent: Intent) -> int:
    """Return how many of an intent's rows are in the log: always its first ones."""
    import pyarrow.compute as pc

    low = store.recovery.log_start
    scan = store.scan(start=max(low, intent.start), columns=["uniq_key"], on_removed="skip")
    count = 0
    last = ""
    for batch in scan.to_batches():
        keys = batch.column("uniq_key")
        mine = keys.filter(pc.starts_with(keys, intent.job.prefix).fill_null(False))
        if len(mine):
            count += len(mine)
            last = mine[-1].as_py()
    expected = _rows_until(intent, last) if count else 0
    if low > intent.start and count == 0:
        raise StoreCorruptError(
            store.path,
            intent.start,
            f"the log begins at {low} now: it is unknown which of the {intent.rows} rows of "
            f"{intent.job.text}, which {Ledger(store.path).intent_path} names, were in it; "
            "writes go on once that file is removed",
        )
    # If retention removed the first rows, the last one shows how many there were.
    if expected != count and not (low > intent.start and expected > count):
        raise StoreCorruptError(
            store.path,
            intent.start,
            f"the log has {count} rows of {intent.job.text} from here on, the last with the key "
            f"{last}, which is that of row {expected}; compare them with what was written, and "
            f"remove {Ledger(store.path).intent_path}: writes go on then",
        )
    return expected


def _rows_until(intent: Intent, key: str) -> int:
    """Return the number of rows up to and including a key's row; -1 if there is no such row."""
    try:
        partition, row = row_of_key(key)
    except ValueError:
        return -1
    before = 0
    for file in intent.files:
        if file.partition == partition:
            return before + row + 1 if row < file.rows else -1
        before += file.rows
    return -1
