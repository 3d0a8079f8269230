"""Way of a message through a store: its half message, delays, retries, dead letters, consumers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rmqstore import opening
from rmqstore.base.lookups import offset_of
from rmqstore.base.times import format_millis
from rmqstore.errors import MessageNotFoundError, StoreCorruptError
from rmqstore.services.half_queue import named_halves
from rmqstore.services.schedule_search import record_at
from rmqstore.services.stored import HALF_TOPIC, MAX_TIME_TOPIC, OP_TOPIC, SCHEDULE_TOPIC
from rmqstore.toolbox.sizes import group_of
from rmqstore.traces import EndTransaction, Pub, SubAfter, SubBefore, decode_traces, is_trace_topic

if TYPE_CHECKING:
    from rmqstore._core import Message
    from rmqstore.config.store_config import StoreConfig
    from rmqstore.store import MessageStore

__all__ = ["Step", "records_with_key", "trace", "trace_of"]

_TRANSACTION_BITS, _COMMIT = 0xC, 0x8
_DEAD_LETTERS = "%DLQ%"

StepName = Literal[
    "half", "commit", "rollback", "stored", "delayed", "delivered", "retry", "dead", "passed"
]


@dataclass(frozen=True, slots=True)
class Step:
    """Step on a message's way.

    Attributes
    ----------
    time : int or None
        In ms since the epoch; None if a store does not have it.
    step : str
        ``half``: stored by a transaction. ``commit``, ``rollback``: its end. ``stored``.
        ``delayed``: waits for its delivery. ``delivered``: after the delay. ``retry``: given back
        by a consumer. ``dead``: a dead letter, or a half message given up. ``passed``: a group
        has committed a later offset, or reported that it consumed the message.
    topic : str
        Topic of the record, or of the message consumed.
    queue_id, queue_offset, physical_offset : int or None
        The record's place; None for a report of a consumer.
    group : str or None
        Consumer group of a retry, a dead letter or a passing; producer group of a half message.
    detail : str
        All else that is known, for people.
    """

    time: int | None
    step: StepName
    topic: str
    queue_id: int | None
    queue_offset: int | None
    physical_offset: int | None
    group: str | None
    detail: str


def trace(
    path: str | os.PathLike[str],
    key: str,
    *,
    topic: str | None = None,
    config: StoreConfig | str | os.PathLike[str] | None = None,
) -> list[Step]:
    """Return the way of the messages with a key or id, oldest step first.

    Parameters
    ----------
    path : path-like
        Directory of the store; it may be in use.
    key : str
        A key, a unique key, or a store message id, whose address is ignored.
    topic : str, optional
        Only messages meant for this topic.
    config : StoreConfig or path of a broker.conf, optional
        As for :func:`rmqstore.open`.

    Returns
    -------
    list of Step
        Passings without a time come last. Reports of clients with message tracing on, in
        ``RMQ_SYS_TRACE_TOPIC``, are included, but for failed consumptions. Damaged records are
        left out.

    Raises
    ------
    MessageNotFoundError
        No message has this key or id.
    StoreNotFoundError, IncompatibleStoreError, OSError
        As for :func:`rmqstore.open`.

    Notes
    -----
    Source: ``broker/processor/SendMessageProcessor.java asyncConsumerSendMsgBack``,
    ``store/schedule/ScheduleMessageService.java messageTimeup``,
    ``broker/processor/EndTransactionProcessor.java``.
    """
    with opening.open(path, config=config) as store:
        return trace_of(store, key, topic)


def trace_of(
    store: MessageStore,
    key: str,
    topic: str | None = None,
    damaged: Callable[[StoreCorruptError], object] = lambda error: None,
) -> list[Step]:
    """Return :func:`trace` of an open store's messages; ``damaged`` gets what cannot be read."""
    records = {one.physical_offset: one for one in records_with_key(store, key, damaged)}
    offset = offset_of(key)
    named = None if offset is None else record_at(store.core, offset)
    if named is not None:
        records[named.physical_offset] = named
        if named.uniq_key:
            found = records_with_key(store, named.uniq_key, damaged)
            records |= {one.physical_offset: one for one in found}
    reports = [one for one in records.values() if is_trace_topic(one.topic)]
    wanted = [
        one
        for one in records.values()
        if not is_trace_topic(one.topic) and topic in (None, _destination(one, one.properties))
    ]
    if not wanted:
        where = "" if topic is None else f" for topic {topic!r}"
        raise MessageNotFoundError(f"{store.path}: no message{where} has the key or id {key!r}")
    steps = [
        *(_record_step(one) for one in wanted),
        *_rollbacks(store, wanted),
        *_passings(store, wanted, damaged),
        *_reported(reports, {one.uniq_key: _destination(one, one.properties) for one in wanted}),
    ]
    return sorted(steps, key=_order)


def _order(step: Step) -> tuple[bool, int, int]:
    return step.time is None, step.time or 0, step.physical_offset or 0


def records_with_key(
    store: MessageStore, key: str, damaged: Callable[[StoreCorruptError], object]
) -> Iterator[Message]:
    """Yield the readable records of any topic with a key or unique key; one may come twice.

    Where the index lacks parts of the log, these are read once for all topics.
    """
    for name in (*store.topics, *store.deleted_topics):
        try:
            yield from store.query(name, key, index_only=True)
        except StoreCorruptError as error:  # of a record that may have the key
            damaged(error)
            yield from store.scan(name, keys=[key], on_corruption="skip", on_removed="skip")
    extent = store.scan().extent(queued=False)
    covered = [*store.index_coverage(), (extent.stop, extent.stop)]
    start = extent.start
    for low, high in covered:
        if start < low:
            yield from store.scan(
                keys=[key], start=start, stop=low, on_corruption="skip", on_removed="skip"
            )
        start = max(start, high)


def _destination(message: Message, properties: dict[str, str]) -> str:
    """Return the topic that a message was sent to in the first place."""
    real = properties.get("RETRY_TOPIC") or properties.get("REAL_TOPIC")
    return real if real is not None else message.topic


def _record_step(message: Message) -> Step:
    """Return the step of a record."""
    properties = message.properties
    group = group_of(message.topic)
    real = properties.get("REAL_TOPIC")
    name: StepName = "stored"
    detail = []
    if message.topic == HALF_TOPIC:
        name, group = "half", properties.get("PGROUP")
        detail.append(f"for {real}/{properties.get('REAL_QID')}")
        if checks := properties.get("TRANSACTION_CHECK_TIMES"):
            detail.append(f"checked {checks} times")
    elif message.topic == SCHEDULE_TOPIC:
        name, group = "delayed", None if real is None else group_of(real)
        detail.append(f"level {properties.get('DELAY')}, for {real}/{properties.get('REAL_QID')}")
    elif group is not None:
        name = "dead" if message.topic.startswith(_DEAD_LETTERS) else "retry"
        detail.append(f"of {properties.get('RETRY_TOPIC')}")
    elif message.topic == MAX_TIME_TOPIC:
        name = "dead"
        detail.append("given up by the checks of its transaction")
    elif message.sys_flag & _TRANSACTION_BITS == _COMMIT:
        name = "commit"
    elif real is not None:
        name = "delivered"
    if message.reconsume_times:
        detail.append(f"retry {message.reconsume_times}")
    detail.append(f"born {format_millis(message.born_timestamp)} at {message.born_host}")
    return Step(
        message.store_timestamp,
        name,
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        group,
        ", ".join(detail),
    )


def _rollbacks(store: MessageStore, wanted: Iterable[Message]) -> Iterator[Step]:
    """Yield the ends of half messages that no committed record follows."""
    halves = {(one.queue_id, one.queue_offset): one for one in wanted if one.topic == HALF_TOPIC}
    committed = {one.uniq_key for one in wanted if one.sys_flag & _TRANSACTION_BITS == _COMMIT}
    if all(half.uniq_key in committed for half in halves.values()):
        return
    copies = {half.uniq_key: half.queue_offset for _, half in sorted(halves.items())}
    for op in store.scan(OP_TOPIC, on_corruption="skip", on_removed="skip"):
        for offset in named_halves(op):
            half = halves.get((op.queue_id, offset))
            # An older copy ends as it is put back for a check.
            if half is None or half.uniq_key in committed or copies[half.uniq_key] != offset:
                continue
            yield Step(
                op.store_timestamp,
                "rollback",
                op.topic,
                op.queue_id,
                op.queue_offset,
                op.physical_offset,
                half.properties.get("PGROUP"),
                f"ends half message {offset}, without a commit in the log",
            )


def _passings(
    store: MessageStore,
    wanted: Iterable[Message],
    damaged: Callable[[StoreCorruptError], object],
) -> Iterator[Step]:
    """Yield the groups that have committed an offset behind a record."""
    try:
        offsets = store.offsets
    except StoreCorruptError as error:
        damaged(error)
        return
    for message in wanted:
        if message.topic in (HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC):
            continue
        for (topic, group), queues in sorted(offsets.items()):
            committed = queues.get(message.queue_id, 0)
            if topic == message.topic and committed > message.queue_offset:
                yield Step(
                    None,
                    "passed",
                    message.topic,
                    message.queue_id,
                    message.queue_offset,
                    message.physical_offset,
                    group,
                    f"committed {committed:,}",
                )


def _reported(reports: Iterable[Message], topics: Mapping[str | None, str]) -> Iterator[Step]:
    """Yield the steps that clients with message tracing have reported, of the ids of ``topics``."""
    parts = [(part, report) for report in reports for part in decode_traces(report.body)]
    begun = {part.request_id: part for part, _ in parts if isinstance(part, SubBefore)}
    for part, report in parts:
        if getattr(part, "msg_id", None) not in topics:
            continue
        if isinstance(part, SubAfter) and part.success:
            before = begun.get(part.request_id)
            time, group = part.time, part.group
            if before is not None:
                time, group = before.time + part.cost, before.group
            detail = f"consumed in {part.cost} ms, reported by {report.born_host}"
            yield Step(time, "passed", topics[part.msg_id], None, None, None, group, detail)
        elif isinstance(part, Pub):
            sent = "sent" if part.success else "sending failed"
            host = part.client_host or report.born_host
            detail = f"{sent} by {host} to {part.store_host} in {part.cost} ms"
            name: StepName = "half" if part.message_type == "Trans_Msg_Half" else "stored"
            yield Step(part.time, name, part.topic, None, None, None, part.group, detail)
        elif isinstance(part, EndTransaction):
            name = "rollback" if part.state == "ROLLBACK_MESSAGE" else "commit"
            detail = f"{part.state}, reported by {report.born_host}"
            yield Step(part.time, name, part.topic, None, None, None, part.group, detail)
