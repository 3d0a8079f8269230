"""Schedule service: delivery of delayed messages to their real topics when due.

Source: ``store/schedule/ScheduleMessageService.java``.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterable
from itertools import chain, islice

from rmqstore._core import CallLock, Core
from rmqstore.base.syncing import SyncError
from rmqstore.base.warn import log_warning
from rmqstore.brokerfiles.delays import DelayTable
from rmqstore.errors import PutError, StoreError
from rmqstore.services.base import STORE_ENDED, Ownership, Service
from rmqstore.services.delay_level import DelayLevel
from rmqstore.services.schedule_search import (
    Waiting,
    due_of,
    find_delivered,
    level_millis,
    read_record,
    waiting,
)
from rmqstore.services.stored import (
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    put_again,
    real_message,
    real_place,
)
from rmqstore.types import Delayed, PutStatus

__all__ = ["Schedule"]

_BATCH = 256  # messages of a level before other levels have their turn
_SHORTEST_SLEEP, _LONGEST_SLEEP = 0.02, 1.0  # seconds
_MARGIN = 20  # ms: how much a look precedes the due time of a message put meanwhile
_AGAIN_SECONDS = 0.1  # after a failure that would meet any message
_RETRY_SECONDS = 1.0  # after a failure of one message only
# Statuses of a put that would fail for any message.
_REFUSE_ALL = frozenset((
    PutStatus.DISK_FULL, PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.CREATE_MAPEDFILE_FAILED,
    PutStatus.OS_PAGECACHE_BUSY,
))  # fmt: skip
_EXIT_SECONDS = 5.0  # how long closing, or the interpreter's exit, waits for a batch


class _Sleep:
    """State shared by the service's thread and its callers; holds no store."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # `with` takes it itself, see `Housekeeper`
        self.changed = threading.Condition(self.lock)
        self.stopping = False
        self.woken = False
        self.thread: threading.Thread | None = None
        self.process = os.getpid()

    def wake(self) -> None:
        with self.lock:
            self.woken = True
            self.changed.notify_all()

    def stop(self) -> None:
        """Stop the thread, and wait for a batch that is being delivered."""
        if self.process != os.getpid():
            return  # a forked child has no thread, and the lock may be held
        with self.lock:
            self.stopping = True
            thread, self.thread = self.thread, None
            self.changed.notify_all()
        atexit.unregister(self.stop)
        if thread is not None and thread is not threading.current_thread():
            thread.join(_EXIT_SECONDS)


class Schedule(Service):
    """Delivery of delayed messages.

    Its thread starts with the first delayed message, or at an opening that finds some waiting; a
    store without delays has none.
    """

    def __init__(self, core: Core, ownership: Ownership) -> None:
        self._core = core
        self._ownership = ownership
        self._lock = CallLock(again=True)
        self._sleep: _Sleep | None = None
        self._table: DelayTable | None = None
        self.levels: dict[int, DelayLevel] | None = None  # by number, from 1 on; None in a reader
        self._saved_at = 0

    # Start and end

    def read_files(self) -> None:
        """Read the progress of delivery."""
        self._table = DelayTable.load(self._core.path, self._ownership.check)

    def start(self) -> None:
        """Resume delivery."""
        if self._core.mode == "r":
            return
        self._sleep = _Sleep()
        weakref.finalize(self, self._sleep.stop)
        table = self._table
        assert table is not None
        delays = enumerate(self._level_millis(), 1)
        levels = self.levels = {number: DelayLevel(number, millis) for number, millis in delays}
        queues = self._schedule_queues()
        self._correct_times(levels, queues)
        pending = False
        for number, (first, stop) in queues.items():
            level = levels.get(number)
            if level is None:
                log_warning(
                    "%s: messages of delay level %s wait for a message_delay_level that has it",
                    self._core.path, number,
                )  # fmt: skip
                continue
            level.offset = min(max(table.offsets.get(number, 0), first), stop)
            pending = pending or level.offset < stop
        if pending:
            self._skip_delivered(levels)
            self.begin()

    def _level_millis(self) -> list[int]:
        return level_millis(self._core.config.message_delay_level)

    def _skip_delivered(self, levels: dict[int, DelayLevel]) -> None:
        """Find messages that were already delivered, and log their number."""
        starts = {level.number: level.offset for level in levels.values()}
        # Delivered messages were due by the time of a record, even if the clock is behind it.
        now = max(self._core.now(), self._core.newest_store_time())
        found = find_delivered(self._core, self._level_millis(), starts, now)
        for number, offsets in found.items():
            levels[number].delivered = offsets
            log_warning(
                "%s: %s messages of delay level %s were delivered after delayOffset.json was "
                "written, and are not delivered again",
                self._core.path, len(offsets), number,
            )  # fmt: skip

    def begin(self) -> None:
        """Start the thread, unless it runs; called by the core for the first delayed message."""
        sleep = self._sleep
        if sleep is None:  # still opening: ``start`` begins
            return
        with sleep.lock:
            if sleep.thread is not None or sleep.stopping:
                return
            self._saved_at = self._core.now()
            atexit.register(sleep.stop)
            sleep.thread = threading.Thread(
                target=_deliver_until_stopped,
                args=(weakref.ref(self), sleep),
                name="rmq-schedule",
                daemon=True,
            )
            sleep.thread.start()

    def stop(self) -> None:
        """Stop delivering, and write the progress."""
        if self._sleep is not None:
            self._sleep.stop()
            with contextlib.suppress(*STORE_ENDED):
                try:
                    self.save()
                except OSError as error:
                    # Delivered messages are found again by their records.
                    log_warning(
                        "%s: delayOffset.json cannot be written: %s", self._core.path, error
                    )

    def abandon(self) -> None:
        """Stop delivering: the store is given up."""
        if self._sleep is not None:
            self._sleep.stop()

    def note_clock(self) -> None:
        """Note for each level whether the clock has gone back since its newest message."""
        if self._sleep is None or self._sleep.thread is None:
            return
        with self._lock:
            for level in (self.levels or {}).values():
                stop = (self._core.bounds(SCHEDULE_TOPIC, level.queue_id) or (0, 0))[1]
                if level.offset < stop:
                    self._note_newest(level, stop)

    def _note_newest(self, level: DelayLevel, stop: int) -> None:
        for unit in waiting(self._core, SCHEDULE_TOPIC, level.queue_id, stop - 1, stop):
            level.note_clock(due_of(self._core, unit, level.millis), self._core.now(), stop)

    def wake(self) -> None:
        """Check again for due messages: the clock was moved."""
        if self._sleep is not None:
            self._sleep.wake()

    def _schedule_queues(self) -> dict[int, tuple[int, int]]:
        """Return the bounds of each level's queue, by level."""
        queues = self._core.queue_files().get(SCHEDULE_TOPIC, [])
        return {i + 1: self._core.bounds(SCHEDULE_TOPIC, i) or (0, 0) for i in queues}

    def _correct_times(
        self, levels: dict[int, DelayLevel], queues: dict[int, tuple[int, int]]
    ) -> None:
        """Correct delivery times that a recovery of 4.9.3 has replaced by hashes of tags."""
        for number, (first, stop) in queues.items():
            millis = levels[number].millis if number in levels else None
            try:
                for start in range(first, stop, 1 << 16):
                    count = min(stop - start, 1 << 16)
                    for offset in self._core.forgotten_delays(number - 1, start, count):
                        for unit in waiting(
                            self._core, SCHEDULE_TOPIC, number - 1, offset, offset + 1
                        ):
                            if due := due_of(self._core, unit, millis):
                                self._core.set_tags_code(number - 1, offset, due)
            except STORE_ENDED:
                raise
            except (StoreError, OSError) as error:
                log_warning(
                    "%s: delivery times of delay level %s are left as they are: %s",
                    self._core.path, number, error,
                )  # fmt: skip

    # Deliver

    def deliver_due(self) -> float:
        """Deliver due messages; return the seconds until another may be due."""
        levels = self.levels
        assert levels is not None
        assert self._sleep is not None
        sleep = max(_SHORTEST_SLEEP, (min(one.millis for one in levels.values()) - _MARGIN) / 1000)
        sleep = min(sleep, _LONGEST_SLEEP)
        busy = list(levels.values())
        while busy:
            again = []
            for level in busy:
                if self._sleep.stopping:
                    return 0.0
                with self._lock:
                    due = self._deliver_level_safely(level)
                if due == 0:
                    again.append(level)
                elif due is not None:
                    sleep = min(sleep, max(0.0, (due - self._core.now()) / 1000))
            busy = again
            self._save_delays_in_time()
        failing = any(level.failing for level in levels.values())
        return min(sleep, _AGAIN_SECONDS) if failing else sleep

    def _deliver_level_safely(self, level: DelayLevel) -> int | None:
        """Run :meth:`_deliver_level`; ``None`` if it fails, without effect on other levels."""
        try:
            due = self._deliver_level(level)
        except STORE_ENDED:
            raise
        except Exception as error:
            if not level.failing:
                log_warning(
                    "%s: delay level %s waits, and will be tried again: %s",
                    self._core.path, level.number, error,
                )  # fmt: skip
            level.failing = True
            return None
        level.failing = False
        return due

    def _deliver_level(self, level: DelayLevel) -> int | None:
        """Deliver a batch of a level; return when the next one is due: 0 now, ``None`` never.

        A message that cannot be delivered is tried again later; delivery continues behind it.
        """
        first, stop = self._core.bounds(SCHEDULE_TOPIC, level.queue_id) or (0, 0)
        self._retry_failed(level, first)
        if not first <= level.offset <= stop:
            log_warning(
                "%s: delay level %s goes on at %s, not at %s: its queue has %s to %s",
                self._core.path, level.number, min(max(level.offset, first), stop), level.offset,
                first, stop,
            )  # fmt: skip
            level.offset = min(max(level.offset, first), stop)
        if level.offset == stop:
            return None
        self._note_newest(level, stop)
        end = min(stop, level.offset + _BATCH)
        for unit in waiting(self._core, SCHEDULE_TOPIC, level.queue_id, level.offset, end):
            if unit.queue_offset not in level.delivered:
                due = due_of(self._core, unit, level.millis)
                now = self._core.now()
                level.note_clock(due, now, stop)
                due = level.latest(unit.queue_offset, due)
                level.offset = unit.queue_offset
                if due > now:
                    return due
                self._try_to_deliver(level, unit)
            level.delivered.discard(unit.queue_offset)
            level.offset = unit.queue_offset + 1
        level.offset = end
        return 0 if end < stop else None

    def _try_to_deliver(self, level: DelayLevel, unit: Waiting) -> None:
        """Deliver a message, or note its failure; raise if any other would fail as well."""
        try:
            self._deliver(level, unit)
        except STORE_ENDED:
            raise
        except Exception as error:
            if isinstance(error, PutError) and error.status in _REFUSE_ALL:
                raise
            if unit.queue_offset not in level.failed:
                log_warning(
                    "%s: the message of delay level %s at queue offset %s cannot be delivered, "
                    "and will be tried again: %s",
                    self._core.path, level.number, unit.queue_offset, error,
                )  # fmt: skip
            # To the end of the dict: each has its turn, however many there are.
            level.failed.pop(unit.queue_offset, None)
            level.failed[unit.queue_offset] = unit, str(error)
        else:
            level.failed.pop(unit.queue_offset, None)

    def _retry_failed(self, level: DelayLevel, first: int) -> None:
        """Retry failed deliveries every second; drop messages that retention has removed."""
        if not level.failed or time.monotonic() < level.retry_at:
            return
        for unit, _ in list(islice(level.failed.values(), _BATCH)):
            if unit.queue_offset < first:
                del level.failed[unit.queue_offset]
            else:
                self._try_to_deliver(level, unit)
        level.retry_at = time.monotonic() + _RETRY_SECONDS

    def _deliver(self, level: DelayLevel, unit: Waiting) -> None:
        """Store a due message in its real topic; discard a half one, as 4.9.3 does."""
        message = read_record(self._core, unit)
        if message is None:
            return  # removed; 4.9.3 skips it too
        if isinstance(message, Exception):
            raise message
        properties = message.properties
        place = real_place(properties)
        if place is None:
            named = f"{properties.get('REAL_TOPIC')!r}, queue {properties.get('REAL_QID')!r}"
            raise StoreError(f"offset {message.physical_offset}: it is for no queue: {named}")
        if place.topic in (HALF_TOPIC, SCHEDULE_TOPIC):
            log_warning(
                "%s: the message of delay level %s at %s is discarded: it is for %s",
                self._core.path, level.number, message.physical_offset, place.topic,
            )  # fmt: skip
            return
        put_again(self._core, place, message, properties)

    # Progress

    def _save_delays_in_time(self) -> None:
        """Write delayOffset.json if it is due."""
        now = self._core.now()
        since = now - self._saved_at
        stepped = any(level.steps for level in (self.levels or {}).values())
        if 0 <= since < self._core.config.flush_delay_offset_interval and not stepped:
            return
        self._saved_at = now
        try:
            self.save()
        except OSError as error:
            log_warning("%s: delayOffset.json will be written later: %s", self._core.path, error)

    def save(self) -> None:
        """Write delayOffset.json after deliveries, once the disk has the log so far."""
        table, levels = self._table, self.levels
        if table is None or levels is None:
            return
        with self._lock:
            offsets = {n: one.begin for n, one in levels.items() if one.begin}
            unchanged = all(table.offsets.get(n) == offset for n, offset in offsets.items())
            if unchanged:
                return
            self._core.flush_log()
            before = dict(table.offsets)
            table.offsets.update(offsets)
            try:
                table.save()
            except SyncError as error:
                self._ownership.sync_failed(error)
            except BaseException:
                table.offsets = before
                raise

    def progress(self) -> dict[int, tuple[int, int]]:
        """Return for each level the next offset to deliver, and its queue's end."""
        if self.levels is None:
            offsets = DelayTable.load(self._core.path).offsets
        else:
            offsets = {number: one.offset for number, one in self.levels.items()}
        return {
            number: (min(max(offsets.get(number, 0), first), stop), stop)
            for number, (first, stop) in self._schedule_queues().items()
        }

    def delayed(self) -> list[Delayed]:
        """Return the delayed messages that wait for their delivery.

        Returns
        -------
        list of Delayed
            By due time, earliest first.  ``message`` has the topic and the queue of its
            delivery, and the offsets of its waiting record.  Failed deliveries and damaged
            messages are included, with an ``error``.

        Raises
        ------
        StoreCorruptError
            ``delayOffset.json`` is damaged, and so is its ``.bak``.
        StoreClosedError, ForkedStoreError
            The store is not open here.

        Notes
        -----
        In ``"r"``, also beside a broker or another owner, messages delivered since
        ``delayOffset.json`` was written are left out: they are known by their records.

        Source: ``store/schedule/ScheduleMessageService.java``.
        """
        self._core.check_open()
        millis = self._level_millis()
        with self._lock:
            progress = self.progress()
            if self.levels is None:
                starts = {n: start for n, (start, _) in progress.items() if n <= len(millis)}
                gone = find_delivered(self._core, millis, starts, self._core.now())
                failed: dict[int, dict[int, tuple[Waiting, str]]] = {}
            else:
                gone = {n: set(one.delivered) for n, one in self.levels.items()}
                failed = {n: dict(one.failed) for n, one in self.levels.items()}
        found: list[Delayed] = []
        for number, (start, stop) in progress.items():
            delay = millis[number - 1] if number <= len(millis) else None
            skipped = gone.get(number, ())
            why = failed.get(number, {})
            held = [unit for unit, _ in why.values() if start > unit.queue_offset]
            units: Iterable[Waiting] = waiting(self._core, SCHEDULE_TOPIC, number - 1, start, stop)
            for unit in chain(held, units):
                if unit.queue_offset in skipped:
                    continue
                message = read_record(self._core, unit)
                if message is None:
                    continue
                error = why[unit.queue_offset][1] if unit.queue_offset in why else None
                real = None
                if isinstance(message, Exception):
                    error = str(message)
                else:
                    real = real_message(message, real_place(message.properties))
                due = due_of(self._core, unit, delay)
                at = unit.physical_offset if real is None else real.physical_offset
                found.append(Delayed(real, number, due, error, unit.queue_offset, at))
        found.sort(key=lambda one: (one.due, one.physical_offset))
        return found


def _deliver_until_stopped(reference: weakref.ref[Schedule], sleep: _Sleep) -> None:
    """Deliver due messages until the store is gone or closed; the service's thread."""
    while True:
        schedule = reference()
        if schedule is None or sleep.stopping:
            return
        sleep.woken = False
        try:
            seconds = schedule.deliver_due()
        except STORE_ENDED:
            return  # the store's own calls report it
        except Exception as error:
            log_warning("delivery of delayed messages failed, and will be tried again: %s", error)
            seconds = _AGAIN_SECONDS
        del schedule
        with sleep.lock:
            if sleep.stopping:
                return
            if not sleep.woken and seconds > 0:
                sleep.changed.wait(seconds)
