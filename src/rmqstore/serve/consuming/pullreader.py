"""Pull requests, their checks, and their answers of stored records.

Source: ``broker/processor/PullMessageProcessor.java``, ``common/sysflag/PullSysFlag.java``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqstore.base.layout import INT64_MAX, INT64_MIN
from rmqstore.errors import FilterError
from rmqstore.serve.consuming.subscriptions import TAG, PullFilters, unsupported
from rmqstore.serve.wire.codes import ResponseCode
from rmqstore.serve.wire.fields import number, optional_number, text
from rmqstore.serve.wire.frames import HEAD, Answer, Refusal, Request
from rmqstore.serve.wire.names import group_of
from rmqstore.types import GetStatus

if TYPE_CHECKING:
    from rmqstore._core import PullFilter
    from rmqstore.brokerfiles.groups import GroupConfig
    from rmqstore.serve.consuming.clients import Clients
    from rmqstore.serve.consuming.distance import Distance
    from rmqstore.serve.consuming.newgroups import NewGroups
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.unread import Unread
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.topics.topictable import ServedTopics
    from rmqstore.store import MessageStore

__all__ = ["PullChecks", "PullReader", "PullRequest", "parsed_pull"]

# Bits of sysFlag.
_SUSPEND = 2
_SUBSCRIPTION = 4

_READ = 4  # PermName.PERM_READ
_MAX_EXPRESSION = 64 << 10
_LONGEST_HOLD = 3_600_000  # ms

# Response codes by the store's status; a pull answered with 19 may be held instead.
_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
}
_EMPTY = (GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE)


@dataclass(slots=True)
class PullRequest:
    """Parsed pull request."""

    request: Request
    group: str
    topic: str
    queue_id: int
    offset: int  # next one to read; messages before it do not match
    asked: int  # offset in the request
    most: int  # messages
    most_bytes: int | None  # of a 5.x client
    sys_flag: int
    sub_version: int
    suspend: int  # milliseconds for which it may be held
    size: int = 0  # bytes of an answer that waits for room
    goes_on: bool = False  # messages follow the ones that did not match


def parsed_pull(request: Request) -> PullRequest:
    """Return a parsed pull request; ``Refusal`` if a field is invalid."""
    group, topic = group_of(request), text(request, "topic")
    asked = number(request, "queueOffset", least=INT64_MIN, most=INT64_MAX)
    sys_flag = number(request, "sysFlag")
    pull = PullRequest(
        request,
        group,
        topic,
        number(request, "queueId"),
        asked,
        asked,
        number(request, "maxMsgNums"),
        optional_number(request, "maxMsgBytes"),
        sys_flag,
        number(request, "subVersion", least=INT64_MIN, most=INT64_MAX),
        0,
    )
    suspend = number(request, "suspendTimeoutMillis", least=INT64_MIN, most=INT64_MAX)
    if sys_flag & _SUSPEND:
        pull.suspend = min(max(suspend, 0), _LONGEST_HOLD)
    return pull


class PullChecks:
    """Checks of pulls against groups, topics and subscriptions, in a broker's order."""

    def __init__(
        self, settings: Settings, groups: NewGroups, topics: ServedTopics, clients: Clients
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._topics = topics
        self._clients = clients
        self._filters = PullFilters()

    def filter_of(self, connection: Connection, pull: PullRequest) -> PullFilter | None:
        """Return the filter of an allowed pull; ``Refusal`` if it is not allowed."""
        config = self._groups.config(pull.group, connection.owner)
        if config is None:
            raise _refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{pull.group}] does not exist, ",
                faq=True,
            )
        if not config.consume_enable:
            raise _refused(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {pull.group}"
            )
        topic = self._topics.config(pull.topic)
        if topic is None:
            raise _refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{pull.topic}] not exist, apply first please! ",
                faq=True,
            )
        if not topic.perm & _READ:
            raise _refused(
                ResponseCode.NO_PERMISSION, f"the topic[{pull.topic}] pulling message is forbidden"
            )
        if not 0 <= pull.queue_id < topic.read_queue_nums:
            raise _refused(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{pull.queue_id}] is illegal, topic:[{pull.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
                f"consumer:[/{connection.peer}]",
            )
        if pull.sys_flag & _SUBSCRIPTION:
            return self._own_filter(pull)
        return self._group_filter(pull, config)

    def _own_filter(self, pull: PullRequest) -> PullFilter | None:
        """Return the filter of the subscription in the request."""
        fields = pull.request.fields
        expression, kind = fields.get("subscription", ""), fields.get("expressionType") or TAG
        self._check_kind(kind)
        try:
            if len(expression) > _MAX_EXPRESSION:
                raise FilterError(f"an expression of {len(expression)} characters", 0)
            return self._filters.of(expression, kind)
        except FilterError:
            raise _refused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
            ) from None

    def _group_filter(self, pull: PullRequest, config: GroupConfig) -> PullFilter | None:
        """Return the filter of the group's subscription by heartbeat."""
        group = self._clients.group(pull.group)
        if group is None:
            raise _refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist", faq=True
            )
        if group.is_broadcast and not config.consume_broadcast_enable:
            raise _refused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{pull.group}] can not consume by broadcast way",
            )
        subscription = group.subscriptions.get(pull.topic)
        if subscription is None:
            raise _refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                "the consumer's subscription not exist",
                faq=True,
            )
        if subscription.version < pull.sub_version:
            raise _refused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        self._check_kind(subscription.kind)
        try:
            return self._filters.of(subscription.expression, subscription.kind)
        except FilterError:
            raise _refused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            ) from None

    def _check_kind(self, kind: str) -> None:
        why = unsupported(self._settings, kind)
        if why is not None:
            raise _refused(ResponseCode.SYSTEM_ERROR, why)


class PullReader:
    """Reader of stored records for pulls, and writer of their answers."""

    def __init__(
        self,
        store: MessageStore,
        checks: PullChecks,
        distance: Distance,
        unread: Unread,
        got: Callable[[str, str, int, int], object],
    ) -> None:
        self._store = store
        self._checks = checks
        self._distance = distance
        self._unread = unread
        self._got = got  # called with the group, topic, messages and bytes of an answer

    def answer(
        self, connection: Connection, pull: PullRequest, *, may_hold: bool, woken: bool = False
    ) -> bool:
        """Answer a pull; return ``False`` if it finds nothing and may be held, or lacks room.

        Without room ``pull.size`` is set. Messages that do not match move ``pull.offset``, and do
        not end the hold of a ``woken`` pull. ``Refusal`` if it is not, or no longer, allowed.
        """
        made = self._checks.filter_of(connection, pull)
        most, most_bytes = self._distance.limits(pull.topic, pull.queue_id, pull.offset)
        most = max(1, min(pull.most, most))
        if pull.most_bytes is not None and pull.most_bytes > 0:
            most_bytes = min(most_bytes, pull.most_bytes)
        opaque = pull.request.opaque
        # A held pull learns of later dispatches; any other must see earlier puts now.
        status, following, least, end, count, frame = self._store.core.pull(
            *(pull.topic, pull.queue_id, pull.offset, most, most_bytes, made, opaque),
            at_once=may_hold,
        )
        pull.size = 0
        pull.goes_on = False
        if count:
            unread, oneway = self._unread, pull.request.oneway
            if unread.taken and not oneway and not unread.has_room(connection, len(frame)):
                pull.size = len(frame)
                connection.lacks_room()
                return False
            size = len(frame) - HEAD.size - HEAD.unpack_from(frame)[1]
            self._got(pull.group, pull.topic, count, size)
            if not oneway:
                connection.write(frame)
            return True
        code = _CODES[status]
        if status in _EMPTY and pull.asked == 0:
            code = ResponseCode.PULL_NOT_FOUND
        remark = status.name
        if may_hold and code == ResponseCode.PULL_NOT_FOUND:
            return False
        if may_hold and woken and code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            pull.offset = following
            pull.goes_on = following < end
            return False
        if status is GetStatus.OFFSET_OVERFLOW_ONE and pull.offset != pull.asked:
            code, remark = ResponseCode.PULL_RETRY_IMMEDIATELY, GetStatus.NO_MATCHED_MESSAGE.name
        connection.answer(
            pull.request,
            Answer(
                code,
                remark,
                {
                    "suggestWhichBrokerId": "0",
                    "nextBeginOffset": str(following),
                    "minOffset": str(least),
                    "maxOffset": str(end),
                },
            ),
        )
        return True


def _refused(code: int, remark: str, *, faq: bool = False) -> Refusal:
    return Refusal(code, remark, faq=faq, fields={})
