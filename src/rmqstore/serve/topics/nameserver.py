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
from rmqstore.serve.network.sockets import address_text
from rmqstore.serve.shares import Owners, Shares
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.fields import text
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.serve.wire.names import topic_of
from rmqstore.serve.wire.objecttext import PAUSE, Entries, dumps, dumps_in_steps

if TYPE_CHECKING:
    from rmqstore.serve.network.answers import AnswerSteps, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.ownerpool import Pools
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.topics.topictable import ServedTopics
    from rmqstore.store import MessageStore

__all__ = ["NETWORK_DEFAULTS", "ORDER_TOPICS", "NameServer"]

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"  # NamesrvUtil.NAMESPACE_ORDER_TOPIC_CONFIG
_WRITE = 2
_UNIT = 1  # TopicSysFlag
_UNIT_SUBSCRIBED = 2
_MAX_BYTES = 8 << 20  # of the key-value table, of which each owner has a share
_ENTRY_BYTES = 512  # of one, besides its texts
_MAX_VALUE = 64 << 10  # characters
_TOPICS_STEP = 256  # that are counted between two steps
# Settings of Netty, which tools look for, and 4.9.3's defaults of them.
NETWORK_DEFAULTS = {
    "serverAsyncSemaphoreValue": "64",
    "serverCallbackExecutorThreads": "0",
    "serverOnewaySemaphoreValue": "256",
    "serverPooledByteBufAllocatorEnable": "true",
    "serverSelectorThreads": "3",
    "serverSocketBacklog": "1024",
    "serverSocketRcvBufSize": "0",
    "serverSocketSndBufSize": "0",
    "serverWorkerThreads": "8",
    "useEpollNativeSelector": "false",
    "writeBufferHighWaterMark": "0",
    "writeBufferLowWaterMark": "0",
}


class _Value(NamedTuple):
    """A value of the key-value table, and its charge: about its memory."""

    text: str
    owners: Owners
    size: int


class KeyValues:
    """Key-value table."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, _Value]] = {}
        self._shares = Shares(_MAX_BYTES)

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


class NameServer:
    """The name server's state, and its handlers."""

    def __init__(
        self, store: MessageStore, settings: Settings, topics: ServedTopics, pools: Pools
    ) -> None:
        self._store = store
        self._settings = settings
        self._topics = topics
        self._pools = pools
        self.values = KeyValues()
        self.read_only = False  # since WIPE_WRITE_PERM_OF_BROKER: no queue to write to in routes

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._listed(lambda entry: True),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_list,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics_of_cluster,
            RequestCode.GET_UNIT_TOPIC_LIST: self._listed(
                lambda entry: entry.topic_sys_flag & _UNIT
            ),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._listed(
                lambda entry: entry.topic_sys_flag & _UNIT_SUBSCRIBED
            ),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._listed(
                lambda entry: entry.topic_sys_flag & (_UNIT | _UNIT_SUBSCRIBED) == _UNIT_SUBSCRIBED
            ),
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
            RequestCode.PUT_KV_CONFIG: self.put_value,
            RequestCode.GET_KV_CONFIG: self.get_value,
            RequestCode.DELETE_KV_CONFIG: self.delete_value,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.list_values,
            RequestCode.GET_NAMESRV_CONFIG: self.get_settings,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.refuse,
            RequestCode.UPDATE_BROKER_CONFIG: self.refuse,
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.refuse,
            RequestCode.DELETE_ACL_CONFIG: self.refuse,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.refuse,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self.refuse,
        }

    def perm(self, entry: TopicConfig) -> int:
        """Return the permission in a topic's route."""
        return entry.perm & ~_WRITE if self.read_only else entry.perm

    def order(self, topic: str) -> str | None:
        """Return an orderly topic's number of queues by broker, ``broker-a:4``."""
        return self.values.value(ORDER_TOPICS, topic)

    def _listed(self, chosen: Callable[[TopicConfig], object]) -> Handler:
        """Return a handler that answers with the names of some topics."""
        return lambda connection, request: _list_of(self._topics.all(), chosen)

    # The cluster and its topics

    def cluster(self, connection: Connection, request: Request) -> Answer:
        """Answer GET_BROKER_CLUSTER_INFO."""
        settings = self._settings
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

    def topics_of_cluster(self, connection: Connection, request: Request) -> AnswerSteps:
        """Answer GET_TOPICS_BY_CLUSTER."""
        ours = text(request, "cluster") == self._settings.cluster
        return _list_of(self._topics.all() if ours else [], lambda entry: True)

    def system_list(self, connection: Connection, request: Request) -> Answer:
        """Answer GET_SYSTEM_TOPIC_LIST_FROM_NS: names of cluster and broker, which are topics."""
        settings = self._settings
        names = [settings.cluster, settings.broker]
        address = address_text(*connection.address)
        return Answer(body=dumps({"brokerAddr": address, "topicList": names}))

    def delete_topic(self, connection: Connection, request: Request) -> Answer:
        """Answer DELETE_TOPIC_IN_NAMESRV: nothing to do, a topic without an entry has no route."""
        topic_of(request)
        return Answer()

    # Permissions in routes

    def wipe_write_perm(self, connection: Connection, request: Request) -> AnswerSteps:
        """Answer WIPE_WRITE_PERM_OF_BROKER."""
        count = yield from self._set_read_only(request, True)
        return Answer(fields={"wipeTopicCount": str(count)})

    def add_write_perm(self, connection: Connection, request: Request) -> AnswerSteps:
        """Answer ADD_WRITE_PERM_OF_BROKER: topics may again what they may by their entries.

        The real one sets 6, and TBW102 is inherited no longer.
        """
        count = yield from self._set_read_only(request, False)
        return Answer(fields={"addTopicCount": str(count)})

    def _set_read_only(self, request: Request, value: bool) -> Generator[None, None, int]:
        """Return the number of topics that are concerned, which are so at once."""
        if text(request, "brokerName") != self._settings.broker:
            return 0
        self.read_only = value
        count = 0
        for _ in self._topics.all():
            count += 1
            if count % _TOPICS_STEP == 0:
                yield
        return count

    # The key-value table

    async def put_value(self, connection: Connection, request: Request) -> Answer:
        """Answer PUT_KV_CONFIG."""
        fields = request.fields
        if "namespace" not in fields or "key" not in fields:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        namespace, key = text(request, "namespace"), text(request, "key")
        value = text(request, "value", _MAX_VALUE)
        self.values.put(namespace, key, value, connection.owner)
        await self._mark_ordered(connection, request, namespace, key)
        return Answer()

    async def _mark_ordered(
        self, connection: Connection, request: Request, namespace: str, topic: str
    ) -> None:
        """Note in a topic's entry whether it is orderly, as brokers do when they register."""
        if namespace != ORDER_TOPICS:
            return

        def marked(entry: TopicConfig | None) -> TopicConfig | None:
            order = self.order(topic) is not None
            if entry is None or entry.order is order:
                return None
            self._store.core.check_writable()
            return dataclasses.replace(entry, order=order)

        def change() -> None:
            self._topics.registry.change({topic: marked})

        await self._pools.change(connection, request, change)

    def get_value(self, connection: Connection, request: Request) -> Answer:
        """Answer GET_KV_CONFIG."""
        namespace, key = text(request, "namespace"), text(request, "key")
        value = self.values.value(namespace, key)
        if value is None:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}"
            )
        return Answer(fields={"value": value})

    async def delete_value(self, connection: Connection, request: Request) -> Answer:
        """Answer DELETE_KV_CONFIG."""
        namespace, key = text(request, "namespace"), text(request, "key")
        self.values.delete(namespace, key)
        await self._mark_ordered(connection, request, namespace, key)
        return Answer()

    def list_values(self, connection: Connection, request: Request) -> AnswerSteps:
        """Answer GET_KVLIST_BY_NAMESPACE."""
        namespace = text(request, "namespace")
        values = self.values.namespace(namespace)
        if not values:
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return Answer(body=(yield from dumps_in_steps(Entries([("table", Entries(values))]))))

    # Settings

    def get_settings(self, connection: Connection, request: Request) -> Answer:
        """Answer GET_NAMESRV_CONFIG with the settings that exist here; it is read-only."""
        values = NETWORK_DEFAULTS | {
            "clusterTest": "false",
            "configStorePath": "",
            "kvConfigPath": "",
            "listenPort": str(self._settings.port),
            "orderMessageEnable": "true",
            "productEnvName": "center",
            "serverChannelMaxIdleTimeSeconds": str(int(self._settings.limits.idle_seconds)),
        }
        return Answer(body="".join(f"{key}={values[key]}\n" for key in sorted(values)).encode())

    def refuse(self, connection: Connection, request: Request) -> Answer:
        """Refuse changes of settings or accounts: ways to run code, or read secrets."""
        raise Refusal(ResponseCode.NO_PERMISSION, f"request type {request.code} is not permitted")


def _list_of(
    entries: Iterable[TopicConfig], chosen: Callable[[TopicConfig], object]
) -> AnswerSteps:
    names = (entry.topic_name if chosen(entry) else PAUSE for entry in entries)
    return Answer(body=(yield from dumps_in_steps(Entries([("topicList", names)]))))
