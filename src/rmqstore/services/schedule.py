"""The schedule service: delayed messages go to their real topics when they are due.

Source: ``store/schedule/ScheduleMessageService.java``.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from dataclasses import dataclass, field
from typing import Never

from rmqstore.brokerfiles.delays import DelayTable
from rmqstore.errors import (
    ForkedStoreError,
    MessageIllegalError,
    MessageNotFoundError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreFailedError,
)
from rmqstore.services.base import ServicedEngine
from rmqstore.services.schedule_search import (
    Waiting,
    due_of,
    find_delivered,
    level_millis,
    record_at,
    waiting,
)
from rmqstore.services.stored import (
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    put_again,
    real_message,
    real_place,
)
from rmqstore.syncing import SyncError
from rmqstore.types import Delayed
from rmqstore.warn import log_warning

__all__ = ["ScheduleEngine"]

_BATCH = 256  # messages of a level, until the other levels have their turn
_SHORTEST_SLEEP, _LONGEST_SLEEP = 0.02, 1.0  # seconds
_MARGIN = 20  # ms: a look so much earlier than a message put meanwhile can be due
_AGAIN_SECONDS = 0.1  # after a message could not be stored
_EXIT_SECONDS = 5.0  # how long closing, or the interpreter's exit, waits for a batch
_STEP_MILLIS = 100  # steps of the clock this close count as one


@dataclass
class _Level:
    """How far a delay level has come."""

    number: int
    millis: int
    offset: int = 0  # of what comes next
    delivered: set[int] = field(default_factory=set)  # at or behind it, by an earlier run
    steps: list[tuple[int, int]] = field(default_factory=list)  # (queue offset, latest time)
    failing: bool = False

    @property
    def queue_id(self) -> int:
        return self.number - 1

    def note_clock(self, due: int, now: int, stop: int) -> None:
        """Note that a message is due later than its delay from now: the clock went back.

        What is in the queue is then due no later than its delay from here, where 4.9.3 delivers it
        at once, and early.
        """
        latest = now + self.millis
        self.steps = [(end, min(limit, latest)) for end, limit in self.steps if end > self.offset]
        if due <= latest or (self.steps and self.steps[-1][0] >= stop):
            return
        if self.steps and latest - self.steps[-1][1] < _STEP_MILLIS:
            self.steps[-1] = (stop, self.steps[-1][1])
        else:
            self.steps.append((stop, latest))

    def latest(self, queue_offset: int, due: int) -> int:
        """Return when a message is to be delivered."""
        for end, limit in self.steps:
            if queue_offset < end:
                return min(due, limit)
        return due


@dataclass
class _Sleep:
    """What the thread of the service and those who wake or stop it share; no store."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    stopping: bool = False
    woken: bool = False
    thread: threading.Thread | None = None
    process: int = field(default_factory=os.getpid)

    def wake(self) -> None:
        with self.changed:
            self.woken = True
            self.changed.notify_all()

    def stop(self) -> None:
        """Stop the thread, and wait for a batch that is being delivered."""
        if self.process != os.getpid():
            return  # a forked child has no thread, and the lock may be held
        with self.changed:
            self.stopping = True
            thread, self.thread = self.thread, None
            self.changed.notify_all()
        atexit.unregister(self.stop)
        if thread is not None and thread is not threading.current_thread():
            thread.join(_EXIT_SECONDS)


class ScheduleEngine(ServicedEngine):
    """A store that delivers what is delayed.

    The service has a thread from the first delayed message on, or from an opening that finds some
    waiting; a store without delays has none.
    """

    _delay_sleep: _Sleep | None = None
    _delay_table: DelayTable | None = None
    _delay_levels: dict[int, _Level] | None = None
    _delays_saved_at = 0

    def _sync_failed(self, error: SyncError) -> Never:
        """Fail the store, and raise the reason."""
        raise NotImplementedError

    # Start and end

    def _read_files(self) -> None:
        """Read how far delivery had come."""
        super()._read_files()
        self._delay_table = DelayTable.load(self.path)

    def _start_services(self) -> None:
        """Go on delivering from where it had come to."""
        super()._start_services()
        self._delay_lock = threading.RLock()
        if self.mode == "r":
            return
        self._delay_sleep = _Sleep()
        weakref.finalize(self, self._delay_sleep.stop)
        table = self._delay_table
        assert table is not None
        levels = {
            number: _Level(number, millis)
            for number, millis in enumerate(level_millis(self._config), 1)
        }
        self._delay_levels = levels
        queues = self._schedule_queues()
        self._correct_times(levels, queues)
        pending = False
        for number, (first, stop) in queues.items():
            level = levels.get(number)
            if level is None:
                log_warning(
                    "%s: messages of delay level %s wait for a message_delay_level that has it",
                    self.path, number,
                )  # fmt: skip
                continue
            level.offset = min(max(table.offsets.get(number, 0), first), stop)
            pending = pending or level.offset < stop
        if pending:
            self._skip_delivered(levels)
            self._begin_schedule()

    def _skip_delivered(self, levels: dict[int, _Level]) -> None:
        """Find what was delivered already, and say so."""
        starts = {level.number: level.offset for level in levels.values()}
        # What was delivered was due by the time of a record, though the clock may be behind it.
        now = max(self._now(), self._newest_store_time())
        found = find_delivered(self, level_millis(self._config), starts, now)
        for number, offsets in found.items():
            levels[number].delivered = offsets
            log_warning(
                "%s: %s messages of delay level %s were delivered after delayOffset.json was "
                "written, and are not delivered again",
                self.path, len(offsets), number,
            )  # fmt: skip

    def _begin_schedule(self) -> None:
        """Start the thread if there is none; called by the core for the first delayed message."""
        sleep = self._delay_sleep
        if sleep is None:  # still opening: it starts with the services
            return
        with sleep.changed:
            if sleep.thread is not None or sleep.stopping:
                return
            self._delays_saved_at = self._now()
            atexit.register(sleep.stop)
            sleep.thread = threading.Thread(
                target=_deliver_until_stopped,
                args=(weakref.ref(self), sleep),
                name="rmq-schedule",
                daemon=True,
            )
            sleep.thread.start()

    def _stop_services(self) -> None:
        """Stop delivering, and write how far it has come."""
        if self._delay_sleep is not None:
            self._delay_sleep.stop()
            with contextlib.suppress(StoreClosedError, StoreFailedError, ForkedStoreError):
                try:
                    self._save_delays()
                except OSError as error:
                    # Found again by the records in the real topics.
                    log_warning("%s: delayOffset.json cannot be written: %s", self.path, error)
        super()._stop_services()

    def _undo_start(self) -> None:
        if self._delay_sleep is not None:
            self._delay_sleep.stop()
        super()._undo_start()

    def _save_services(self) -> None:
        """Write how far delivery has come."""
        self._save_delays()
        super()._save_services()

    def _advance_clock(self, millis: int) -> None:
        """Put the clock forward or back; what waits is looked at before and after."""
        self._note_clock()
        super()._advance_clock(millis)
        self._note_clock()

    def _note_clock(self) -> None:
        """Note of each level whether the clock has gone back since its newest message."""
        if self._delay_sleep is None or self._delay_sleep.thread is None:
            return
        with self._delay_lock:
            for level in (self._delay_levels or {}).values():
                stop = (self._bounds(SCHEDULE_TOPIC, level.queue_id) or (0, 0))[1]
                if level.offset < stop:
                    self._note_newest(level, stop)

    def _note_newest(self, level: _Level, stop: int) -> None:
        for unit in waiting(self, SCHEDULE_TOPIC, level.queue_id, stop - 1, stop):
            level.note_clock(due_of(self, unit, level.millis), self._now(), stop)

    def _clock_moved(self) -> None:
        super()._clock_moved()
        if self._delay_sleep is not None:
            self._delay_sleep.wake()

    def _schedule_queues(self) -> dict[int, tuple[int, int]]:
        """Return the bounds of each level's queue, by level."""
        queues = self._queue_files().get(SCHEDULE_TOPIC, [])
        return {i + 1: self._bounds(SCHEDULE_TOPIC, i) or (0, 0) for i in queues}

    def _correct_times(self, levels: dict[int, _Level], queues: dict[int, tuple[int, int]]) -> None:
        """Correct delivery times that a recovery of 4.9.3 has replaced by hashes of tags."""
        for number, (first, stop) in queues.items():
            millis = levels[number].millis if number in levels else None
            for start in range(first, stop, 1 << 16):
                count = min(stop - start, 1 << 16)
                for offset in self._forgotten_delays(number - 1, start, count):
                    [unit] = waiting(self, SCHEDULE_TOPIC, number - 1, offset, offset + 1)
                    if due := due_of(self, unit, millis):
                        self._set_tags_code(number - 1, offset, due)

    # Deliver

    def _deliver_due(self) -> float:
        """Deliver what is due; the seconds until something may be due again."""
        levels = self._delay_levels
        assert levels is not None
        assert self._delay_sleep is not None
        sleep = max(_SHORTEST_SLEEP, (min(one.millis for one in levels.values()) - _MARGIN) / 1000)
        sleep = min(sleep, _LONGEST_SLEEP)
        busy = list(levels.values())
        while busy:
            again = []
            for level in busy:
                if self._delay_sleep.stopping:
                    return 0.0
                with self._delay_lock:
                    due = self._deliver_level(level)
                if due == 0:
                    again.append(level)
                elif due is not None:
                    sleep = min(sleep, max(0.0, (due - self._now()) / 1000))
            busy = again
            self._save_delays_in_time()
        failing = any(level.failing for level in levels.values())
        return min(sleep, _AGAIN_SECONDS) if failing else sleep

    def _deliver_level(self, level: _Level) -> int | None:
        """Deliver a batch of a level; when the next is due, 0 for now, ``None`` if none waits."""
        first, stop = self._bounds(SCHEDULE_TOPIC, level.queue_id) or (0, 0)
        if not first <= level.offset <= stop:
            log_warning(
                "%s: delay level %s goes on at %s, not at %s: its queue has %s to %s",
                self.path, level.number, min(max(level.offset, first), stop), level.offset,
                first, stop,
            )  # fmt: skip
            level.offset = min(max(level.offset, first), stop)
        if level.offset == stop:
            return None
        self._note_newest(level, stop)
        end = min(stop, level.offset + _BATCH)
        for unit in waiting(self, SCHEDULE_TOPIC, level.queue_id, level.offset, end):
            if unit.queue_offset not in level.delivered:
                due = due_of(self, unit, level.millis)
                now = self._now()
                level.note_clock(due, now, stop)
                due = level.latest(unit.queue_offset, due)
                if due > now:
                    level.offset = unit.queue_offset
                    return due
                try:
                    self._deliver(level, unit)
                except (StoreClosedError, StoreFailedError, ForkedStoreError):
                    raise
                except (StoreError, OSError) as error:
                    if not level.failing:
                        log_warning(
                            "%s: delay level %s waits, and will be tried again: %s",
                            self.path, level.number, error,
                        )  # fmt: skip
                    level.failing = True
                    level.offset = unit.queue_offset
                    return None
                level.failing = False
            level.delivered.discard(unit.queue_offset)
            level.offset = unit.queue_offset + 1
        level.offset = end
        return 0 if end < stop else None

    def _deliver(self, level: _Level, unit: Waiting) -> None:
        """Store a message that is due in its real topic; one that cannot be is skipped."""
        try:
            message = self.at(unit.physical_offset)
        except MessageNotFoundError:
            return  # removed, as 4.9.3 passes it over
        except StoreCorruptError as error:
            self._say_skipped(level, unit, str(error))
            return
        properties = message.properties
        place = real_place(properties)
        if place is None or place.topic in (HALF_TOPIC, SCHEDULE_TOPIC):
            real = f"{properties.get('REAL_TOPIC')!r}, queue {properties.get('REAL_QID')!r}"
            self._say_skipped(level, unit, f"it cannot be delivered to {real}")
            return
        try:
            put_again(self, place, message, properties)
        except MessageIllegalError as error:
            self._say_skipped(level, unit, str(error))

    def _say_skipped(self, level: _Level, unit: Waiting, why: str) -> None:
        log_warning(
            "%s: the message of delay level %s at %s is skipped: %s",
            self.path, level.number, unit.physical_offset, why,
        )  # fmt: skip

    # Progress

    def _save_delays_in_time(self) -> None:
        """Write delayOffset.json if it is time to."""
        now = self._now()
        since = now - self._delays_saved_at
        stepped = any(level.steps for level in (self._delay_levels or {}).values())
        if 0 <= since < self._config.flush_delay_offset_interval and not stepped:
            return
        self._delays_saved_at = now
        try:
            self._save_delays()
        except OSError as error:
            log_warning("%s: delayOffset.json will be written later: %s", self.path, error)

    def _save_delays(self) -> None:
        """Write delayOffset.json if something was delivered; never ahead of the log's disk."""
        table, levels = self._delay_table, self._delay_levels
        if table is None or levels is None:
            return
        with self._delay_lock:
            offsets = {n: one.offset for n, one in levels.items() if one.offset}
            unchanged = all(table.offsets.get(n) == offset for n, offset in offsets.items())
            if unchanged:
                return
            self._flush_log()
            before = dict(table.offsets)
            table.offsets.update(offsets)
            try:
                table.save()
            except SyncError as error:
                self._sync_failed(error)
            except BaseException:
                table.offsets = before
                raise

    def _delay_progress(self) -> dict[int, tuple[int, int]]:
        """Return for each level what is delivered next, and its queue's end."""
        if self._delay_levels is None:
            offsets = DelayTable.load(self.path).offsets
        else:
            offsets = {number: one.offset for number, one in self._delay_levels.items()}
        return {
            number: (min(max(offsets.get(number, 0), first), stop), stop)
            for number, (first, stop) in self._schedule_queues().items()
        }

    def delayed(self) -> list[Delayed]:
        """Return the delayed messages that wait for their delivery.

        Returns
        -------
        list of Delayed
            The one that is due first comes first.  ``message`` has the topic and the queue that it
            will be delivered to; its offsets are where it waits.

        Raises
        ------
        StoreCorruptError
            ``delayOffset.json`` is damaged, and so is its ``.bak``.
        StoreClosedError, ForkedStoreError
            The store is not open here.

        Notes
        -----
        In ``"r"``, beside a broker or another owner too, those that were delivered since
        ``delayOffset.json`` was written are left out: they are known by their records.

        Source: ``store/schedule/ScheduleMessageService.java``.
        """
        self._check_open()
        millis = level_millis(self._config)
        with self._delay_lock:
            progress = self._delay_progress()
            if self._delay_levels is None:
                starts = {n: start for n, (start, _) in progress.items() if n <= len(millis)}
                gone = find_delivered(self, millis, starts, self._now())
            else:
                gone = {n: set(one.delivered) for n, one in self._delay_levels.items()}
        found: list[Delayed] = []
        for number, (start, stop) in progress.items():
            delay = millis[number - 1] if number <= len(millis) else None
            skipped = gone.get(number, ())
            for unit in waiting(self, SCHEDULE_TOPIC, number - 1, start, stop):
                if unit.queue_offset in skipped:
                    continue
                message = record_at(self, unit.physical_offset)
                if message is not None:
                    place = real_place(message.properties)
                    real = real_message(message, place)
                    found.append(Delayed(real, number, due_of(self, unit, delay)))
        found.sort(key=lambda one: (one.due, one.message.physical_offset))
        return found


def _deliver_until_stopped(reference: weakref.ref[ScheduleEngine], sleep: _Sleep) -> None:
    """Deliver what is due until the store is gone or closed; the service's thread."""
    while True:
        store = reference()
        if store is None or sleep.stopping:
            return
        sleep.woken = False
        try:
            seconds = store._deliver_due()
        except (StoreClosedError, StoreFailedError, ForkedStoreError):
            return  # the store's own calls say so
        except Exception as error:
            log_warning("delivery of delayed messages failed, and will be tried again: %s", error)
            seconds = _AGAIN_SECONDS
        del store
        with sleep.changed:
            if sleep.stopping:
                return
            if not sleep.woken and seconds > 0:
                sleep.changed.wait(seconds)
