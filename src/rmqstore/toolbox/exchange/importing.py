"""Import: messages of a file of Parquet, Arrow IPC, CSV or JSON lines, put into a store."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from rmqstore import opening
from rmqstore.base.arguments import did_you_mean
from rmqstore.base.layout import INT64, RECORD_STORE_TIMESTAMP, RECORD_SYS_FLAG
from rmqstore.base.syncing import make_directories, sync_path
from rmqstore.config.store_config import StoreConfig
from rmqstore.directory.layout import refuse_inside, without_paths
from rmqstore.errors import StoreError, TopicNotFoundError
from rmqstore.files import paths
from rmqstore.files.links import absolute, target_of
from rmqstore.offline.log_writer import SCHEDULE_TOPIC, LogWriter, check_table
from rmqstore.services.stored import HALF_TOPIC, OP_TOPIC
from rmqstore.toolbox.exchange.formats import format_of
from rmqstore.toolbox.exchange.message_files import MessageFile

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqstore.store import MessageStore

__all__ = ["Imported", "import_messages"]

_UNFINISHED = ".unfinished"
_WAITING = (SCHEDULE_TOPIC, HALF_TOPIC)  # of no effect until they are delivered
_TRANSACTION, _COMMIT = 0xC, 0x8  # of sys_flag; a half message and a rollback are no message
_BORN_V6 = 0x10
_V6_MORE = 12  # bytes
_QUEUES_MOST = 65_536
_COPIED = 8 << 20
_NAMES_SHOWN = 6
_SIZES = ("mapped_file_size_consume_queue", "max_hash_slot_num", "max_index_num")

File = str | os.PathLike[str] | IO[bytes]
Progressed = Callable[[int], object]
Piece = tuple["pa.RecordBatch", Sequence[int]]


@dataclass(frozen=True, slots=True)
class Imported:
    """Result of an import.

    Attributes
    ----------
    messages : int
        Messages put.
    bytes : int
        Size of the file.
    seconds : float
    skipped : int
        Rows left out: of other topics, and records that no consumer sees.
    """

    messages: int
    bytes: int
    seconds: float
    skipped: int


def import_messages(
    file: File,
    path: str | os.PathLike[str],
    *,
    topics: Iterable[str] | None = None,
    keep_time: bool = False,
    keep_queues: bool = False,
    format: Literal["parquet", "arrow", "csv", "jsonl"] | None = None,
    config: StoreConfig | str | os.PathLike[str] | None = None,
    progressed: Progressed | None = None,
) -> Imported:
    """Put the messages of a file that :func:`export`, ``cat`` or another program has made.

    They keep topic, keys, tags, unique key and all other properties, born time and host, flags,
    reconsume times and the place of a half message; bodies are stored inflated. All rows are
    checked before the first is put.  A store that does not exist is made, under the name
    ``PATH.unfinished`` until it is complete; an error removes that.

    Waiting delayed messages, half messages and their ends, and rolled back ones are left out: no
    consumer has seen them, or they are there again as delivered. Delayed and half messages are
    imported where ``topics`` names ``SCHEDULE_TOPIC_XXXX`` or ``RMQ_SYS_TRANS_HALF_TOPIC``: the
    former wait for their level's time once more, the latter are all without an end.

    Parameters
    ----------
    file : path-like or binary file
        The file; one that does not seek is copied to a temporary one.
    path : path-like
        Directory of the store; one with messages must have no owner.
    topics : iterable of str, optional
        Only these topics' messages.
    keep_time : bool, optional
        Keep the store times of the file, which must not descend, in a new store.
    keep_queues : bool, optional
        Keep the queue ids of the file; otherwise the queues of a topic take turns.
    format : {"parquet", "arrow", "csv", "jsonl"}, optional
        By default that of the file's ending, as for :func:`export`.
    config : StoreConfig or path of a broker.conf, optional
        As for :func:`rmqstore.open`; sizes of a new store.
    progressed : callable, optional
        Gets counts of messages put.

    Returns
    -------
    Imported

    Raises
    ------
    ValueError
        The file is not one of messages, or a row is none: the message names it, and nothing was
        put. Or an argument is out of range.
    TopicNotFoundError
        The file has no message of one of ``topics``; nothing was put.
    ImportError
        pyarrow is missing.
    StoreError
        As for :meth:`MessageStore.put_table`, with the number of messages put.
    StoreLockedError, IncompatibleStoreError, StoreCorruptError
        As for :func:`rmqstore.open`.
    FileExistsError
        ``PATH.unfinished`` exists.
    OSError
        A file cannot be read or written.
    """
    begin = time.monotonic()
    chosen = None if topics is None else frozenset((topics,) if isinstance(topics, str) else topics)
    with _opened(file, format) as source:
        work = _Import(source, chosen, keep_time, keep_queues, progressed or (lambda count: None))
        root = target_of(Path(absolute(path)))
        given = config if config is None or isinstance(config, StoreConfig) else _read(config)
        if _is_new(root, given):
            work.make(root, given or StoreConfig())
        elif keep_time:
            raise ValueError(
                f"{path}: store times can be kept in a new store alone: name a directory that does "
                "not exist, or import without keep_time"
            )
        else:
            with opening.open(path, "a", config=config) as store:
                work.put(store)
        return Imported(work.done, source.size, time.monotonic() - begin, work.skipped)


@dataclass
class _Contents:
    """What a pass over the file found."""

    messages: int = 0
    queues: dict[str, int] = field(default_factory=dict)  # the highest of each topic


@dataclass
class _Import:
    """An import of a file's chosen messages."""

    source: MessageFile
    topics: frozenset[str] | None
    keep_time: bool
    keep_queues: bool
    progressed: Progressed
    done: int = 0
    skipped: int = 0
    seen: set[str] = field(default_factory=set)  # topics of the file, if some are chosen

    def put(self, store: MessageStore) -> None:
        """Check all messages, and put them into an open store."""
        plan = self._check(store.config, store.core.sizes()[0])
        self._make_topics(store, plan)
        for batch, _ in self._pieces():
            try:
                store.put_table(self._table(batch), wait=False)
            except (StoreError, OSError) as error:
                there = self.done + getattr(error, "stored", 0)
                raise StoreError(
                    f"{error}; {there:,} of {plan.messages:,} messages are in the store before"
                ) from error
            self._count(batch)
        store.flush()

    def make(self, root: Path, config: StoreConfig) -> None:
        """Check all messages, and make a store of them."""
        refuse_inside(str(root))
        plan = self._check(config, config.mapped_file_size_commit_log)
        make_directories(root.parent, sync_parent=False)
        making = root.with_name(root.name + _UNFINISHED)
        try:
            making.mkdir()
        except FileExistsError as error:
            why = "an import that was not finished, or is under way"
            raise FileExistsError(errno.EEXIST, why, str(making)) from error
        try:
            # Files of old messages are not to be deleted before anybody has seen them.
            config = without_paths(config).replace(
                file_reserved_time=None, **{name: getattr(config, name) for name in _SIZES}
            )
            if self.keep_time:
                self._write_log(making, config)
            with opening.open(making, "a", config=config) as store:
                if self.keep_time:
                    self._make_topics(store, plan)
                else:
                    self.put(store)
            making.rename(root)
        except BaseException as error:
            shutil.rmtree(making, ignore_errors=True)
            if isinstance(error, StoreError) and isinstance(error.__cause__, StoreError | OSError):
                raise StoreError(f"{error.__cause__}; nothing of the import is left") from error
            raise
        sync_path(root.parent)

    def _check(self, config: StoreConfig, file_size: int) -> _Contents:
        """Check all messages as a put does, and return what there is."""
        plan = _Contents()
        newest = None
        for batch, numbers in self._pieces():
            try:
                check_table(
                    self._table(batch, whole=True),
                    max_message_size=config.max_message_size,
                    file_size=file_size,
                    record_checksum=config.record_checksum,
                    store_host_v6=config.store_host.startswith("["),
                )
            except (ValueError, TypeError) as error:
                raise self._by_number(error, numbers) from None
            if self.keep_time:
                newest = self._check_times(batch, numbers, newest)
            plan.messages += batch.num_rows
            self._note_queues(plan, batch, numbers)
        for topic in sorted((self.topics or frozenset()) - self.seen):
            if topic not in _WAITING:
                known = ", ".join(sorted(self.seen)[:_NAMES_SHOWN]) or "none at all"
                hint = did_you_mean(topic, self.seen) or f"it has {known}"
                text = f"{self.source.name}: no message of topic {topic!r}; {hint}"
                raise TopicNotFoundError(text)
        self.skipped = 0  # the next pass counts again
        return plan

    def _by_number(self, error: Exception, numbers: Sequence[int]) -> ValueError:
        """Return an error of a batch with the number of the row in the file."""
        found = re.search(r"\brow (\d+)", str(error))
        if found is None or int(found[1]) >= len(numbers):
            return ValueError(f"{self.source.name}: {error}")
        text = re.sub(r",? ?\brow \d+", "", str(error), count=1)
        return self.source.refuse(numbers[int(found[1])], text)

    def _check_times(
        self, batch: pa.RecordBatch, numbers: Sequence[int], newest: int | None
    ) -> int | None:
        """Raise unless the store times of a batch are there and do not descend."""
        for number, millis in zip(numbers, _times_of(self.source, batch), strict=True):
            if millis is None or millis < 0:
                raise self.source.refuse(number, "has no store_timestamp to keep")
            if newest is not None and millis < newest:
                raise self.source.refuse(
                    number,
                    f"store_timestamp {millis} is before the one above it, {newest}: a store has "
                    "them in order; sort the file, or import without its store times",
                )
            newest = millis
        return newest

    def _note_queues(self, plan: _Contents, batch: pa.RecordBatch, numbers: Sequence[int]) -> None:
        topics = batch.column("topic").to_pylist()
        queues: list[int | None] = [None] * batch.num_rows
        if self.keep_queues:
            if "queue_id" not in batch.schema.names:
                raise ValueError(f"{self.source.name}: it has no column 'queue_id' to keep")
            queues = batch.column("queue_id").to_pylist()
        for number, topic, queue_id in zip(numbers, topics, queues, strict=True):
            if queue_id is not None and queue_id >= _QUEUES_MOST:
                raise self.source.refuse(
                    number, f"queue_id must be below {_QUEUES_MOST} to keep it, got {queue_id}"
                )
            known = plan.queues.get(topic, -1)
            plan.queues[topic] = max(known, -1 if queue_id is None else queue_id)

    def _make_topics(self, store: MessageStore, plan: _Contents) -> None:
        """Make the topics, or give them the queues that are kept."""
        least = store.config.default_topic_queue_nums
        for topic, highest in plan.queues.items():
            entry = store.registry.get(topic)
            if topic in _WAITING:
                continue
            if entry is None:
                store.create_topic(topic, max(least, highest + 1))
            elif highest >= entry.write_queue_nums:
                store.create_topic(topic, highest + 1, order=entry.order, perm=entry.perm)

    def _write_log(self, making: Path, config: StoreConfig) -> None:
        """Write the log alone, with the store times of the file; opening adds the rest."""
        turns: Counter[str] = Counter()
        directory = making / paths.COMMIT_LOG
        with LogWriter(making, config.replace(record_checksum=False)) as log:
            for batch, _ in self._pieces():
                table = self._table(batch)
                if not self.keep_queues:
                    queues = _in_turn(batch, turns, config.default_topic_queue_nums)
                    table = _with_column(table, "queue_id", queues)
                offsets = log.append(table)
                times = _times_of(self.source, batch)
                _set_times(directory, config.mapped_file_size_commit_log, offsets, times)
                self._count(batch)
        for one in directory.iterdir():
            sync_path(one)

    def _count(self, batch: pa.RecordBatch) -> None:
        self.done += batch.num_rows
        self.progressed(self.done)

    def _pieces(self) -> Iterator[Piece]:
        """Iterate over the chosen rows; counts the others."""
        import pyarrow as pa

        for batch, numbers in self.source.pieces():
            topics = batch.column("topic").to_pylist()
            flags = [0] * len(topics)
            if "sys_flag" in batch.schema.names:
                flags = batch.column("sys_flag").to_pylist()
            mask = [
                self._takes(topic, flag or 0) for topic, flag in zip(topics, flags, strict=True)
            ]
            if all(mask):
                if mask:
                    yield batch, numbers
                continue
            chosen = [at for at, taken in enumerate(mask) if taken]
            self.skipped += len(mask) - len(chosen)
            if chosen:
                yield batch.filter(pa.array(mask)), [numbers[at] for at in chosen]

    def _takes(self, topic: object, flag: object) -> bool:
        """Return whether a row is imported; one that is no message is refused later."""
        if self.topics is not None and isinstance(topic, str):
            self.seen.add(topic)
            if topic not in self.topics:
                return False
        if topic == OP_TOPIC or (topic in _WAITING and self.topics is None):
            return False
        is_message = not isinstance(flag, int) or flag & _TRANSACTION in (0, _COMMIT)
        return is_message or topic == HALF_TOPIC

    def _table(self, batch: pa.RecordBatch, *, whole: bool = False) -> pa.Table:
        """Return rows as ``put_table`` takes them; queue ids that are not kept are nulls."""
        import pyarrow as pa

        table = pa.Table.from_batches([batch])
        if "queue_id" in batch.schema.names and not self.keep_queues and not whole:
            topics = batch.column("topic").to_pylist()
            if not any(topic in _WAITING for topic in topics):
                return table.drop_columns(["queue_id"])
            queues = batch.column("queue_id").to_pylist()
            kept = [
                queue_id if topic in _WAITING else None
                for topic, queue_id in zip(topics, queues, strict=True)
            ]
            return _with_column(table, "queue_id", kept)
        return table


def _with_column(table: pa.Table, name: str, values: list[int | None]) -> pa.Table:
    import pyarrow as pa

    column = pa.array(values, pa.int64())
    at = table.schema.get_field_index(name)
    if at < 0:
        return table.append_column(name, column)
    return table.set_column(at, name, column)


def _in_turn(batch: pa.RecordBatch, turns: Counter[str], count: int) -> list[int | None]:
    """Return a queue for each row: those of a topic take turns; waiting messages keep theirs."""
    queues: list[int | None] = []
    there = [0] * batch.num_rows
    if "queue_id" in batch.schema.names:
        there = batch.column("queue_id").to_pylist()
    for topic, queue_id in zip(batch.column("topic").to_pylist(), there, strict=True):
        if topic in _WAITING:
            queues.append(queue_id)
        else:
            queues.append(turns[topic] % count)
            turns[topic] += 1
    return queues


def _times_of(source: MessageFile, batch: pa.RecordBatch) -> list[int | None]:
    """Return the store times of a batch, in ms."""
    import pyarrow as pa

    if "store_timestamp" not in batch.schema.names:
        raise ValueError(f"{source.name}: it has no column 'store_timestamp' to keep")
    column = batch.column("store_timestamp")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    if not pa.types.is_integer(column.type):
        raise ValueError(f"{source.name}: store_timestamp must be times, not {column.type}")
    times: list[int | None] = column.to_pylist()
    return times


def _set_times(directory: Path, file_size: int, offsets: Any, times: Sequence[int | None]) -> None:
    """Write store times into records that are in no queue yet."""
    import numpy as np

    values = np.frombuffer(b"".join(map(INT64.pack, times)), np.uint8).reshape(-1, INT64.size)
    starts = offsets - offsets % file_size
    for start in np.unique(starts):
        here = starts == start
        records = (offsets[here] - start).astype(np.int64)
        data = np.memmap(directory / paths.offset_file_name(int(start)), np.uint8, "r+")
        v6 = data[records + RECORD_SYS_FLAG + 3] & _BORN_V6 != 0
        at = records + RECORD_STORE_TIMESTAMP + np.where(v6, _V6_MORE, 0)
        data[at[:, None] + np.arange(INT64.size)] = values[here]
        data.flush()


def _is_new(root: Path, config: StoreConfig | None) -> bool:
    """Return whether there is nothing at a path, and no log elsewhere belongs to it."""
    if config is not None and without_paths(config) != config.replace(store_path_root_dir=None):
        return False
    try:
        return not os.path.lexists(root) or next(root.iterdir(), None) is None
    except NotADirectoryError:
        return False


def _read(config: str | os.PathLike[str]) -> StoreConfig:
    return StoreConfig.from_file(config)


@contextlib.contextmanager
def _opened(file: File, form: str | None) -> Iterator[MessageFile]:
    """Open the file; one that does not seek is copied."""
    chosen = format_of(file, form)
    if isinstance(file, str | os.PathLike):
        with Path(file).open("rb") as opened:
            if opened.seekable():
                yield MessageFile(opened, os.fsdecode(file), chosen)
                return
            with _copied(opened) as copy:
                yield MessageFile(copy, os.fsdecode(file), chosen)
            return
    with _copied(file) as copy:
        yield MessageFile(copy, str(getattr(file, "name", "the file")), chosen)


@contextlib.contextmanager
def _copied(file: IO[bytes]) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as copy:
        try:
            shutil.copyfileobj(file, copy, _COPIED)
            copy.flush()
        except OSError as error:
            if error.filename is None and error.errno is not None:
                place = tempfile.gettempdir()
                why = f"{os.strerror(error.errno)}, for a copy of the file: TMPDIR names the place"
                raise OSError(error.errno, why, place) from error
            raise
        yield copy
