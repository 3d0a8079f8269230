"""Retention: deletion of the log's oldest files, and of unused topics.

Nothing is deleted by default: only by a call of ``delete_expired``, or continuously with
``StoreConfig.file_reserved_time``.

Source: ``store/DefaultMessageStore.java CleanCommitLogService``, ``CleanConsumeQueueService``,
``cleanUnusedTopic``, ``cleanExpiredConsumerQueue``; ``common/UtilAll.java isItTimeToDo``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from rmqstore._core import CallLock, Core
from rmqstore.base.times import TimeLike, to_millis
from rmqstore.base.warn import log_info, log_warning
from rmqstore.services.base import Service
from rmqstore.services.housekeeping import Housekeeper
from rmqstore.types import Deleted

__all__ = ["Retention", "SteadyClock", "deleted_text"]

_HOUR = 3_600_000  # ms
_FILES_A_ROUND = 10  # of the log, as in 4.9.3
_STEP = 60_000  # ms: a larger jump of the clock means that it was set


class SteadyClock:
    """Clock of ages: the wall clock, without steps forward.

    A step back only delays deletion. A step forward counts once ``patience`` has passed: by then
    every message stored before it is that old, and none is deleted too early.
    """

    def __init__(
        self,
        patience: int,
        wall: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        elapsed: Callable[[], int] = lambda: (
            time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        ),
    ) -> None:
        self._patience = patience  # ms
        self._wall = wall  # ms since the epoch
        self._elapsed = elapsed  # ms that pass steadily, also while the machine sleeps
        self._advanced = 0
        self._offset = wall() - elapsed()  # added to the time elapsed
        self._doubted = self._offset  # offset after a step forward,
        self._doubted_since = 0  # and when it was first seen

    def advance(self, millis: int) -> None:
        """Move the clock on purpose: this counts at once."""
        self._advanced += millis

    def now(self) -> int:
        """Return the time in milliseconds since the epoch."""
        elapsed = self._elapsed()
        offset = self._wall() - elapsed
        passed = elapsed + self._advanced
        if offset - self._offset > _STEP:
            if abs(offset - self._doubted) > _STEP:
                self._doubted, self._doubted_since = offset, passed
            if passed - self._doubted_since >= self._patience:
                self._offset = offset
        else:
            self._offset = self._doubted = offset
        return passed + self._offset


class _LogFile(NamedTuple):
    """A file of the log that may be removed, and the figures of its removal."""

    start: int
    messages: int


def deleted_text(deleted: Deleted) -> str:
    """Return the deletions, done or due, as text for a log line."""
    files = "1 file" if deleted.files == 1 else f"{deleted.files:,} files"
    messages = "1 message" if deleted.messages == 1 else f"{deleted.messages:,} messages"
    begin = deleted.until - deleted.bytes
    return f"{files} of the log, physical offsets {begin} to {deleted.until}, {messages}"


class Retention(Service):
    """Retention of a store."""

    def __init__(self, core: Core, housekeeper: Housekeeper) -> None:
        self._core = core
        self._housekeeper = housekeeper
        self._deleting = CallLock()
        # By the first byte of a file: newest store time, and number of messages.
        self._log_contents: dict[int, tuple[int, int]] = {}
        self._steady_clock = SteadyClock((core.config.file_reserved_time or 0) * _HOUR)

    def start(self) -> None:
        """Start deleting expired files every few seconds, if messages expire."""
        core = self._core
        self._steady_clock.advance(core.now() - time.time_ns() // 1_000_000)
        if core.mode != "r" and core.config.file_reserved_time is not None:
            self._housekeeper.every(
                core.config.clean_resource_interval / 1000, self.clean_expired, "retention"
            )

    def advance_clock(self, millis: int) -> None:
        """Move the clock of ages."""
        self._steady_clock.advance(millis)

    def delete_expired(self, *, before: TimeLike | None = None, dry_run: bool = False) -> Deleted:
        """Delete old messages: whole files of the log, from its beginning.

        A file is deleted if its newest message is older than ``before``, and all files before it
        are deleted; never the last file, nor that of the newest message.  Files of queues and of
        the index that point only before the log are deleted next, as are the queues of
        :meth:`clean_unused_topics`.  Messages held by the program stay valid, and keep the space of
        their files until they are released: ``stats()["held_deleted_bytes"]``.

        Parameters
        ----------
        before : int, datetime or str, optional
            By default now less ``file_reserved_time``.  With ``retention_clock="mtime"`` it is
            compared with the times of the files.
        dry_run : bool, optional
            Only report what would be deleted; works in mode ``"r"`` too.

        Returns
        -------
        Deleted

        Raises
        ------
        ValueError
            ``before`` is not a point in time, or is left out and ``file_reserved_time`` is None.
        OSError
            A file cannot be read or removed.
        StoreFailedError
            The removal cannot be forced to the disk.
        ReadOnlyStoreError, StoreClosedError, ForkedStoreError
            The store is not open for writing here.

        Notes
        -----
        Source: ``store/CommitLog.java deleteExpiredFile``.
        """
        if dry_run:
            self._core.check_open()
        else:
            self._core.check_writable()
        reserved = self._core.config.file_reserved_time
        if before is not None:
            limit = to_millis(before, name="before")
        elif reserved is not None:
            limit = self._steady_clock.now() - reserved * _HOUR + 1
        else:
            raise ValueError(
                "before must be given, as file_reserved_time is None: messages are kept forever"
            )
        if dry_run:  # it may read for long: does not block retention
            return self._delete(self._expired(limit), dry_run=True)
        with self._deleting:
            return self._delete(self._expired(limit), dry_run=False)

    def clean_unused_topics(self, *, dry_run: bool = False) -> list[str]:
        """Remove the queues of unused topics.

        A topic is unused if ``topics.json`` does not name it, brokers do not create it for
        themselves, and all of its messages were deleted.  Queues of any other topic stay even when
        empty, and continue to count.

        Parameters
        ----------
        dry_run : bool, optional
            Only list the topics.

        Returns
        -------
        list of str
            Their names, in order.

        Raises
        ------
        OSError
            A file cannot be removed.
        StoreFailedError
            The removal cannot be forced to the disk.
        ReadOnlyStoreError, StoreClosedError, ForkedStoreError
            The store is not open for writing here.

        Notes
        -----
        Source: ``store/DefaultMessageStore.java cleanUnusedTopic``, ``cleanExpiredConsumerQueue``.
        """
        if dry_run:
            self._core.check_open()
        else:
            self._core.check_writable()
        with self._deleting:
            return self._core.unused_topics(not dry_run)

    def clean_expired(self) -> None:
        """Delete expired files; called every few seconds."""
        config = self._core.config
        reserved = config.file_reserved_time
        use = max(self._core.disk_use())
        forced = self._deletion_is_forced(use)
        hour = time.localtime(self._core.now() / 1000).tm_hour
        due = hour in {int(each) for each in config.delete_when.split(";") if each.strip()}
        if reserved is None or not (due or forced or use > config.disk_max_used_space_ratio):
            return
        with self._deleting:
            limit = self._steady_clock.now() - reserved * _HOUR + 1
            chosen = self._expired(limit, most=_FILES_A_ROUND)
            expired = len(chosen)
            if forced:
                chosen = self._expired(None, most=_FILES_A_ROUND)
            self._delete_slowly(chosen, expired)

    def _deletion_is_forced(self, use: int) -> bool:
        """Whether the disk is so full that messages have to be deleted before they expire."""
        config = self._core.config
        return config.clean_file_forcibly_enable and use > config.disk_space_clean_forcibly_ratio

    def _delete_slowly(self, chosen: list[_LogFile], expired: int) -> None:
        """Delete files one by one; files that have not expired only while the disk is full."""
        pause = self._core.config.delete_commit_log_files_interval / 1000
        old = Deleted()
        done = 0
        try:
            for number, file in enumerate(chosen):
                if number:
                    time.sleep(pause)
                if number >= expired and not self._deletion_is_forced(max(self._core.disk_use())):
                    break
                one = self._delete([file], dry_run=False, dangling=False)
                done += one.files
                if number < expired:
                    old = Deleted(
                        files=old.files + one.files,
                        bytes=old.bytes + one.bytes,
                        messages=old.messages + one.messages,
                        until=one.until,
                    )
                elif one.files:
                    log_warning(
                        "%s: messages up to offset %d were deleted before they were old enough, as "
                        "a disk is more than %d %% full",
                        self._core.path,
                        one.until,
                        self._core.config.disk_space_clean_forcibly_ratio,
                    )
        finally:
            if old.files:
                log_info(
                    "%s: retention deleted %s: older than %d h",
                    self._core.path,
                    deleted_text(old),
                    self._core.config.file_reserved_time,
                )
        if done:
            self._core.remove_dangling()
            unused = self._core.unused_topics(True)
            if unused:
                log_info(
                    "%s: retention removed the empty queues of topics that topics.json does not "
                    "name: %s",
                    self._core.path,
                    ", ".join(unused),
                )

    def _delete(self, chosen: list[_LogFile], *, dry_run: bool, dangling: bool = True) -> Deleted:
        """Delete the log's first files; with ``dangling`` the units and entries for them too."""
        first, _, size = self._core.removable_files()
        until = chosen[-1].start + size if chosen else first
        queues = self._core.emptied_queues(until) if chosen else 0
        count = len(chosen)
        if not dry_run:
            if chosen:
                count = self._core.remove_log_files(until)
                until = first + count * size
            if dangling:
                self._core.remove_dangling()
                self._core.unused_topics(True)
        return Deleted(
            files=count,
            bytes=count * size,
            messages=sum(file.messages for file in chosen[:count]),
            until=until,
            queues=queues if count == len(chosen) else 0,
        )

    def _expired(self, limit: int | None, most: int | None = None) -> list[_LogFile]:
        """Return the first files whose newest message is older than ``limit``; None: any age."""
        first, stop, size = self._core.removable_files()
        for start in list(self._log_contents):
            if start < first:
                self._log_contents.pop(start, None)
        found: list[_LogFile] = []
        by_mtime = self._core.config.retention_clock == "mtime"
        for start in range(first, stop, size):
            if len(found) == most:
                break
            if limit is not None and by_mtime and self._core.log_changed_at(start) >= limit:
                break
            newest, messages = self._content(start)
            if limit is not None and not by_mtime and newest >= limit:
                break
            found.append(_LogFile(start, messages))
        return found

    def _content(self, start: int) -> tuple[int, int]:
        """Return the newest store time in a log file, and the number of its messages.

        If it cannot be read, the file's last change counts as its newest store time.
        """
        known = self._log_contents.get(start)
        if known is None:
            newest, messages, whole = self._core.log_content(start)
            if not whole or not messages:
                newest = max(newest, self._core.log_changed_at(start))
            known = self._log_contents[start] = newest, messages
        return known
