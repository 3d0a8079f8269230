"""Admin requests about the progress of groups, in messages and in time.

Source: ``broker/processor/AdminBrokerProcessor.java``,
``broker/offset/ConsumerOffsetManager.java``, ``store/schedule/ScheduleMessageService.java``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from rmqstore.base.layout import INT64_MAX
from rmqstore.serve.admin import online
from rmqstore.serve.admin.groups import all_groups
from rmqstore.serve.admin.topics import entry_of
from rmqstore.serve.figures.rates import GROUP_GET_NUMS
from rmqstore.serve.network.sockets import address_text
from rmqstore.serve.wire.codes import V5, RequestCode, ResponseCode
from rmqstore.serve.wire.fields import truth
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.serve.wire.names import checked_group, checked_topic, group_of, topic_of
from rmqstore.serve.wire.objecttext import PAUSE, Entries, MessageQueue, dumps, dumps_in_steps

if TYPE_CHECKING:
    from rmqstore.brokerfiles.topics import TopicConfig
    from rmqstore.serve.consuming.clients import Clients
    from rmqstore.serve.consuming.offsets import Offsets
    from rmqstore.serve.figures.rates import Rates
    from rmqstore.serve.network.answers import AnswerSteps, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.topics.topictable import ServedTopics
    from rmqstore.store import MessageStore

__all__ = ["ProgressAdmin"]

_MAX_QUEUES = 100_000  # in an answer, so that it fits in a frame
_NAMES_STEP = 1024  # pairs of topic and group examined between two steps


class ProgressAdmin:
    """Requests about the progress of groups."""

    def __init__(
        self,
        store: MessageStore,
        settings: Settings,
        topics: ServedTopics,
        clients: Clients,
        offsets: Offsets,
        *,
        rates: Rates,
    ) -> None:
        self._store = store
        self._progress = store.progress
        self._broker = settings.broker
        self._topics = topics
        self._clients = clients
        self._offsets = offsets
        self._rates = rates

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.GET_CONSUME_STATS: self._of_group,
            RequestCode.GET_BROKER_CONSUME_STATS: self._of_all_groups,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self._time_span,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._consumed_by,
            RequestCode.QUERY_CORRECTION_OFFSET: self._correction,
            RequestCode.CLONE_GROUP_OFFSET: self._clone,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._all_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self._all_delays,
        }

    def _of_group(self, connection: Connection, request: Request) -> AnswerSteps:
        group = group_of(request)
        tps = 0.0
        entries: list[TopicConfig] = []
        queues = 0
        for topic in (yield from self._topic_or_all(request, group)):
            yield
            entry = self._topics.config(topic)
            if entry is None or online.knows_no_topic(self._clients, group, topic):
                continue
            entries.append(entry)
            queues += entry.read_queue_nums
            _check_answer(queues)
            tps += self._rates.tps(GROUP_GET_NUMS, f"{topic}@{group}")
        table = Entries(
            pair
            for entry in entries
            for pair in self._queues(request, group, entry, entry.read_queue_nums)
        )
        return Answer(
            body=(yield from dumps_in_steps(Entries([("consumeTps", tps), ("offsetTable", table)])))
        )

    def _of_all_groups(self, connection: Connection, request: Request) -> AnswerSteps:
        only_ordered = truth(request, "isOrder")
        topics_by_group = yield from self._topics_by_group()
        queues = total = 0

        def of_queues(
            group: str, entry: TopicConfig
        ) -> Iterator[tuple[MessageQueue, dict[str, int]]]:
            nonlocal total
            for queue, numbers in self._queues(request, group, entry, entry.write_queue_nums):
                total += numbers["brokerOffset"] - numbers["consumerOffset"]
                yield queue, numbers

        def of_topics(group: str) -> Iterator[Entries]:
            nonlocal queues
            for topic in topics_by_group.get(group, ()):
                entry = self._topics.config(topic)
                if (
                    entry is None
                    or (only_ordered and not entry.order)
                    or online.knows_no_topic(self._clients, group, topic)
                ):
                    yield PAUSE
                    continue
                queues += entry.write_queue_nums
                _check_answer(queues)
                tps = self._rates.tps(GROUP_GET_NUMS, f"{topic}@{group}")
                table = Entries(of_queues(group, entry))
                yield Entries([("consumeTps", tps), ("offsetTable", table)])

        def body() -> Iterator[tuple[str, object]]:
            yield "brokerAddr", address_text(*connection.address)
            groups = all_groups(self._store)
            yield "consumeStatsList", (Entries([(name, of_topics(name))]) for name, _ in groups)
            yield "totalDiff", total  # complete by now

        return Answer(body=(yield from dumps_in_steps(Entries(body()))))

    def _time_span(self, connection: Connection, request: Request) -> AnswerSteps:
        """Answer QUERY_CONSUME_TIME_SPAN: store times of first, last and next message."""
        topic, group = topic_of(request), group_of(request, "group")
        core = self._store.core
        committed = self._progress.get(topic, group)

        def span(queue_id: int) -> dict[str, object]:
            first, stop = core.bounds(topic, queue_id) or (0, 0)
            earliest = core.store_time(topic, queue_id, first) if stop > first else -1
            latest = core.store_time(topic, queue_id, stop - 1) if stop > 0 else -1
            offset = committed.get(queue_id, -1)
            consumed = core.store_time(topic, queue_id, offset - 1) if offset > 0 else earliest
            delay = 0
            if offset < stop:
                following = core.store_time(topic, queue_id, offset) if offset >= 0 else -1
                delay = core.now() - following
            return {
                "consumeTimeStamp": consumed,
                "delayTime": delay,
                "maxTimeStamp": latest,
                "messageQueue": MessageQueue(self._broker, queue_id, topic),
                "minTimeStamp": earliest,
            }

        spans = map(span, range(entry_of(self._topics, topic).write_queue_nums))
        return Answer(body=(yield from dumps_in_steps(Entries([("consumeTimeSpanSet", spans)]))))

    def _consumed_by(self, connection: Connection, request: Request) -> AnswerSteps:
        """Answer QUERY_TOPIC_CONSUME_BY_WHO: groups online, and groups with offsets."""
        topic = topic_of(request)
        groups = set((yield from self._groups_of(topic)))
        groups.update((yield from self._clients.groups_of(topic)))
        groups_in_order = iter(sorted(groups))
        return Answer(body=(yield from dumps_in_steps(Entries([("groupList", groups_in_order)]))))

    def _correction(self, connection: Connection, request: Request) -> AnswerSteps:
        """Answer QUERY_CORRECTION_OFFSET: the groups' lowest offset in each queue of a topic.

        It is the highest 64-bit number where the compared group's offset is lower still.
        """
        topic = topic_of(request)
        left_out = set(request.fields.get("filterGroups", "").split(","))
        compared = request.fields.get("compareGroup", "")
        checked = checked_group(compared) if compared.strip() else None
        progress = self._progress
        slowest: dict[int, int] = {}
        for group in (yield from self._groups_of(topic)):
            if group in left_out:
                continue
            for queue_id, offset in progress.get(topic, group).items():
                first, _ = self._store.core.bounds(topic, queue_id) or (0, 0)
                if offset >= first:
                    slowest[queue_id] = min(offset, slowest.get(queue_id, offset))
                yield
        if checked is not None:
            for queue_id, offset in progress.get(topic, checked).items():
                if queue_id in slowest and slowest[queue_id] > offset:
                    slowest[queue_id] = INT64_MAX
                yield
        table = Entries(slowest.items())
        return Answer(body=(yield from dumps_in_steps(Entries([("correctionOffsets", table)]))))

    def _clone(self, connection: Connection, request: Request) -> AnswerSteps:
        """Answer CLONE_GROUP_OFFSET: copy the offsets of one group to another."""
        source, target = group_of(request, "srcGroup"), group_of(request, "destGroup")
        offline = truth(request, "offline")
        for topic in (yield from self._topic_or_all(request, source)):
            yield
            if self._topics.config(topic) is None or (
                not offline and online.knows_no_topic(self._clients, source, topic)
            ):
                continue
            for queue_id, offset in self._progress.get(topic, source).items():
                if self._topics.has_queue(topic, queue_id):
                    self._offsets.commit(topic, target, queue_id, offset, owner=connection.owner)
                yield
        return Answer()

    # Offset tables as in their files, for slaves and tools

    def _all_offsets(self, connection: Connection, request: Request) -> AnswerSteps:
        progress = self._progress
        names = progress.names()
        if not names:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "No consumer offset in this broker")
        table = Entries(
            (f"{topic}@{group}", Entries(progress.get(topic, group).items()))
            for topic, group in names
        )
        return Answer(body=(yield from dumps_in_steps(Entries([("offsetTable", table)]))))

    def _all_delays(self, connection: Connection, request: Request) -> Answer:
        """Answer GET_ALL_DELAY_OFFSET: the next offset to deliver, by level."""
        levels = self._topics.delay_offsets()
        return Answer(
            body=dumps({"offsetTable": {number: offset for number, (offset, _) in levels.items()}})
        )

    def _topic_or_all(self, request: Request, group: str) -> Generator[None, None, list[str]]:
        """Return the topic in a request, or all topics in which the group has offsets."""
        topic = request.fields.get("topic", "")
        if topic.strip():
            return [checked_topic(topic)]
        return (yield from self._topics_by_group(group)).get(group, [])

    def _topics_by_group(
        self, only: str | None = None
    ) -> Generator[None, None, dict[str, list[str]]]:
        """Return the topics in which each group has offsets, sorted."""
        found: dict[str, list[str]] = {}
        for number, (topic, group) in enumerate(self._progress.names()):
            if only is None or group == only:
                found.setdefault(group, []).append(topic)
            if number % _NAMES_STEP == _NAMES_STEP - 1:
                yield
        for topics in found.values():
            topics.sort()
            yield
        return found

    def _groups_of(self, topic: str) -> Generator[None, None, list[str]]:
        """Return the groups with offsets in a topic, sorted."""
        found = []
        for number, (name, group) in enumerate(self._progress.names()):
            if name == topic:
                found.append(group)
            if number % _NAMES_STEP == _NAMES_STEP - 1:
                yield
        return sorted(found)

    def _queues(
        self, request: Request, group: str, entry: TopicConfig, queue_nums: int
    ) -> Iterator[tuple[MessageQueue, dict[str, int]]]:
        """Yield each queue with its end and the group's offset.

        ``pullOffset`` of 5.x also counts messages pulled but not committed, unknown to a store.
        """
        store, broker, topic = self._store, self._broker, entry.topic_name
        committed = self._progress.get(topic, group)
        for queue_id in range(queue_nums):
            _, stop = store.core.bounds(topic, queue_id) or (0, 0)
            offset = max(0, committed.get(queue_id, 0))
            stored = store.core.store_time(topic, queue_id, offset - 1) if offset > 0 else 0
            numbers = {
                "brokerOffset": stop, "consumerOffset": offset, "lastTimestamp": max(0, stored),
            }  # fmt: skip
            if request.version >= V5:
                numbers["pullOffset"] = offset
            yield MessageQueue(broker, queue_id, topic), numbers


def _check_answer(queues: int) -> None:
    """Raise ``Refusal`` if an answer would have too many queues."""
    if queues > _MAX_QUEUES:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR, f"the answer would have more than {_MAX_QUEUES} queues"
        )
