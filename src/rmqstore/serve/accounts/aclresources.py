"""Which topics and groups a request is about, and which requests are an administrator's.

Source: ``acl/plain/PlainAccessValidator.java parse``, ``acl/common/Permission.java``; 4.9.3 leaves
out batches, transactions, locks and all that the name server is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rmqstore import paths
from rmqstore.serve.wire.codes import RequestCode
from rmqstore.serve.wire.frames import Request
from rmqstore.serve.wire.jsontext import loads

__all__ = ["ADMIN", "Resource", "resources_of", "topic_resource"]

ADMIN = frozenset((
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_BROKER_CONFIG,
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
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
))  # fmt: skip


_MOST_BODY = 4 << 20  # of the requests that have their resources there


class Resource(NamedTuple):
    """A topic or a group, and whether it is written to."""

    name: str
    is_group: bool = False
    is_written: bool = False


def topic_resource(name: str, *, written: bool = False) -> Resource:
    """Return what has to be allowed for a topic; a retry topic is its group's."""
    prefix = paths.retry_topic("")
    if name.startswith(prefix):
        return Resource(name[len(prefix) :], is_group=True)
    return Resource(name, is_written=written)


def _topic_written(field: str) -> Callable[[Request], Iterable[Resource]]:
    """Return what looks at a field with a topic that is sent to."""

    def look(request: Request) -> Iterable[Resource]:
        name = request.fields.get(field)
        if name is not None:
            yield topic_resource(name, written=True)

    return look


def _read(
    topics: tuple[str, ...] = (), groups: tuple[str, ...] = ()
) -> Callable[[Request], Iterable[Resource]]:
    """Return what looks at fields with topics that are read, and with groups that read."""

    def look(request: Request) -> Iterable[Resource]:
        for field in topics:
            name = request.fields.get(field)
            if name is not None:
                yield topic_resource(name)
        for field in groups:
            name = request.fields.get(field)
            if name is not None:
                yield Resource(name, is_group=True)

    return look


def _given_back(request: Request) -> Iterable[Resource]:
    yield from _read(groups=("group",))(request)
    topic = request.fields.get("originTopic")
    if topic is not None:
        yield Resource(topic, is_written=True)


def _in_body(request: Request) -> Any:
    if len(request.body) > _MOST_BODY:
        return None  # the handler refuses it
    try:
        return loads(request.body)
    except ValueError:
        return None  # as well


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _subscribed(subscriptions: Any) -> Iterable[Resource]:
    prefix = paths.retry_topic("")
    for one in _dicts(subscriptions):
        topic = str(one.get("topic", ""))
        if not topic.startswith(prefix):
            yield Resource(topic)


def _heartbeat(request: Request) -> Iterable[Resource]:
    data = _in_body(request)
    for consumer in _dicts(data.get("consumerDataSet")) if isinstance(data, dict) else ():
        yield Resource(str(consumer.get("groupName", "")), is_group=True)
        yield from _subscribed(consumer.get("subscriptionDataSet"))


def _client_check(request: Request) -> Iterable[Resource]:
    data = _in_body(request)
    if isinstance(data, dict):
        yield Resource(str(data.get("group", "")), is_group=True)
        yield from _subscribed([data.get("subscriptionData")])


def _locked(request: Request) -> Iterable[Resource]:
    data = _in_body(request)
    if isinstance(data, dict):
        yield Resource(str(data.get("consumerGroup", "")), is_group=True)


_TOPIC = _read(("topic",))
_TOPIC_AND_GROUP = _read(("topic",), ("consumerGroup",))
_GROUP = _read(groups=("consumerGroup",))
_LOOKS: dict[int, Callable[[Request], Iterable[Resource]]] = {
    RequestCode.SEND_MESSAGE: _topic_written("topic"),
    RequestCode.SEND_REPLY_MESSAGE: _topic_written("topic"),
    RequestCode.SEND_MESSAGE_V2: _topic_written("b"),
    RequestCode.SEND_BATCH_MESSAGE: _topic_written("b"),
    RequestCode.SEND_REPLY_MESSAGE_V2: _topic_written("b"),
    RequestCode.CONSUMER_SEND_MSG_BACK: _given_back,
    RequestCode.PULL_MESSAGE: _TOPIC_AND_GROUP,
    RequestCode.LITE_PULL_MESSAGE: _TOPIC_AND_GROUP,
    RequestCode.QUERY_CONSUMER_OFFSET: _TOPIC_AND_GROUP,
    RequestCode.UPDATE_CONSUMER_OFFSET: _TOPIC_AND_GROUP,
    RequestCode.QUERY_MESSAGE: _TOPIC,
    RequestCode.GET_MAX_OFFSET: _TOPIC,
    RequestCode.GET_MIN_OFFSET: _TOPIC,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _TOPIC,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _TOPIC,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _GROUP,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _GROUP,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _GROUP,
    RequestCode.GET_CONSUME_STATS: _GROUP,
    RequestCode.UNREGISTER_CLIENT: _GROUP,
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.CHECK_CLIENT_CONFIG: _client_check,
    RequestCode.LOCK_BATCH_MQ: _locked,
    RequestCode.UNLOCK_BATCH_MQ: _locked,
}


def resources_of(request: Request) -> list[Resource]:
    """Return the topics and groups that a request is about.

    One that names none needs an account and nothing else, as a route does.
    """
    look = _LOOKS.get(request.code)
    return [] if look is None else list(look(request))
