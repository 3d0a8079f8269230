"""Offsets: a group's progress in a queue, and the bounds of a queue.

Source: ``broker/processor/ConsumerManageProcessor.java``,
``broker/processor/AdminBrokerProcessor.java getMaxOffset`` and its neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqstore.base.layout import INT64_MAX, INT64_MIN
from rmqstore.brokerfiles.offsets import check_names
from rmqstore.errors import StoreError
from rmqstore.serve.sharedtable import SharedTable
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.fields import number
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.serve.wire.names import group_of, topic_of
from rmqstore.topic import Queue

if TYPE_CHECKING:
    from rmqstore.serve.consuming.distance import Distance
    from rmqstore.serve.network.answers import Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.turns import Steps
    from rmqstore.serve.network.work import Work
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.shares import Owners
    from rmqstore.serve.topics.topictable import ServedTopics
    from rmqstore.store import MessageStore

__all__ = ["OffsetShares", "Offsets"]


class OffsetShares(SharedTable[tuple[str, str]]):
    """Shares of offsets, charged to a group and to the owner that made its first in a topic.

    Offsets from the file are charged to their group only.
    """

    def __init__(
        self, store: MessageStore, topics: ServedTopics, work: Work, settings: Settings
    ) -> None:
        self._progress = store.progress
        self._topics = topics
        super().__init__(work.turns, settings.limits.offsets)

    def _keys(self) -> list[tuple[str, str]]:
        return self._progress.names()

    def _has(self, key: tuple[str, str]) -> int:
        return len(self._progress.table.get(key, ()))

    def _size(self) -> int:
        return self._progress.count  # consumers of this process commit as well

    def _owners(self, key: tuple[str, str], maker: str | None) -> Owners:
        of_group = ("group", key[1])
        return (of_group,) if maker is None else (of_group, ("owner", maker))

    def _remove_unused(self) -> Steps:
        """Remove the offsets of missing queues."""
        for topic, group in self._progress.names():
            for queue_id in self._progress.get(topic, group):
                if not self._topics.has_queue(topic, queue_id):
                    self._progress.forget_queue(topic, group, queue_id)
                yield


class Offsets:
    """Requests about offsets of groups, and bounds of queues."""

    def __init__(
        self, store: MessageStore, topics: ServedTopics, shares: OffsetShares, distance: Distance
    ) -> None:
        self._store = store
        self._progress = store.progress
        self._topics = topics
        self._shares = shares
        self._distance = distance

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._offset_by_time,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest_time,
        }

    def _query(self, connection: Connection, request: Request) -> Answer:
        """Answer QUERY_CONSUMER_OFFSET."""
        group, topic, queue_id = group_of(request), topic_of(request), number(request, "queueId")
        offset = self._progress.get(topic, group).get(queue_id, -1)
        if offset < 0:
            least, _ = self._bounds(topic, queue_id)
            if least > 0 or self._distance.is_far(topic, queue_id, 0):
                raise Refusal(
                    ResponseCode.QUERY_NOT_FOUND,
                    "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
                    fields={},
                )
            offset = 0  # so that a new group of a small store begins at its first message
        return Answer(fields={"offset": str(offset)})

    def _update(self, connection: Connection, request: Request) -> Answer:
        """Answer UPDATE_CONSUMER_OFFSET; a negative offset stands for none, and is not kept."""
        group, topic, queue_id = group_of(request), topic_of(request), number(request, "queueId")
        offset = _long(request, "commitOffset")
        if self._topics.config(topic) is None and not self._store.core.knows_topic(topic):
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if queue_id < 0:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"queueId must be 0 or more, got {queue_id}")
        if offset >= 0:
            self.commit(topic, group, queue_id, offset, owner=connection.owner)
        return Answer(fields={})

    def commit(self, topic: str, group: str, queue_id: int, offset: int, *, owner: str) -> None:
        """Set a group's offset in a queue; ``Refusal`` without the queue, or beyond a share."""
        if not self._topics.has_queue(topic, queue_id):
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the topic {topic} has no queue {queue_id}")
        if queue_id not in self._progress.table.get((topic, group), ()):
            try:
                check_names(topic, group)
            except ValueError as error:  # a topic of an old broker may have an @
                raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
            if not self._shares.take((topic, group), owner):
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"there are {self._progress.count} offsets already: the share of the group "
                    f"{group} or of {owner} is used up",
                )
        self._store.progress.commit(topic, group, queue_id, offset)

    def _max_offset(self, connection: Connection, request: Request) -> Answer:
        """Answer GET_MAX_OFFSET."""
        _, end = self._bounds(topic_of(request), number(request, "queueId"))
        return Answer(fields={"offset": str(end)})

    def _min_offset(self, connection: Connection, request: Request) -> Answer:
        """Answer GET_MIN_OFFSET."""
        least, _ = self._bounds(topic_of(request), number(request, "queueId"))
        return Answer(fields={"offset": str(least)})

    def _offset_by_time(self, connection: Connection, request: Request) -> Answer:
        """Answer SEARCH_OFFSET_BY_TIMESTAMP."""
        topic, queue_id = topic_of(request), number(request, "queueId")
        millis = _long(request, "timestamp")
        boundary = request.fields.get("boundaryType", "").upper()
        least, end = self._bounds(topic, queue_id)
        offset = 0
        if end > 0:
            queue = Queue(self._store, topic, queue_id)
            # All times before the first message are equivalent, as are all after the last.
            millis = min(max(millis, 0), INT64_MAX >> 1)
            if boundary == "LOWER":
                offset = queue.offset_at(millis, "lower")
            elif boundary == "UPPER":
                offset = max(queue.offset_at(millis, "upper"), least)
            else:
                offset = queue.offset_at(millis, "nearest")
        return Answer(fields={"offset": str(offset)})

    def _earliest_time(self, connection: Connection, request: Request) -> Answer:
        """Answer GET_EARLIEST_MSG_STORETIME: of the queue's first message, -1 if it is empty."""
        topic, queue_id = topic_of(request), number(request, "queueId")
        least, end = self._bounds(topic, queue_id)
        millis = -1
        if least < end:
            try:
                millis = self._store.core.store_time(topic, queue_id, least)
            except StoreError:
                millis = -1  # removed meanwhile
        return Answer(fields={"timestamp": str(millis)})

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the first offset of a queue and its end; zeros without one."""
        if queue_id < 0:
            return 0, 0
        return self._store.core.bounds(topic, queue_id) or (0, 0)


def _long(request: Request, name: str) -> int:
    return number(request, name, least=INT64_MIN, most=INT64_MAX)
