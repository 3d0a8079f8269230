"""A store made by many tasks, invisible until complete.

It is made in a directory next to its final path, and renamed at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import rmqstore
from rmqstore.base.syncing import sync_path
from rmqstore.config.store_config import StoreConfig
from rmqstore.directory.layout import surroundings
from rmqstore.files import paths
from rmqstore.files.links import target_of
from rmqstore.offline import Copied, seal_store
from rmqstore.spark.common.options import absolute_path
from rmqstore.spark.common.side_files import MAKING, new_name
from rmqstore.spark.common.sight import SeenStore
from rmqstore.spark.jobs.rebuild import rebuild
from rmqstore.spark.jobs.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DestinationError", "complete", "new_store"]

_REMOVALS = 50  # attempts, until the last tasks of a failed job have ended
_REMOVAL_PAUSE = 0.1  # seconds


class DestinationError(ValueError):
    """The new store cannot be made at its path, which is in the message."""


@contextlib.contextmanager
def new_store(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Provide a directory for a new store, which becomes ``path``; removed on an error.

    It has an empty ``commitlog`` and ``config``. Raises ``DestinationError`` unless ``path`` is
    free or empty, now and at the end; a link to an empty directory stays, and leads to the store.
    """
    named = Path(absolute_path("path", path))
    try:
        target = target_of(named)
    except FileNotFoundError as error:
        raise DestinationError(error.strerror) from None
    _check_free(named)
    making = target.with_name(f"{target.name}{MAKING}{new_name()}")
    try:
        making.mkdir(parents=True)
        for part in (paths.COMMIT_LOG, paths.CONFIG):
            (making / part).mkdir()
        yield making
        _check_free(named)
        for part in (paths.COMMIT_LOG, paths.CONFIG, ""):
            sync_path(making / part)
        try:
            making.rename(target)  # also over an empty directory
        except OSError as error:
            raise DestinationError(f"{named}: cannot be made: {error.strerror}") from error
        sync_path(target.parent)
    except BaseException:
        _remove(making)
        raise


def _check_free(target: Path) -> None:
    if (around := surroundings(target)) is not None:
        raise DestinationError(f"{target}: lies in {around}; a store is made outside it")
    try:
        if next(target.iterdir(), None) is None:
            return
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise DestinationError(f"{target}: is there, and is no directory") from None
    raise DestinationError(f"{target}: is not empty; a new store is made where there is none")


def _remove(directory: Path) -> None:
    """Remove a directory that tasks of a failed job may still be writing to."""
    for _ in range(_REMOVALS):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(_REMOVAL_PAUSE)


def complete(
    spark: SparkSession,
    making: Path,
    config: StoreConfig,
    copied: Sequence[Copied],
    *,
    staged: Path | None = None,
) -> None:
    """Make a store's queues, index and checkpoint from its log, and remove ``staged``.

    Source: ``store/DefaultMessageStore.java`` doReput.
    """
    if copied:
        rebuild(spark, making, making, config=config)
    last = max((one.last_record for one in copied), default=-1)
    newest = max((one.store_timestamp for one in copied), default=0)
    seal = _SealTask(str(making), config, last, newest, staged)
    run_tasks(spark, [seal], [SeenStore(str(making))])


@dataclass(frozen=True)
class _SealTask:
    directory: str
    config: StoreConfig
    last_record: int
    store_timestamp: int
    staged: Path | None

    def run(self) -> None:
        if self.staged is not None and self.staged.exists():
            shutil.rmtree(self.staged)
        if self.last_record < 0:  # no message: the same as a new store of the engine
            with rmqstore.open(self.directory, "a", config=self.config):
                return
        if not self.config.message_index_enable:
            shutil.rmtree(Path(self.directory, paths.INDEX), ignore_errors=True)
        with rmqstore.open(self.directory) as store:
            seal_store(store, self.last_record, self.store_timestamp)
