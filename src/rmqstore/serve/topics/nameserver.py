"""Requests to the name server besides routes: the cluster, lists of topics, the key-value table.

The table is in memory: orderly topics are in it, for the routes.

Source: ``namesrv/processor/DefaultRequestProcessor.java``,
``namesrv/routeinfo/RouteInfoManager.java``, ``namesrv/kvconfig/KVConfigManager.java``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, NamedTuple

from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.serve.admin.brokersettings import nameserver_settings
from rmqstore.serve.network.sockets import address_text
from rmqstore.serve.shares import Owners, Shares
from rmqstore.serve.topics.topictable import all_topics
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.fields import text
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.serve.wire.names import topic_of
from rmqstore.serve.wire.objecttext import PAUSE, Entries, dumps, dumps_in_steps

if TYPE_CHECKING:
    from rmqstore.serve.gateway import Gateway, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.longanswers import AnswerSteps

__all__ = ["HANDLERS", "ORDER_TOPICS", "NameServer"]

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"  # NamesrvUtil.NAMESPACE_ORDER_TOPIC_CONFIG
_WRITE = 2
_UNIT = 1  # TopicSysFlag
_UNIT_SUBSCRIBED = 2
_MAX_BYTES = 8 << 20  # of the key-value table, of which each owner has a share
_ENTRY_BYTES = 512  # of one, besides its texts
_MAX_VALUE = 64 << 10  # characters
_TOPICS_STEP = 256  # that are counted between two steps


class _Value(NamedTuple):
    """A value of the key-value table, and its charge: about its memory."""

    text: str
    owners: Owners
    size: int


class NameServer:
    """State of the name server."""

    def __init__(self) -> None:
        self.read_only = False  # since WIPE_WRITE_PERM_OF_BROKER: no queue to write to in routes
        self._values: dict[str, dict[str, _Value]] = {}
        self._shares = Shares(_MAX_BYTES)

    def perm(self, entry: TopicConfig) -> int:
        """Return the permission in a topic's route."""
        return entry.perm & ~_WRITE if self.read_only else entry.perm

    def order(self, topic: str) -> str | None:
        """Return an orderly topic's number of queues by broker, ``broker-a:4``."""
        return self.value(ORDER_TOPICS, topic)

    def value(self, namespace: str, key: str) -> str | None:
        """Return a value of the table."""
        found = self._values.get(namespace, {}).get(key)
        return None if found is None else found.text

    def namespace(self, namespace: str) -> list[tuple[str, str]]:
        """Return all keys and values of a namespace."""
        return [(key, value.text) for key, value in self._values.get(namespace, {}).items()]

    def put(self, namespace: str, key: str, text: str, owner: str) -> None:
        """Set a value; ``Refusal`` if the table or its owner's share would be too large."""
        before = self.delete(namespace, key)
        value = _Value(text, (owner,), _ENTRY_BYTES + len(namespace) + len(key) + len(text))
        has_room = self._shares.has_room(value.owners, value.size)
        kept = value if has_room else before
        if kept is not None:
            self._values.setdefault(namespace, {})[key] = kept
            self._shares.take(kept.owners, kept.size)
        if not has_room:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"the key-value table is at most {_MAX_BYTES} bytes: it has {self._shares.taken} "
                f"already, and the share of {owner} is used up",
            )

    def delete(self, namespace: str, key: str) -> _Value | None:
        """Remove a value, and return it if it was there."""
        values = self._values.get(namespace, {})
        value = values.pop(key, None)
        if value is not None:
            self._shares.give(value.owners, value.size)
            if not values:
                del self._values[namespace]
        return value


# The cluster and its topics


def cluster(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer GET_BROKER_CLUSTER_INFO."""
    settings = gateway.settings
    broker = {
        "brokerAddrs": {"0": address_text(*connection.address)},
        "brokerName": settings.broker,
        "cluster": settings.cluster,
    }
    return Answer(
        body=dumps(
            {
                "brokerAddrTable": {settings.broker: broker},
                "clusterAddrTable": {settings.cluster: [settings.broker]},
            }
        )
    )


def _listed(chosen: Callable[[TopicConfig], object]) -> Handler:
    """Return a handler that answers with the names of some topics."""

    def handler(gateway: Gateway, connection: Connection, request: Request) -> AnswerSteps:
        return _list_of(all_topics(gateway), chosen)

    return handler


def _list_of(
    entries: Iterable[TopicConfig], chosen: Callable[[TopicConfig], object]
) -> AnswerSteps:
    names = (entry.topic_name if chosen(entry) else PAUSE for entry in entries)
    return Answer(body=(yield from dumps_in_steps(Entries([("topicList", names)]))))


def topics_of_cluster(gateway: Gateway, connection: Connection, request: Request) -> AnswerSteps:
    """Answer GET_TOPICS_BY_CLUSTER."""
    ours = text(request, "cluster") == gateway.settings.cluster
    return _list_of(all_topics(gateway) if ours else [], lambda entry: True)


def system_list(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer GET_SYSTEM_TOPIC_LIST_FROM_NS: names of cluster and broker, which are topics."""
    settings = gateway.settings
    names = [settings.cluster, settings.broker]
    address = address_text(*connection.address)
    return Answer(body=dumps({"brokerAddr": address, "topicList": names}))


def delete_topic(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer DELETE_TOPIC_IN_NAMESRV: nothing to do, as topics without an entry have no route."""
    topic_of(request)
    return Answer()


# Permissions in routes


def wipe_write_perm(gateway: Gateway, connection: Connection, request: Request) -> AnswerSteps:
    """Answer WIPE_WRITE_PERM_OF_BROKER."""
    count = yield from _set_read_only(gateway, request, True)
    return Answer(fields={"wipeTopicCount": str(count)})


def add_write_perm(gateway: Gateway, connection: Connection, request: Request) -> AnswerSteps:
    """Answer ADD_WRITE_PERM_OF_BROKER: topics may again what they may by their entries.

    The real one sets 6, and TBW102 is inherited no longer.
    """
    count = yield from _set_read_only(gateway, request, False)
    return Answer(fields={"addTopicCount": str(count)})


def _set_read_only(gateway: Gateway, request: Request, value: bool) -> Generator[None, None, int]:
    """Return the number of topics that are concerned, which are so at once."""
    if text(request, "brokerName") != gateway.settings.broker:
        return 0
    gateway.nameserver.read_only = value
    count = 0
    for _ in all_topics(gateway):
        count += 1
        if count % _TOPICS_STEP == 0:
            yield
    return count


# The key-value table


async def put_value(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer PUT_KV_CONFIG."""
    fields = request.fields
    if "namespace" not in fields or "key" not in fields:
        raise Refusal(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
    namespace, key = text(request, "namespace"), text(request, "key")
    value = text(request, "value", _MAX_VALUE)
    gateway.nameserver.put(namespace, key, value, connection.owner)
    await _mark_ordered(gateway, connection, request, namespace, key)
    return Answer()


async def _mark_ordered(
    gateway: Gateway, connection: Connection, request: Request, namespace: str, topic: str
) -> None:
    """Note in a topic's entry whether it is an orderly one, as brokers do when they register."""
    if namespace != ORDER_TOPICS:
        return

    def marked(entry: TopicConfig | None) -> TopicConfig | None:
        order = gateway.nameserver.order(topic) is not None
        if entry is None or entry.order is order:
            return None
        gateway.store.core.check_writable()
        return dataclasses.replace(entry, order=order)

    def change() -> None:
        gateway.store.registry.change({topic: marked})

    await gateway.change(connection, request, change)


def get_value(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer GET_KV_CONFIG."""
    namespace, key = text(request, "namespace"), text(request, "key")
    value = gateway.nameserver.value(namespace, key)
    if value is None:
        raise Refusal(
            ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}"
        )
    return Answer(fields={"value": value})


async def delete_value(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer DELETE_KV_CONFIG."""
    namespace, key = text(request, "namespace"), text(request, "key")
    gateway.nameserver.delete(namespace, key)
    await _mark_ordered(gateway, connection, request, namespace, key)
    return Answer()


def list_values(gateway: Gateway, connection: Connection, request: Request) -> AnswerSteps:
    """Answer GET_KVLIST_BY_NAMESPACE."""
    namespace = text(request, "namespace")
    values = gateway.nameserver.namespace(namespace)
    if not values:
        raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
    return Answer(body=(yield from dumps_in_steps(Entries([("table", Entries(values))]))))


# Settings


def get_settings(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer GET_NAMESRV_CONFIG with the settings that exist here; it is read-only."""
    values = nameserver_settings(gateway)
    return Answer(body="".join(f"{key}={value}\n" for key, value in values.items()).encode())


def refuse(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Refuse changes of settings or accounts: ways to run code, or read secrets."""
    raise Refusal(ResponseCode.NO_PERMISSION, f"request type {request.code} is not permitted")


HANDLERS: dict[int, Handler] = {
    RequestCode.GET_BROKER_CLUSTER_INFO: cluster,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _listed(lambda entry: True),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: system_list,
    RequestCode.GET_TOPICS_BY_CLUSTER: topics_of_cluster,
    RequestCode.GET_UNIT_TOPIC_LIST: _listed(lambda entry: entry.topic_sys_flag & _UNIT),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _listed(
        lambda entry: entry.topic_sys_flag & _UNIT_SUBSCRIBED
    ),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _listed(
        lambda entry: entry.topic_sys_flag & (_UNIT | _UNIT_SUBSCRIBED) == _UNIT_SUBSCRIBED
    ),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: delete_topic,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: wipe_write_perm,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: add_write_perm,
    RequestCode.PUT_KV_CONFIG: put_value,
    RequestCode.GET_KV_CONFIG: get_value,
    RequestCode.DELETE_KV_CONFIG: delete_value,
    RequestCode.GET_KVLIST_BY_NAMESPACE: list_values,
    RequestCode.GET_NAMESRV_CONFIG: get_settings,
    RequestCode.UPDATE_NAMESRV_CONFIG: refuse,
    RequestCode.UPDATE_BROKER_CONFIG: refuse,
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: refuse,
    RequestCode.DELETE_ACL_CONFIG: refuse,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: refuse,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: refuse,
}
