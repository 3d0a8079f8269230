"""Checks of an open store's contents at the ends of its files: log, queues, index, offsets, times.

Source: ``store/ConsumeQueue.java``, ``store/index/IndexHeader.java``,
``broker/offset/ConsumerOffsetManager.java``.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING

from rmqstore import _core
from rmqstore.base import layout
from rmqstore.base.times import format_millis
from rmqstore.brokerfiles.delays import DelayTable
from rmqstore.brokerfiles.offsets import LIGHT_PREFIX, OffsetTable
from rmqstore.errors import StoreCorruptError, StoreError
from rmqstore.files import paths
from rmqstore.files.regular import open_regular
from rmqstore.offline.findings import Finding
from rmqstore.offline.queues import QueueFiles
from rmqstore.offline.start_files import listed, numbers_at, numbers_of, relative
from rmqstore.offline.unit_search import queues_of
from rmqstore.services.stored import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, SYSTEM_TOPICS

if TYPE_CHECKING:
    from rmqstore._core import Message
    from rmqstore.consume.lag import QueueBounds
    from rmqstore.store import MessageStore

__all__ = ["StoreChecks"]

_AHEAD_MS = 60_000  # of this machine's clock
_SEARCHED = 1000  # records searched for a key in a part of the log that no index file covers
_TAIL_BYTES = 64 << 10  # behind the log's end, searched for remains


class StoreChecks:
    """Checks of a store that is open with ``"r"``; counts what it reads.

    Attributes
    ----------
    queues, units, index_files : int
        Number checked so far.
    """

    def __init__(self, opened: MessageStore, *, in_use: bool) -> None:
        self.queues = self.units = self.index_files = 0
        self._opened = opened
        self._root = Path(opened.path)
        self._in_use = in_use
        self._settled = not in_use and not os.path.lexists(self._root / paths.ABORT)
        self._log = (opened.recovery.log_start, opened.recovery.log_end)
        self._damaged = [one for one in opened.recovery.ranges if one.kind == "damaged"]
        self._ends_early = any(one.start == self._log[1] for one in self._damaged)
        self._times: list[tuple[int, int]] = []  # physical offset and store time of records read
        self._keyed = -1  # the last record with keys that was read

    @property
    def records(self) -> int:
        """Number of different records read."""
        return len({offset for offset, _ in self._times})

    @property
    def newest(self) -> int:
        """Latest store time of the records read, in ms since the epoch; 0 without any."""
        return max((millis for _, millis in self._times), default=0)

    def findings(self, directories: list[Path]) -> Iterator[Finding]:
        """Yield everything found; ``directories`` are the log's."""
        yield from self._tails(directories)
        for directory in directories:
            yield from self._log_files(directory)
        yield from self._queue_files()
        yield from self._clock()
        yield from self._index_files()
        if self._opened.config.message_index_enable:
            yield from self._coverage()
        yield from self._offset_files()
        yield from self._group_offsets()
        yield from self._delay_offsets()
        yield from self._queue_counts()

    # ---- log

    def _tails(self, directories: list[Path]) -> Iterator[Finding]:
        """Yield what lies behind the log's last record."""
        end = self._log[1]
        for one in self._opened.recovery.ranges:
            if one.kind == "torn" and not self._in_use:
                yield Finding(
                    "warn", "torn-tail", self._log_file(directories, one.start), one.start,
                    f"{one.stop - one.start:,} bytes behind the last whole record are none "
                    f"({one.reason}): a broker cuts them, and so does opening the store to write",
                    line=f"recover physics file end, {self._log_file(directories, one.start)}",
                )  # fmt: skip
                return
        size = self._opened.config.mapped_file_size_commit_log
        file = self._log_file(directories, end)
        if self._in_use or not file or end % size == 0:
            return
        try:
            with open_regular(self._root / file) as opened:
                data = os.pread(opened.fileno(), _TAIL_BYTES, end % size)
        except OSError:
            return
        if any(data):
            at = end + len(data) - len(data.lstrip(b"\0"))
            yield Finding(
                "warn", "torn-tail", file, at,
                f"bytes behind the last record, which ends at {end}, are not zeros: a broker cuts "
                "them, and so does opening the store to write",
            )  # fmt: skip

    def _log_file(self, directories: list[Path], offset: int) -> str:
        """Return the file of a physical offset, relative; empty if there is none."""
        size = self._opened.config.mapped_file_size_commit_log
        name = paths.offset_file_name(offset - offset % size)
        for directory in directories:
            if (directory / name).exists():
                return relative(self._root, directory / name)
        return ""

    def _log_files(self, directory: Path) -> Iterator[Finding]:
        """Yield the log files that do not begin with a valid record."""
        for one in listed(directory) or []:
            start = paths.parse_offset_file_name(one.name)
            if start is None or not self._log[0] <= start < self._log[1]:
                continue
            if any(bad.start <= start < bad.stop for bad in self._damaged):
                continue
            reason = self._read(start)
            if reason is not None:
                yield Finding(
                    "lost", "bad-record", relative(self._root, one.path), start,
                    f"the file's first record is damaged ({reason})",
                )  # fmt: skip

    def _read(self, physical_offset: int) -> str | None:
        """Read a record, and return its fault; of one that is gone there is none."""
        try:
            self._note(self._opened.at(physical_offset))
        except StoreCorruptError as error:
            return error.reason
        except (StoreError, OSError):
            pass
        return None

    def _note(self, message: Message) -> None:
        self._times.append((message.physical_offset, message.store_timestamp))
        if message.physical_offset > self._keyed and (message.keys or message.uniq_key):
            self._keyed = message.physical_offset

    def _clock(self) -> Iterator[Finding]:
        """Yield steps back of the clock between records read, and times ahead of it."""
        now = time.time() * 1000 + _AHEAD_MS
        self._times.sort()
        worst = (0, 0, 0)
        for (_, before), (offset, after) in itertools.pairwise(self._times):
            if before - after > worst[0]:
                worst = (before - after, offset, before)
        if worst[0]:
            yield Finding(
                "warn", "clock", paths.COMMIT_LOG, worst[1],
                f"stored {worst[0] / 1000:,.1f} s before an earlier record "
                f"({format_millis(worst[2])}): the clock was set back; searches by time take "
                "longer",
            )  # fmt: skip
        late = [one for one in self._times if one[1] > now]
        if late:
            offset, millis = late[0]
            shown = format_millis(millis) if millis < 1 << 47 else f"{millis} ms"
            yield Finding(
                "warn", "clock", paths.COMMIT_LOG, offset,
                f"stored at {shown}, which is still to come by this machine's clock",
            )  # fmt: skip

    # ---- queues

    def _queue_files(self) -> Iterator[Finding]:
        for topic, queue in queues_of(self._opened.core):
            self.queues += 1
            try:
                yield from self._queue(topic, queue)
            except OSError:  # reported with the file
                continue

    def _queue(self, topic: str, queue: QueueBounds) -> Iterator[Finding]:
        """Yield findings on both ends of each file of a queue."""
        place = f"{paths.CONSUME_QUEUE}/{topic}/{queue.queue_id}"
        files = QueueFiles(self._root, topic, queue.queue_id, self._opened.config)
        if not files.starts and queue.start < queue.stop:
            if self._settled:
                yield Finding(
                    "warn", "queue-missing", place, None,
                    f"no file, and the log has {queue.messages:,} messages of the queue: rebuild it"
                )  # fmt: skip
            elif not self._in_use:
                yield Finding(
                    "warn", "queue-unsaved", place, None,
                    f"no file, and the log has {queue.messages:,} messages of the queue: the next "
                    "start makes it, as after a kill",
                )  # fmt: skip
            return
        for start in files.starts:
            first = max(start, queue.start)
            last = min(start + files.units_a_file, queue.stop) - 1
            for at in {first, last} if first <= last else ():
                yield from self._unit(files, topic, queue.queue_id, at)

    def _unit(self, files: QueueFiles, topic: str, queue_id: int, at: int) -> Iterator[Finding]:
        """Yield the finding on a unit that does not lead to its record."""
        ((path, _, data),) = files.read(at, at + 1)
        offset, size, code = layout.UNIT.unpack(data)
        self.units += 1
        file = relative(self._root, path)
        if (offset, size) == (0, layout.UNIT_BLANK_SIZE):
            return
        if offset < 0 or size <= 0:
            if self._settled:
                message = f"no unit at queue offset {at}, where the log has a message: rebuild it"
                yield Finding("warn", "unit-missing", file, at * layout.UNIT_BYTES, message)
            return
        if offset < self._log[0] or self._is_damaged(offset):
            return  # removed, or reported with the log
        if offset >= self._log[1]:
            if not self._settled or self._ends_early:
                return  # recovery cuts it, or reported with the log
            reason: str | None = f"the log ends at {self._log[1]}"
        else:
            reason = self._contradiction((topic, queue_id, at), offset, size, code)
        if reason is not None:
            message = f"the unit at queue offset {at} leads to {offset}: {reason}"
            yield Finding("lost", "unit-mismatch", file, at * layout.UNIT_BYTES, message)
        elif code <= layout.EXT_ADDRESS:
            yield from self._ext_unit((topic, queue_id, at), file, code)

    def _is_damaged(self, offset: int) -> bool:
        return any(one.start <= offset < one.stop for one in self._damaged)

    def _contradiction(
        self, place: tuple[str, int, int], offset: int, size: int, code: int
    ) -> str | None:
        """Return how a record contradicts its unit, if it does."""
        try:
            message = self._opened.at(offset)
        except StoreCorruptError as error:
            return f"there is no valid record ({error.reason})"
        except (StoreError, OSError):
            return None if self._in_use else "no record begins there"
        self._note(message)
        there = message.topic, message.queue_id, message.queue_offset
        wanted = _core.string_hash(message.tags) if message.tags else 0
        reason = None
        if place[0].startswith(LIGHT_PREFIX):
            pass  # the record is of another topic
        elif there != place:
            reason = f"the record is of {there[0]}/{there[1]}, queue offset {there[2]}"
        elif message.store_size != size:
            reason = f"the record has {message.store_size} bytes, the unit says {size}"
        elif code > layout.EXT_ADDRESS and place[0] != SCHEDULE_TOPIC and code != wanted:
            reason = f"the record's tags code is {wanted}, the unit says {code}"
        return reason

    def _ext_unit(self, place: tuple[str, int, int], file: str, code: int) -> Iterator[Finding]:
        """Yield the finding on an ext address that leads nowhere."""
        topic, queue_id, at = place
        fields, _, _ = self._opened.core.ext_units(topic, queue_id, at, at + 1)
        _, stored, length = Struct("=qqq").unpack(memoryview(fields))
        if length >= 0 or stored >= 0:
            return
        text = (
            f"no ext unit, to which queue offset {at} leads: filters by tags read the record; "
            "rebuild the queue"
        )
        if (self._root / paths.CONSUME_QUEUE_EXT).is_dir():
            ext = f"{paths.CONSUME_QUEUE_EXT}/{topic}/{queue_id}"
            yield Finding("warn", "ext-mismatch", ext, code - layout.INT64_MIN, text)
        else:
            yield Finding("warn", "unit-mismatch", file, at * layout.UNIT_BYTES, text)

    # ---- index

    def _index_files(self) -> Iterator[Finding]:
        """Yield the index files whose header contradicts the file or the log."""
        config = self._opened.config
        files = [
            one
            for one in listed(self._root / paths.INDEX) or []
            if paths.parse_index_file_name(one.name) is not None
            and one.size == config.index_file_bytes
        ]
        for number, one in enumerate(files):
            self.index_files += 1
            try:
                with open_regular(one.path) as file:
                    header = numbers_at(file.fileno(), layout.INDEX_HEADER, 0)
                    reason = self._header_fault(file.fileno(), header, last=one is files[-1])
            except OSError:
                continue
            if reason is not None and not (self._in_use and number == len(files) - 1):
                yield Finding(
                    "warn", "index-header", relative(self._root, one.path), 0,
                    f"{reason}: a broker does not find its keys; rebuild the index",
                )  # fmt: skip

    def _header_fault(self, fd: int, header: tuple[int, ...], *, last: bool) -> str | None:
        """Return how an index file's header contradicts the file or the log, if it does."""
        begin, end, first, stop, slots, count = header
        config = self._opened.config
        entries = count - 1
        base = layout.INDEX_HEADER_BYTES + layout.INDEX_SLOT_BYTES * config.max_hash_slot_num
        one = numbers_at(fd, layout.INDEX_ENTRY, base + layout.INDEX_ENTRY_BYTES)
        reason = None
        if count <= 1:
            if any(one) or any(header[:5]):
                reason = "says that it is empty, and it is not"
            elif not last:
                reason = "empty, with another after it"
            return reason
        newest = numbers_at(fd, layout.INDEX_ENTRY, base + layout.INDEX_ENTRY_BYTES * entries)
        if count > config.max_index_num or not 0 < slots <= min(entries, config.max_hash_slot_num):
            reason = (
                f"says {entries:,} entries in {slots:,} slots, of {config.max_index_num:,} and "
                f"{config.max_hash_slot_num:,}"
            )
        elif (one[1], newest[1]) != (first, stop):
            reason = (
                f"says records {first} to {stop}, and the entries at both ends are of {one[1]} and "
                f"{newest[1]}"
            )
        elif first > stop or (self._settled and stop >= self._log[1]):
            reason = f"says records {first} to {stop}, and the log ends at {self._log[1]}"
        elif not 0 < begin <= max(time.time() * 1000, self.newest) + _AHEAD_MS or end <= 0:
            reason = f"its times are {begin} and {end} ms since 1970"
        return reason

    def _coverage(self) -> Iterator[Finding]:
        """Yield the parts of the log with keys that no index file has, or none that can be used."""
        if self._in_use or self._log[0] == self._log[1]:
            return
        at = self._log[0]
        covered = self._opened.index_coverage()
        for start, stop in [*covered, (self._log[1], self._log[1])]:
            is_end = start == self._log[1]
            if at < start and (self._settled or not is_end) and self._has_keys(at, start):
                bad = self._index_file_of(at, start)
                kind = "index-behind" if covered and is_end else "index-missing"
                text = "no index file has the keys"
                if bad is not None:
                    kind, text = "index-chain", "its entries or links contradict the log: of no use"
                yield Finding(
                    "warn", kind, bad or paths.INDEX, None,
                    f"{text} for bytes {at} to {start} of the log; rebuild the index",
                )  # fmt: skip
            at = max(at, stop)

    def _index_file_of(self, start: int, stop: int) -> str | None:
        """Return the last index file whose header names records of a part of the log.

        The one before may end with the same record.
        """
        found = None
        for one in listed(self._root / paths.INDEX) or []:
            if paths.parse_index_file_name(one.name) is not None and one.size > 0:
                _, _, first, last = numbers_of(one.path, layout.INDEX_RANGE)
                if first < stop and last >= start and last > 0:
                    found = relative(self._root, one.path)
        return found

    def _has_keys(self, start: int, stop: int) -> bool:
        """Whether a record there has keys, as far as its first records and those read show."""
        if start <= self._keyed < stop:
            return True
        found = self._opened.scan(start=start, stop=stop, on_corruption="skip", on_removed="skip")
        return any(one.keys or one.uniq_key for one in itertools.islice(found, _SEARCHED))

    # ---- offsets and counts

    def _offset_files(self) -> Iterator[Finding]:
        """Yield the offsets that opening refuses; a broker may read them in its own way."""
        for name in (paths.CONSUMER_OFFSET_JSON, paths.LMQ_CONSUMER_OFFSET_JSON):
            try:
                OffsetTable.load(self._root, name)
            except StoreCorruptError as error:
                file = relative(self._root, error.path)
                yield Finding("lost", "json", file, None, error.reason)
            except OSError:
                continue  # reported with the file

    def _group_offsets(self) -> Iterator[Finding]:
        """Yield the offsets of groups outside their queues."""
        try:
            offsets = {names: dict(found) for names, found in self._opened.offsets.items()}
        except (StoreError, OSError):
            return  # reported with the file
        file = f"{paths.CONFIG}/{paths.CONSUMER_OFFSET_JSON}"
        known = self._opened.topics
        for (topic, group), queues in sorted(offsets.items()):
            if topic not in known:
                if any(queues.values()) and not topic.startswith(("%RETRY%", LIGHT_PREFIX)):
                    message = f"group {group} has offsets of topic {topic}, which is not there"
                    yield Finding("warn", "topic-unknown", file, None, message)
                continue
            for queue_id, offset in sorted(queues.items()):
                low, high = self._opened.queue_bounds(topic, queue_id)
                place = f"group {group} is at {offset} in {topic}/{queue_id}"
                if offset > high:
                    yield Finding(
                        "warn", "offset-beyond-end", file, None,
                        f"{place}, which ends at {high}: it goes on at {0 if low == 0 else high}",
                        command=_set_offset(group, topic, queue_id)
                        if queue_id in known[topic]
                        else (),
                    )  # fmt: skip
                elif offset < low:
                    message = f"{place}, which begins at {low}: retention took what it had to read"
                    yield Finding("warn", "offset-below-start", file, None, message)

    def _delay_offsets(self) -> Iterator[Finding]:
        """Yield the progress of delay levels beyond their queue."""
        try:
            table = DelayTable.load(self._root).offsets
        except (StoreError, OSError):
            return  # reported with the file
        for level, offset in sorted(table.items()):
            _, high = self._opened.queue_bounds(SCHEDULE_TOPIC, level - 1)
            if offset > high:
                yield Finding(
                    "warn", "offset-beyond-end", f"{paths.CONFIG}/{paths.DELAY_OFFSET_JSON}", None,
                    f"delay level {level} is at {offset}, and its queue ends at {high}: a broker "
                    "corrects it",
                )  # fmt: skip

    def _queue_counts(self) -> Iterator[Finding]:
        """Yield the topics whose entry has fewer queues than hold messages."""
        for name, topic in self._opened.topics.items():
            if name in SYSTEM_TOPICS or name.startswith(LIGHT_PREFIX) or topic.perm is None:
                continue
            hidden = [
                queue_id
                for queue_id, queue in topic.items()
                if queue_id >= topic.read_queue_nums and len(queue)
            ]
            if hidden:
                shown = ", ".join(map(str, hidden[:8])) + (", ..." if len(hidden) > 8 else "")
                yield Finding(
                    "warn", "queue-count", f"{paths.CONFIG}/{paths.TOPICS_JSON}", None,
                    f"topic {name} has {topic.read_queue_nums} queues to read, and messages in "
                    f"{shown}: consumers do not see these",
                )  # fmt: skip


def _set_offset(group: str, topic: str, queue_id: int) -> tuple[str, ...]:
    """Return the command that takes a group's offset back into its queue.

    Behind the last message, as the group was ahead of it. Transactions are checked from the first
    half message on: open ones would be lost, ended ones are passed over.
    """
    to = "first" if topic in (HALF_TOPIC, OP_TOPIC) else "last"
    return ("offsets", "set", "-g", group, "-t", topic, "-q", str(queue_id), "--to", to)
