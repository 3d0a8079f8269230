"""Connected consumers and producers, and notifications of changed groups.

A heartbeat enters a connection into its groups, with the topics that each consumer group has
subscribed to. A connection that is lost, or silent for too long, leaves its groups: for others at
once, as members have open connections; in the tables later, in turns of the loop.

Source: ``broker/client/ConsumerManager.java``, ``ConsumerGroupInfo.java``,
``ProducerManager.java``, ``DefaultConsumerIdsChangeListener.java``,
``broker/processor/ClientManageProcessor.java``,
``broker/processor/ConsumerManageProcessor.java getConsumerListByGroup``.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from rmqstore.errors import FilterError
from rmqstore.serve.accounts.aclresources import Resource, topic_resource
from rmqstore.serve.consuming.heartbeats import (
    MOST_GROUPS,
    ConsumerData,
    Heartbeat,
    checked_subscription,
    heartbeat_of,
)
from rmqstore.serve.consuming.subscriptions import Subscription, size_of, unsupported
from rmqstore.serve.network.rotation import FairQueue
from rmqstore.serve.shares import Owners, Shares
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.fields import text
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.serve.wire.jsontext import dumps

if TYPE_CHECKING:
    from rmqstore.serve.accounts.access import Access
    from rmqstore.serve.accounts.account import Caller
    from rmqstore.serve.consuming.newgroups import NewGroups
    from rmqstore.serve.network.answers import AnswerSteps, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.connections import Connections
    from rmqstore.serve.network.turns import Steps
    from rmqstore.serve.network.work import Work
    from rmqstore.serve.settings import Settings

__all__ = ["Client", "Clients", "ConsumerGroup"]

_SCAN_SECONDS = 10.0
_MAX_MEMBERS = 200_000  # of all groups; a client counts once in each of its groups
_GROUPS_STEP = 1024  # groups searched between two steps


@dataclass(slots=True)
class Client:
    """Connection as a member of a group."""

    connection: Connection
    client_id: str
    language: str
    version: int  # ordinal of ``MQVersion``
    seen: float  # loop's time of its last heartbeat
    caller: Caller | None  # of that heartbeat; others may use the connection

    def to_json(self) -> dict[str, Any]:
        """Return its entry in a list of connections."""
        return {
            "clientAddr": self.connection.peer,
            "clientId": self.client_id,
            "language": self.language,
            "version": self.version,
        }


@dataclass(slots=True)
class ConsumerGroup:
    """Connected consumers of a group."""

    name: str
    consume_type: str  # RocketMQ's name, from the last heartbeat, as the next two
    message_model: str
    consume_from_where: str
    # With closed connections that have not left yet.
    clients: dict[Connection, Client] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)  # by topic
    size: int = 0  # charge of the subscriptions
    owners: Owners = ()  # charged for them: owners of the last heartbeat

    @property
    def is_online(self) -> bool:
        """Whether it has members."""
        return any(connection.is_open for connection in self.clients)

    @property
    def members(self) -> list[Client]:
        """The clients with open connections."""
        return [client for client in self.clients.values() if client.connection.is_open]

    @property
    def is_broadcast(self) -> bool:
        """Whether each consumer gets every message."""
        return self.message_model == "BROADCASTING"

    def join(self, client: Client, data: ConsumerData) -> bool:
        """Enter or renew a client; return whether the members or the topics have changed."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        changed = client.connection not in self.clients
        self.clients[client.connection] = client
        before = self.subscriptions
        after = {}
        for one in data.subscriptions:
            old = before.get(one.topic)
            after[one.topic] = one if old is None or one.version > old.version else old
        self.subscriptions = after
        self.size = size_of(after.values())
        return changed or before.keys() != after.keys()


class Clients:
    """All clients of a gateway, and their requests about themselves."""

    def __init__(
        self,
        settings: Settings,
        connections: Connections[Connection],
        work: Work,
        access: Access,
        new_groups: NewGroups,
    ) -> None:
        self._settings = settings
        self._connections = connections
        self._work = work
        self._access = access
        self._new_groups = new_groups
        self._sizes = Shares(settings.limits.subscription_bytes)
        self._members = Shares(_MAX_MEMBERS)
        self._owners: dict[Connection, Owners] = {}  # at its first heartbeat
        self.groups: dict[str, ConsumerGroup] = {}  # also with closed consumers only
        self.producer_groups: dict[str, dict[Connection, Client]] = {}  # by name
        self._named: dict[str, Client] = {}  # by client id, of the last heartbeat
        self._consumes: dict[Connection, set[str]] = {}  # its groups
        self._produces: dict[Connection, set[str]] = {}
        self._changed: set[str] = set()  # groups to notify
        self._changes: FairQueue[str] = FairQueue()  # the same, by turns of owners
        self._notifying = False
        new_groups.in_use.append(self.group)
        connections.lost.append(self.lose)
        work.every(_SCAN_SECONDS, self.close_silent, "closing connections of silent clients")

    # Requests

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_client,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._consumer_list,
        }

    def _heartbeat(self, connection: Connection, request: Request) -> AnswerSteps:
        """Answer HEART_BEAT."""
        data = yield from heartbeat_of(request, self._settings.limits.subscriptions)
        for one in data.consumers:
            entry = self._new_groups.config(one.group, connection.owner)
            if entry is not None:
                self._new_groups.make_retry_topic(entry, unit_mode=one.unit_mode)
            yield
        yield from self.enter(connection, data)
        return Answer()

    def _unregister(self, connection: Connection, request: Request) -> Answer:
        """Answer UNREGISTER_CLIENT."""
        self.leave(
            connection,
            consumer=request.fields.get("consumerGroup"),
            producer=request.fields.get("producerGroup"),
        )
        return Answer(fields={})

    def _check_client(self, connection: Connection, request: Request) -> Answer:
        """Answer CHECK_CLIENT_CONFIG: whether a subscription other than tags is valid."""
        subscription = checked_subscription(request)
        if subscription is not None and not subscription.is_tags:
            why = unsupported(self._settings, subscription.kind)
            if why is not None:
                raise Refusal(ResponseCode.SYSTEM_ERROR, why)
            try:
                _ = subscription.filter
            except FilterError as error:
                raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        return Answer()

    def _consumer_list(self, connection: Connection, request: Request) -> Answer:
        """Answer GET_CONSUMER_LIST_BY_GROUP."""
        name = text(request, "consumerGroup")
        group = self.group(name)
        if group is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}", fields={}
            )
        ids = [client.client_id for client in group.members]
        return Answer(fields={}, body=dumps({"consumerIdList": ids}))

    # Queries

    def group(self, name: str) -> ConsumerGroup | None:
        """Return a group that has consumers."""
        found = self.groups.get(name)
        return found if found is not None and found.is_online else None

    def consumer(self, group: str, client_id: str) -> Client | None:
        """Return a group's consumer by its client id."""
        found = self.groups.get(group)
        if found is None:
            return None
        for client in found.clients.values():
            if client.client_id == client_id and client.connection.is_open:
                return client
        return None

    def producers(self, group: str) -> list[Client]:
        """Return the clients of a producer group."""
        found = self.producer_groups.get(group, {})
        return [client for client in found.values() if client.connection.is_open]

    def client_of(self, client_id: str) -> Client | None:
        """Return a client by its id, the last one with a heartbeat."""
        return self._named.get(client_id)

    def groups_of(self, topic: str) -> Generator[None, None, list[str]]:
        """Return the groups whose consumers have subscribed to a topic."""
        found = []
        for number, one in enumerate(list(self.groups.values())):
            if topic in one.subscriptions and one.is_online:
                found.append(one.name)
            if number % _GROUPS_STEP == _GROUPS_STEP - 1:
                yield
        return found

    # Joining and leaving

    def enter(self, connection: Connection, data: Heartbeat) -> Steps:
        """Enter a heartbeat's groups; ``Refusal`` beyond a limit. Ends with the connection."""
        owners = self._owners.get(connection, connection.owners)
        self._check_size(owners, data.consumers)
        self._check_members(owners, connection, data.consumers, data.producers)
        self._owners[connection] = owners
        client_id = data.client_id
        now = self._work.loop.time()
        client = Client(
            connection, client_id, connection.language, connection.version, now, connection.caller
        )
        if connection.client_id not in (None, client_id):
            self._forget_name(connection)
        connection.client_id = client_id
        self._named[client_id] = client
        for one in data.consumers:
            self._check_size(owners, (one,))  # others may have joined meanwhile
            self._check_members(owners, connection, (one,), ())
            group = self.groups.get(one.group)
            if group is None or not group.is_online:
                if group is not None:  # its last member is gone, with its subscriptions
                    self._end(group)
                group = self.groups[one.group] = ConsumerGroup(
                    one.group, one.consume_type, one.message_model, one.consume_from_where
                )
            self._note(self._consumes, connection, one.group)
            self._sizes.give(group.owners, group.size)
            changed = group.join(client, one)
            group.owners = owners
            self._sizes.take(owners, group.size)
            if changed:
                self.notify(group, owners)
            yield
        for name in data.producers:
            self._check_members(owners, connection, (), (name,))
            members = self.producer_groups.get(name)
            if members is None:
                members = self.producer_groups[name] = {}
            members[connection] = client
            self._note(self._produces, connection, name)
            yield

    def leave(
        self, connection: Connection, *, consumer: str | None = None, producer: str | None = None
    ) -> None:
        """Remove a connection from a group, and notify the others."""
        owners = self._owners.get(connection, connection.owners)
        if producer is not None:
            self._forget(self._produces, connection, producer)
            members = self.producer_groups.get(producer)
            if members is not None:
                members.pop(connection, None)
                if not members:
                    del self.producer_groups[producer]
        if consumer is not None:
            self._forget(self._consumes, connection, consumer)
            group = self.groups.get(consumer)
            if group is not None and group.clients.pop(connection, None) is not None:
                if group.clients:
                    self.notify(group, owners)
                else:
                    self._end(group)

    def _end(self, group: ConsumerGroup) -> None:
        del self.groups[group.name]
        self._sizes.give(group.owners, group.size)

    def lose(self, connection: Connection) -> None:
        """Remove a closed connection from its groups; others no longer see it."""
        if connection.client_id is None:
            return  # it never sent a heartbeat
        self._forget_name(connection)
        self._work.turns.begin(self._left(connection))

    def _left(self, connection: Connection) -> Steps:
        for name in list(self._produces.get(connection, ())):
            self.leave(connection, producer=name)
            yield
        for name in list(self._consumes.get(connection, ())):
            self.leave(connection, consumer=name)
            yield
        self._owners.pop(connection, None)

    def ask_again(self) -> None:
        """Remove consumers that are no longer permitted, and producers without an account."""
        self._work.turns.add(self._end_refused())

    def _end_refused(self) -> Steps:
        for connection, names in list(self._consumes.items()):
            for name in list(names):
                group = self.groups.get(name)
                if group is None or connection not in group.clients:
                    continue  # it has left meanwhile
                topics = map(topic_resource, group.subscriptions)
                wanted = (Resource(name, is_group=True), *topics)
                if not self._access.allows(group.clients[connection].caller, *wanted):
                    self.leave(connection, consumer=name)
                yield
        for name, members in list(self.producer_groups.items()):
            for connection, client in list(members.items()):
                if not self._access.allows(client.caller):
                    self.leave(connection, producer=name)
            yield

    def close_silent(self) -> None:
        """Close connections without requests, and clients without heartbeats."""
        self._work.turns.add(self._close_silent())

    def _close_silent(self) -> Steps:
        least = self._work.loop.time() - self._settings.limits.idle_seconds
        of_consumers = [group.clients for group in self.groups.values()]
        for members in chain(of_consumers, list(self.producer_groups.values())):
            for connection in [one for one, client in members.items() if client.seen < least]:
                self._close(connection)
            yield
        for connection in list(self._connections.open):
            if connection.last_used < least:
                self._close(connection)
            yield

    def _close(self, connection: Connection) -> None:
        if connection.is_open:
            self._work.log.warning("%s: closed: it was silent for too long", connection.peer)
            connection.abort()  # a close would wait for a client that does not read
            self.lose(connection)

    def notify(self, group: ConsumerGroup, owners: Owners) -> None:
        """Notify a group's consumers of a change by these owners; owners take turns."""
        if group.name not in self._changed:
            self._changed.add(group.name)
            self._changes.add(owners, group.name)
        if not self._notifying:
            self._notifying = True
            self._work.turns.add(self._notify_all())

    def _notify_all(self) -> Steps:
        """Notify the consumers of changed groups, also of groups that change meanwhile."""
        try:
            while self._changes:
                name = self._changes.pop()
                self._changed.remove(name)
                config = self._new_groups.get(name)
                group = self.groups.get(name)
                if group is None or (
                    config is not None
                    and config.other.get("notifyConsumerIdsChangedEnable") is False
                ):
                    yield
                    continue
                for client in group.members:
                    client.connection.notify(
                        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": name}
                    )
                    yield
        finally:
            self._notifying = False

    def _note(self, groups: dict[Connection, set[str]], connection: Connection, name: str) -> None:
        names = groups.setdefault(connection, set())
        if name not in names:
            self._members.take(self._owners[connection])
            names.add(name)

    def _forget(
        self, groups: dict[Connection, set[str]], connection: Connection, name: str
    ) -> None:
        names = groups.get(connection, set())
        if name in names:
            self._members.give(self._owners[connection])
            names.remove(name)
            if not names:
                del groups[connection]

    def _forget_name(self, connection: Connection) -> None:
        name = connection.client_id
        named = self._named.get(name) if name is not None else None
        if named is not None and named.connection is connection:
            del self._named[named.client_id]

    def _check_size(self, owners: Owners, consumers: tuple[ConsumerData, ...]) -> None:
        more = sum(
            data.size - (self.groups[data.group].size if data.group in self.groups else 0)
            for data in consumers
        )
        if more > 0 and not self._sizes.has_room(owners, more):
            raise _no_room(owners, f"subscriptions have {self._sizes.taken} bytes already")

    def _check_members(
        self,
        owners: Owners,
        connection: Connection,
        consumers: tuple[ConsumerData, ...],
        producers: tuple[str, ...],
    ) -> None:
        more = 0
        for groups, names in (
            (self._consumes, {one.group for one in consumers}),
            (self._produces, set(producers)),
        ):
            there = groups.get(connection, set())
            new = len(names - there)
            if new and len(there) + new > MOST_GROUPS:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"a client may have {MOST_GROUPS} consumer and {MOST_GROUPS} producer groups, "
                    f"has {len(there)}",
                )
            more += new
        if more and not self._members.has_room(owners, more):
            raise _no_room(owners, f"groups have {self._members.taken} members already")


def _no_room(owners: Owners, what: str) -> Refusal:
    names = " or of ".join(map(str, owners))
    return Refusal(ResponseCode.SYSTEM_ERROR, f"{what}: the share of {names} is used up")
