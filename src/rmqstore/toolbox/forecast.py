"""Forecast of a 4.9.3 broker on a store: its start, its next deletions, and a full disk.

Source: ``store/DefaultMessageStore.java CleanCommitLogService``,
``store/MappedFileQueue.java deleteExpiredFileByTime``, ``common/UtilAll.java isItTimeToDo``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from rmqstore import opening
from rmqstore.base.layout import INT64_MAX
from rmqstore.base.times import format_millis, to_millis
from rmqstore.brokerfiles.offsets import LIGHT_PREFIX
from rmqstore.config.brokerconf import read_properties
from rmqstore.config.store_config import StoreConfig, read_as_broker
from rmqstore.consume.lag import bounds_by_topic, with_uncommitted
from rmqstore.directory.layout import log_directories
from rmqstore.errors import StoreCorruptError, StoreError
from rmqstore.offline.start import broker_start_of
from rmqstore.offline.start_files import relative
from rmqstore.offline.start_losses import log_of, recovery_start
from rmqstore.offline.unit_search import first_from, first_unit, queues_of

if TYPE_CHECKING:
    from rmqstore.base.times import TimeLike
    from rmqstore.offline.findings import BrokerStart, Finding
    from rmqstore.store import MessageStore

__all__ = ["GroupLoss", "Plan", "PlanEvent", "broker_config", "plan", "plan_of"]

_T = TypeVar("_T")

_HOUR = 3_600_000  # ms
_DAY = 24 * _HOUR
_RESERVED_HOURS = 72  # fileReservedTime's default in a broker
_FILES_A_ROUND = 10  # DELETE_FILES_BATCH_MAX
_WARNING_RATIO = 90  # percent
_APART = _HOUR  # between a file's time and its messages': worth a word


@dataclass(frozen=True, slots=True)
class GroupLoss:
    """Messages of a topic that go before a group has consumed them.

    Attributes
    ----------
    group, topic : str
    unconsumed : int
    """

    group: str
    topic: str
    unconsumed: int


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """Event of a forecast: a start, or a deletion.

    Attributes
    ----------
    event : str
        ``"start"`` or ``"delete"``.
    at : int or None
        In ms since the epoch; None if it is not in sight.
    why : str
        The reason, and for a start what is recovered.
    files : tuple of str
        Files that go, relative to the store.
    bytes, messages : int
        Bytes of the log that go, and the messages of queues in them.
    oldest_kept : int or None
        Store time of the oldest message left, in ms since the epoch; None without one.
    groups : tuple of GroupLoss
        Groups with what they have not consumed of it, most first.
    delayed, in_doubt : int
        Delayed messages that wait, and half messages without an end, in what goes.
    """

    event: Literal["start", "delete"]
    at: int | None
    why: str
    files: tuple[str, ...] = ()
    bytes: int = 0
    messages: int = 0
    oldest_kept: int | None = None
    groups: tuple[GroupLoss, ...] = ()
    delayed: int = 0
    in_doubt: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Result of :func:`plan`.

    Attributes
    ----------
    events : tuple of PlanEvent
        The start, then the deletion at the next ``deleteWhen``, then those by use of the disk.
    used : float
        Used part of the log's disk, 0 to 1, as a broker computes it.
    full_at : int or None
        Time at which the disk is full, in ms since the epoch, at the rate of the last day and
        without deletions; None if nothing was stored in it.
    """

    events: tuple[PlanEvent, ...]
    used: float
    full_at: int | None


def plan(
    path: str | os.PathLike[str],
    *,
    config: StoreConfig | str | os.PathLike[str] | None = None,
    at: TimeLike | None = None,
) -> Plan:
    """Forecast what a 4.9.3 broker would do if it started on a store now, and later delete.

    A broker deletes by the files' own times, never the last file of the log. Nothing is written.

    Parameters
    ----------
    path : path-like
        Directory of the store; it may be in use, or a copy with its files' times kept.
    config : StoreConfig or path of a broker.conf, optional
        The broker's: ``fileReservedTime`` is 72 hours if it is unset, ``deleteWhen`` is ``04``.
    at : int, datetime or str, optional
        Time of the start; now by default.

    Returns
    -------
    Plan

    Raises
    ------
    ValueError
        ``at`` is no point in time, or the configuration is out of range.
    StoreNotFoundError, IncompatibleStoreError, OSError
        As for :func:`rmqstore.open`.

    Notes
    -----
    Source: ``store/DefaultMessageStore.java CleanCommitLogService``.
    """
    chosen = config if isinstance(config, StoreConfig) else broker_config(config)
    moment = None if at is None else to_millis(at, name="at")
    with opening.open(path, config=chosen) as opened:
        return plan_of(opened, chosen, moment)


def broker_config(path: str | os.PathLike[str] | None) -> StoreConfig:
    """Return the configuration of a broker with that broker.conf, or with none."""
    unset = {"clean_file_forcibly_enable": True}  # what an embedded store has otherwise
    if path is None:
        return StoreConfig(file_reserved_time=_RESERVED_HOURS).replace(**unset)
    config = read_as_broker(path)
    if any(one.key == "cleanFileForciblyEnable" for one in read_properties(path)):
        return config
    return config.replace(**unset)


def plan_of(opened: MessageStore, config: StoreConfig, at: int | None) -> Plan:
    """Return :func:`plan` of a store that is open with ``"r"``; ``config`` is the broker's."""
    now = time.time_ns() // 1_000_000 if at is None else at
    forecast = _Forecast(opened, config, now)
    events = (forecast.start(), *forecast.deletions())
    return Plan(events, forecast.disk.used, forecast.disk.reached_at(100))


def _reason(verdict: BrokerStart) -> str:
    """Return the worst finding of a verdict with its file."""
    worst = verdict.findings[0]
    return f"{worst.file}: {worst.message}"


class _Disk(NamedTuple):
    """Use of the log's disk, and the rate at which it grows."""

    now: int
    taken: int  # bytes
    usable: int
    rate: float  # bytes a ms

    @property
    def used(self) -> float:
        """Used part, rounded up to a percent."""
        whole = self.taken + self.usable
        return -(-self.taken * 100 // whole) / 100 if whole else 0.0

    def reached_at(self, percent: int) -> int | None:
        """Return the time from which more than a part is used; ``None`` if never."""
        lacking = (self.taken + self.usable) * percent / 100 - self.taken
        if lacking <= 0:
            return self.now
        if self.rate <= 0:
            return None
        moment = self.now + int(lacking / self.rate)
        return moment if moment < 1 << 47 else None  # later than any date


class _AgedFile(NamedTuple):
    start: int
    path: str
    changed: int  # ms


class _Forecast:
    """Forecasts for one store, at one time."""

    def __init__(self, opened: MessageStore, config: StoreConfig, now: int) -> None:
        self._opened = opened
        self._config = config
        self._now = now
        self._root = Path(opened.path)
        self._directories = log_directories(opened.path, opened.config)
        self._end = opened.recovery.log_end
        self._files = []
        for start, path in log_of(self._directories):
            try:
                changed = os.stat(path).st_mtime_ns // 1_000_000  # noqa: PTH116
            except OSError:
                continue  # a live owner removed it
            self._files.append(_AgedFile(start, path, changed))
        self._unknown = ""
        self._committed = self._known("groups", self._offsets) or {}
        delayed = self._known("delayed messages", opened.delayed) or []
        in_doubt = self._known("messages in doubt", opened.in_doubt) or []
        self._waiting = [
            [one.physical_offset for one in delayed],
            [one.physical_offset for one in in_doubt],
        ]
        self.disk = self._disk()

    def _offsets(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Return the groups' offsets, uncommitted queues included."""
        opened = self._opened
        return with_uncommitted(dict(opened.offsets), opened.queue_ids(), opened.registry)

    def _known(self, named: str, read: Callable[[], _T]) -> _T | None:
        """Read a JSON file; note a torn one and return None."""
        try:
            return read()
        except StoreCorruptError as error:
            file = Path(os.fsdecode(error.path)).name
            self._unknown += f"; the {named} are unknown: {file} cannot be read"
            return None

    # ---- start

    def start(self) -> PlanEvent:
        """Return the event of the start."""
        found = self._start()
        return replace(found, why=found.why + self._unknown)

    def _start(self) -> PlanEvent:
        verdict = broker_start_of(self._opened, self._config)
        if verdict.broker == "refuses" or not self._files:
            # Forecasts of deletions are for when it has been mended.
            why = f"{verdict.text}: {_reason(verdict)}"
            return PlanEvent("start", self._now, why, oldest_kept=self._time_at(0))
        log = log_of(self._directories)
        begin = recovery_start(self._root, log)
        killed = any(one.kind == "abort" for one in verdict.findings)
        name = next(path for start, path in log if start == begin)
        number = sum(start >= begin for start, _ in log)
        why = (
            f"{'it was killed' if killed else 'it was closed'}: the log is recovered from "
            f"{relative(self._root, name)} on, {number} of {len(log)} files"
        )
        why += ", and its queues and index are made anew from there" if killed else ""
        cut = self._cut(verdict.findings)
        why += f"; the log is cut at {cut}" if cut < self._end else ""
        gone = [path for start, path in log if start > cut]
        # A file made ahead goes as well: then the one before it is the last, which stays.
        self._files = [one for one in self._files if one.start <= cut]
        gone += [
            os.fspath(self._root / one.file)
            for one in verdict.findings
            if one.kind == "index-behind"
        ]
        lost, groups, waiting = self._in_range(cut, INT64_MAX)
        if verdict.broker in ("loses", "loops"):
            why += f"; {verdict.text}: {_reason(verdict)}"
        return PlanEvent(
            "start",
            self._now,
            why,
            tuple(relative(self._root, path) for path in gone),
            bytes=max(0, self._end - cut),
            messages=max(lost, verdict.messages_lost),
            oldest_kept=self._time_at(0),
            groups=groups,
            delayed=waiting[0],
            in_doubt=waiting[1],
        )

    def _cut(self, findings: Iterable[Finding]) -> int:
        """Return where the start cuts the log; its end if it does not."""
        offsets = [
            one.offset
            for one in findings
            if one.by_start
            and one.kind in ("bad-record", "newer-format")
            and one.offset is not None
        ]
        return min(offsets, default=self._end)

    # ---- deletions

    def deletions(self) -> Iterator[PlanEvent]:
        """Yield the deletions: at the next ``deleteWhen``, then by use of the disk."""
        config = self._config
        due = self._next_due()
        a_round = max(1, config.clean_resource_interval)
        yield self._deletion(
            due,
            f"deleteWhen={config.delete_when}: files older than fileReservedTime={self._reserved}",
            self._expired(due, _HOUR // a_round * _FILES_A_ROUND),
        )
        used = f"{round(self.disk.used * 100)} % now"
        most = config.disk_max_used_space_ratio
        moment = self.disk.reached_at(most)
        yield self._deletion(
            moment,
            f"the disk is more than {most} % full ({used}): expired files go at any hour, "
            f"{_FILES_A_ROUND} a round",
            self._expired(self._now if moment is None else moment, _FILES_A_ROUND),
        )
        first = self._files[:-1][:_FILES_A_ROUND] if config.clean_file_forcibly_enable else []
        for percent, words in (
            (config.disk_space_clean_forcibly_ratio, ""),
            (config.disk_space_warning_level_ratio or _WARNING_RATIO, ", and no message is taken"),
        ):
            yield self._deletion(
                self.disk.reached_at(percent),
                f"the disk is more than {percent} % full ({used}): the oldest files go, expired or "
                f"not, {_FILES_A_ROUND} a round{words}",
                first,
            )

    @property
    def _reserved(self) -> int:
        """Hours for which files are kept."""
        hours = self._config.file_reserved_time
        return _RESERVED_HOURS if hours is None else hours

    def _next_due(self) -> int:
        """Return when the next hour of ``deleteWhen`` begins, or now in one of them."""
        wanted = {int(one) for one in self._config.delete_when.split(";") if one.strip()}
        moment = self._now
        for _ in range(49):  # hours, with a change of the clock for summer
            local = time.localtime(moment / 1000)
            if local.tm_hour in wanted:
                return moment
            moment += _HOUR - (local.tm_min * 60 + local.tm_sec) * 1000 - moment % 1000
        return moment

    def _expired(self, moment: int, most: int) -> list[_AgedFile]:
        """Return the first files that are old enough at a time; never the last."""
        limit = moment - self._reserved * _HOUR
        found: list[_AgedFile] = []
        for one in self._files[:-1]:
            if one.changed > limit or len(found) == most:
                break
            found.append(one)
        return found

    def _deletion(self, at: int | None, why: str, gone: list[_AgedFile]) -> PlanEvent:
        if not gone:
            return PlanEvent("delete", at, f"{why}; {self._none()}", oldest_kept=self._time_at(0))
        until = self._files[len(gone)].start
        messages, groups, waiting = self._in_range(0, until)
        return PlanEvent(
            "delete",
            at,
            why + self._apart(gone) + self._unknown,
            tuple(relative(self._root, one.path) for one in gone),
            bytes=len(gone) * self._opened.config.mapped_file_size_commit_log,
            messages=messages,
            oldest_kept=self._time_at(until),
            groups=groups,
            delayed=waiting[0],
            in_doubt=waiting[1],
        )

    def _none(self) -> str:
        """Return why no file goes."""
        if len(self._files) < 2:
            return "there is one file, and the last one stays"
        first = self._files[0].changed + self._reserved * _HOUR
        return f"none goes before {format_millis(first)}"

    def _apart(self, gone: list[_AgedFile]) -> str:
        """Return a warning if files' times and messages' times are far apart."""
        later = [
            one.changed - newest
            for one, after in zip(gone, self._files[1:], strict=False)
            if (newest := self._time_at(after.start)) is not None
        ]
        worst = max(later, key=abs, default=0)
        if abs(worst) < _APART:
            return ""
        side = "later" if worst > 0 else "earlier"
        return (
            f"; the files' times, by which a broker deletes, are up to {abs(worst) // _HOUR:,} "
            f"hours {side} than their messages'"
        )

    # ---- the store

    def _in_range(
        self, start: int, stop: int
    ) -> tuple[int, tuple[GroupLoss, ...], tuple[int, int]]:
        """Return the messages of a part of the log, those not consumed, and those that wait."""
        messages = 0
        spans: dict[str, dict[int, tuple[int, int]]] = {}
        core = self._opened.core
        for topic, queue in queues_of(core):
            low = first_from(core, topic, queue, start) if start > 0 else queue.start
            high = queue.stop
            if stop < INT64_MAX:
                high = first_from(core, topic, queue._replace(start=low), stop)
            spans.setdefault(topic, {})[queue.queue_id] = (low, high)
            if not topic.startswith(LIGHT_PREFIX):  # which have no records of their own
                messages += high - low
        found = []
        for (topic, group), committed in self._committed.items():
            behind = 0
            for queue_id, offset in committed.items():
                low, high = spans.get(topic, {}).get(queue_id, (0, 0))
                behind += max(0, high - max(low, offset))
            if behind:
                found.append(GroupLoss(group, topic, behind))
        found.sort(key=lambda one: (-one.unconsumed, one.group, one.topic))
        delayed, in_doubt = (
            sum(start <= offset < stop for offset in offsets) for offsets in self._waiting
        )
        return messages, tuple(found), (delayed, in_doubt)

    def _time_at(self, physical_offset: int) -> int | None:
        """Return the store time of the first message at or after a physical offset."""
        found = self._opened.scan(
            start=max(physical_offset, self._opened.recovery.log_start),
            on_corruption="skip",
            on_removed="skip",
        )
        return next((one.store_timestamp for one in found), None)

    def _disk(self) -> _Disk:
        """Return the use of the log's disk; of several the emptiest."""
        best = _Disk(self._now, 0, 0, 0.0)
        for directory in self._directories:
            try:
                status = os.statvfs(directory)
            except OSError:
                continue
            taken = (status.f_blocks - status.f_bfree) * status.f_frsize
            one = _Disk(self._now, taken, status.f_bavail * status.f_frsize, 0.0)
            if best.taken == 0 or one.used < best.used:
                best = one
        return best._replace(rate=self._rate())

    def _rate(self) -> float:
        """Return the bytes a ms by which the log grew in the last day."""
        since = self._now - _DAY
        core = self._opened.core
        begin = self._end
        for topic, queues in bounds_by_topic(core).items():
            for queue in queues:
                try:
                    bounds = (queue.start, queue.stop)
                    at = core.first_after(topic, queue.queue_id, since - 1, bounds)
                    found = first_unit(core, topic, queue.queue_id, at, queue.stop)
                except (StoreError, OSError, LookupError):
                    continue
                begin = min(begin, self._end if found is None else found[0])
        first = self._time_at(begin) if begin < self._end else None
        if first is None or first > self._now:
            return 0.0
        return (self._end - begin) / max(self._now - first, 60_000)
