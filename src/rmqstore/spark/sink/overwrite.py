"""Overwrite: a whole new store is made next to the old one, and replaces it at once."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from rmqstore import opening
from rmqstore.base.syncing import sync_path
from rmqstore.config.file_sizes import with_sizes_of
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import StoreError
from rmqstore.offline.locking import locked, open_for_writing
from rmqstore.spark.common.options import OptionError
from rmqstore.spark.common.side_files import MAKING
from rmqstore.spark.sink import exchange
from rmqstore.spark.sink.append import (
    check_outside,
    foreign_entries,
    has_store,
    in_order,
    named,
    put_files,
    roll_forward,
)
from rmqstore.spark.sink.ledger import Intent, Job, Ledger, is_earlier, last_change
from rmqstore.spark.sink.options import SinkLimits, WriteOptions, limits_in_force
from rmqstore.spark.sink.staging import StagedFile

__all__ = ["check_allowed", "discard_made", "making_names", "making_path", "recover", "replace"]

_STALE_SECONDS = 86400.0
_TRIES = 3


def making_path(path: str, job: Job) -> Path:
    """Return the directory where a job makes a store: next to the path, or to a link's target."""
    return Path(f"{os.path.realpath(path)}{MAKING}{job.directory}")


def recover(path: str) -> None:
    """Recover an interrupted replacement."""
    exchange.recover(Path(os.path.realpath(path)))


def check_allowed(options: WriteOptions) -> None:
    """Raise ``OptionError`` rather than overwrite foreign data, or data not allowed by the user.

    Also raised if the path is inside another store.
    """
    path = Path(options.path)
    if not path.is_dir() or not any(path.iterdir()):
        check_outside(options.path)
        return
    if not Ledger(path).created:
        raise OptionError(
            f"option 'path' is {options.path!r}: this sink did not create what is there, "
            "so it is not overwritten"
        )
    foreign = foreign_entries(options.path)
    if foreign:
        raise OptionError(
            f"option 'path' is {options.path!r}: {named(foreign)}, which no store has and which "
            "would be lost, so it is not overwritten"
        )
    if not options.allow_overwrite:
        raise OptionError(
            f"option 'path' is {options.path!r}, where there is a store: it is overwritten with "
            "option 'allowOverwrite' true only"
        )


def replace(
    options: WriteOptions, limits: SinkLimits, job: Job, files: Iterable[StagedFile]
) -> None:
    """Replace the store by a new one of staged files, with the old sizes, queues and ledger.

    Options override the old sizes and queues. Raises ``StoreLockedError``, ``StagedFileError``,
    ``OptionError``, or errors of :func:`rmqstore.open`; the old store is then unchanged.
    """
    path = Path(os.path.realpath(options.path))
    made = making_path(options.path, job)
    for _ in range(_TRIES):
        exchange.recover(path)
        _finish_pending(options)
        # Held until the old directory is gone: a waiter for the lock gets a store that no longer
        # exists, and an error, but never writes to it.
        with locked(options.path, options.lock_timeout):
            old = Ledger(path)
            if old.intent() is not None:
                continue
            if not old.is_done(job):
                check_allowed(options)
                _make(options, limits, job, in_order(files))
                exchange.swap(made, path)
            shutil.rmtree(made, ignore_errors=True)
        _sweep(path, job)
        return
    raise StoreError(f"{path}: other writes began {_TRIES} times meanwhile; write again")


def discard_made(path: str, job: Job) -> None:
    """Remove an uncommitted job."""
    recover(path)
    shutil.rmtree(making_path(path, job), ignore_errors=True)


def making_names(path: str) -> list[str]:
    """Return the names of the directories where jobs make a store for a path."""
    return exchange.job_names(Path(os.path.realpath(path)), MAKING)


def _finish_pending(options: WriteOptions) -> None:
    """Complete an append with an intent, as its query will not repeat it."""
    ledger = Ledger(options.path)
    if ledger.intent() is not None:
        with open_for_writing(options.path, options.store_config(), options.lock_timeout) as store:
            roll_forward(store, ledger, sync=True)


def _make(
    options: WriteOptions, limits: SinkLimits, job: Job, files: tuple[StagedFile, ...]
) -> None:
    """Make the new store, complete and on the disk, with the old one's ledger."""
    made = making_path(options.path, job)
    made.mkdir(exist_ok=True)
    ledger = Ledger(made)
    ledger.keep_staging_only()
    config = options.store_config()
    queue_nums: dict[str, int] = {}
    if has_store(options.path):
        with opening.open(options.path, "r") as store:
            queue_nums = {name: topic.write_queue_nums for name, topic in store.topics.items()}
            config = with_sizes_of(config or StoreConfig(), store.config)
    with opening.open(made, "a", config=config) as store:
        found = limits_in_force(store.config)
        if found != limits:
            raise StoreError(
                f"{options.path}: the rows were checked for a store with {limits}, the new one "
                f"has {found}: the old one changed meanwhile; write again"
            )
        intent = Intent(job, 0, options.queue_nums, files)
        if options.queue_nums is None:
            for topic in intent.topics:
                if topic in queue_nums:
                    store.create_topic(topic, max(1, queue_nums[topic]))
        put_files(store, ledger.directory(job), intent)
        end = store.stats()["wrote_position"]
    ledger.discard(job)
    ledger.copy_entries(Ledger(options.path))
    ledger.seal(job, end)
    ledger.mark_created()
    sync_path(made)


def _sweep(path: Path, job: Job) -> None:
    """Remove remains of a query's earlier batches, and jobs abandoned a day ago."""
    for name in making_names(str(path)):
        entry = path.with_name(f"{path.name}{MAKING}{name}")
        if is_earlier(name, job) or last_change(entry) + _STALE_SECONDS < time.time():
            shutil.rmtree(entry, ignore_errors=True)
