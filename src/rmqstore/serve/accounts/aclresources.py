"""Permissions that each request needs: for a topic, for a group, administrator's, or none.

Each request with a handler is in one of three tables here.  Any other is for administrators only:
denied by default.

Source: ``acl/plain/PlainAccessValidator.java parse``, ``acl/common/Permission.java``; 4.9.3 looks
at the topics and groups of nine requests, and asks for an administrator at five.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqstore.base.layout import INT64_MAX, INT64_MIN
from rmqstore.files import paths
from rmqstore.serve.stored_records import message_at, topic_of_message
from rmqstore.serve.wire.batches import parts_of_batch
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.fields import json_body, number, truth
from rmqstore.serve.wire.frames import Refusal, Request
from rmqstore.services.stored import HALF_TOPIC

if TYPE_CHECKING:
    from rmqstore.store import MessageStore

__all__ = ["ADMIN", "FREE", "RESOURCES", "Resource", "resources_of", "topic_resource"]

# A retry topic stands for its group.
_RETRY = paths.retry_topic("")
# A record's further queues may be of any topic.
_FURTHER_QUEUES = "INNER_MULTI_DISPATCH"

# Only administrators change anything but messages and offsets, and see data of all topics and
# groups, or of the machine.
ADMIN = frozenset((
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.PUT_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.ADD_WRITE_PERM_OF_BROKER,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    # Names, settings and progress of all topics and groups.
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    RequestCode.GET_ALL_PRODUCER_INFO,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.VIEW_BROKER_STATS_DATA,
    # Paths, disks, settings.
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.GET_NAMESRV_CONFIG,
    # Refused to administrators too, with other remarks.
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.UPDATE_NAMESRV_CONFIG,
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
))  # fmt: skip

# Allowed for any account.
FREE = frozenset((
    # Sent by each client before it sends or reads, even for missing topics: the number of queues,
    # and the address that it has dialled.
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    # The names of cluster and broker, and the same address.
    RequestCode.GET_BROKER_CLUSTER_INFO,
    # Built-in topics, the same on every broker.
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    # Stored by administrators for clients to read.
    RequestCode.GET_KV_CONFIG,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
))  # fmt: skip


class Resource(NamedTuple):
    """A topic or a group, and whether it is written; written groups are producer groups."""

    name: str
    is_group: bool = False
    is_written: bool = False


Look = Callable[[Request, "MessageStore"], Iterable[Resource]]


def topic_resource(name: str, *, written: bool = False) -> Resource:
    """Return the resource of a topic; a retry topic's is the group, which reads and writes it."""
    if name.startswith(_RETRY):
        return Resource(name[len(_RETRY) :], is_group=True)
    return Resource(name, is_written=written)


def _named(request: Request, field: str) -> str | None:
    """Return a name, ``None`` if missing or empty; a topic of blanks is a name."""
    return request.fields.get(field) or None


def _read(topics: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> Look:
    """Return a look for topics and groups that read, in these fields."""

    def look(request: Request, store: MessageStore) -> Iterable[Resource]:
        for field in topics:
            name = _named(request, field)
            if name is not None:
                yield topic_resource(name)
        for field in groups:
            name = _named(request, field)
            if name is not None:
                yield Resource(name, is_group=True)

    return look


def _sent(topic: str, properties: str, batch: str) -> Look:
    """Return a look for the topic of messages, and for their further queues."""

    def look(request: Request, store: MessageStore) -> Iterable[Resource]:
        name = _named(request, topic)
        if name is not None:
            yield topic_resource(name, written=True)
        yield from _further(request.fields.get(properties, ""))
        if not truth(request, batch) or len(request.body) > store.config.max_message_size:
            return  # a longer batch is refused
        body = bytes(request.body)
        if _FURTHER_QUEUES.encode() in body:
            for _, own, _ in parts_of_batch(body, store.config.max_message_size):
                yield from _further(own)

    return look


def _further(properties: str) -> Iterable[Resource]:
    if _FURTHER_QUEUES not in properties:
        return
    for item in properties.split("\2"):
        name, _, value = item.partition("\1")
        if name == _FURTHER_QUEUES:
            yield from (topic_resource(one, written=True) for one in value.split(",") if one)


def _produced(request: Request, store: MessageStore) -> Iterable[Resource]:
    name = _named(request, "producerGroup")
    if name is not None:
        yield Resource(name, is_group=True, is_written=True)


# Records named by position: other fields of the request prove nothing


def _viewed(request: Request, store: MessageStore) -> Iterable[Resource]:
    offset = number(request, "offset", least=INT64_MIN, most=INT64_MAX)
    message = message_at(store, offset) if offset >= 0 else None
    if message is None:  # a body's bytes may look like a record of any topic
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
    yield topic_resource(topic_of_message(message))


def _given_back(request: Request, store: MessageStore) -> Iterable[Resource]:
    yield from _read(groups=("group",))(request, store)
    topic = _named(request, "originTopic")
    if topic is not None:
        yield topic_resource(topic, written=True)  # required by 4.9.3
    offset = number(request, "offset", least=INT64_MIN, most=INT64_MAX)
    message = message_at(store, offset) if offset >= 0 else None
    if message is not None:  # else the handler refuses it
        yield topic_resource(topic_of_message(message))  # the group will read it


def _ended(request: Request, store: MessageStore) -> Iterable[Resource]:
    offset = number(request, "commitLogOffset", least=0, most=INT64_MAX)
    half = message_at(store, offset)
    if half is not None and half.topic == HALF_TOPIC:  # else the handler refuses it
        yield topic_resource(topic_of_message(half), written=True)


# Bodies


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _texts(entries: list[dict[str, Any]], name: str) -> dict[str, None]:
    """Return the distinct values of entries under a name, in order."""
    return dict.fromkeys(str(one.get(name, "")) for one in entries)


def _heartbeat(request: Request, store: MessageStore) -> Iterable[Resource]:
    """Yield consumer groups and their topics.

    Producer groups need no permission: only producers that may write to a transaction's topic are
    asked for its end.
    """
    data = json_body(request)
    consumers = _dicts(data.get("consumerDataSet")) if isinstance(data, dict) else []
    for name in _texts(consumers, "groupName"):
        yield Resource(name, is_group=True)
    wanted = [one for two in consumers for one in _dicts(two.get("subscriptionDataSet"))]
    yield from map(topic_resource, _texts(wanted, "topic"))


def _client_check(request: Request, store: MessageStore) -> Iterable[Resource]:
    data = json_body(request) if request.body else None
    if isinstance(data, dict):
        yield Resource(str(data.get("group", "")), is_group=True)
        yield from map(topic_resource, _texts(_dicts([data.get("subscriptionData")]), "topic"))


def _locked(request: Request, store: MessageStore) -> Iterable[Resource]:
    """Yield the group and the topics: locking a queue needs permission to read it."""
    data = json_body(request)
    if isinstance(data, dict):
        yield Resource(str(data.get("consumerGroup", "")), is_group=True)
        yield from map(topic_resource, _texts(_dicts(data.get("mqSet")), "topic"))


_LONG = _sent("topic", "properties", "batch")
_SHORT = _sent("b", "i", "m")
_TOPIC = _read(("topic",))
_GROUP = _read(groups=("consumerGroup",))
_TOPIC_AND_GROUP = _read(("topic",), ("consumerGroup",))
_TOPIC_AND_ITS_GROUP = _read(("topic",), ("group",))

RESOURCES: dict[int, Look] = {
    RequestCode.SEND_MESSAGE: _LONG,
    RequestCode.SEND_REPLY_MESSAGE: _LONG,
    RequestCode.SEND_MESSAGE_V2: _SHORT,
    RequestCode.SEND_BATCH_MESSAGE: _SHORT,
    RequestCode.SEND_REPLY_MESSAGE_V2: _SHORT,
    RequestCode.END_TRANSACTION: _ended,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _produced,
    RequestCode.CONSUMER_SEND_MSG_BACK: _given_back,
    RequestCode.VIEW_MESSAGE_BY_ID: _viewed,
    RequestCode.PULL_MESSAGE: _TOPIC_AND_GROUP,
    RequestCode.LITE_PULL_MESSAGE: _TOPIC_AND_GROUP,
    RequestCode.QUERY_CONSUMER_OFFSET: _TOPIC_AND_GROUP,
    RequestCode.UPDATE_CONSUMER_OFFSET: _TOPIC_AND_GROUP,
    RequestCode.QUERY_CONSUME_QUEUE: _TOPIC_AND_GROUP,
    # Without a topic: the group's progress everywhere, but no message.
    RequestCode.GET_CONSUME_STATS: _TOPIC_AND_GROUP,
    RequestCode.QUERY_CONSUME_TIME_SPAN: _TOPIC_AND_ITS_GROUP,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _TOPIC_AND_ITS_GROUP,
    RequestCode.QUERY_CORRECTION_OFFSET: _read(("topic",), ("compareGroup",)),
    RequestCode.QUERY_MESSAGE: _TOPIC,
    RequestCode.GET_MAX_OFFSET: _TOPIC,
    RequestCode.GET_MIN_OFFSET: _TOPIC,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _TOPIC,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _TOPIC,
    RequestCode.GET_TOPIC_STATS_INFO: _TOPIC,
    RequestCode.GET_TOPIC_CONFIG: _TOPIC,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _read(groups=("group",)),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _TOPIC,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _GROUP,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _GROUP,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _GROUP,
    # Removes only the client's own connection; producer groups need no permission.
    RequestCode.UNREGISTER_CLIENT: _GROUP,
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.CHECK_CLIENT_CONFIG: _client_check,
    RequestCode.LOCK_BATCH_MQ: _locked,
    RequestCode.UNLOCK_BATCH_MQ: _locked,
}


def resources_of(request: Request, store: MessageStore) -> Iterable[Resource]:
    """Return the topics and groups of a request."""
    look = RESOURCES.get(request.code)
    return () if look is None else look(request, store)
