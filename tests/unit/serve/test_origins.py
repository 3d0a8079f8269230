"""Who fills what all share with many connections of an address leaves room for the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from rmqstore import StoreConfig
from rmqstore.serve.accounts.acl import Acl
from rmqstore.serve.accounts.addresses import AddressRule
from rmqstore.serve.network import places
from rmqstore.serve.network.sockets import origin_of
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Limits, Settings
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat, wait_until

pytestmark = pytest.mark.pure

SMALL = StoreConfig.small()
SEND: dict[str, object] = {
    "a": "p", "b": "orders", "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "j": 0,
    "k": "false", "m": "false",
}  # fmt: skip
PULL: dict[str, object] = {
    "consumerGroup": "g", "topic": "orders", "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 6,
    "commitOffset": 0, "suspendTimeoutMillis": 60_000, "subVersion": 0, "subscription": "*",
}  # fmt: skip
REPLY = SEND | {"b": "DefaultCluster_REPLY_TOPIC", "i": "REPLY_TO_CLIENT\x01asker"}


class Clients:
    """Clients of several addresses, which are closed in the end."""

    def __init__(self, server: Server, stack: ExitStack) -> None:
        self.server = server
        self._stack = stack

    def of(self, address: str, count: int = 1) -> list[RemotingClient]:
        return [
            self._stack.enter_context(RemotingClient(self.server.address, source=address))
            for _ in range(count)
        ]


def serving(*, acl: Acl | None = None, **limits: int) -> Iterator[Clients]:
    settings = Settings(acl=acl, limits=Limits(**limits))
    with Server(None, settings, SMALL) as server, ExitStack() as stack:
        server.store.create_topic("orders", queue_nums=16)
        yield Clients(server, stack)


@pytest.fixture(params=["no accounts", "white list"])
def clients(request: pytest.FixtureRequest) -> Iterator[Clients]:
    white = Acl([], [AddressRule("127.0.0.*")])
    acl = None if request.param == "no accounts" else white
    yield from serving(acl=acl, held_pulls=200, subscription_bytes=60_000, topics=10)


def held(clients: Clients, client: RemotingClient, queues: int) -> int:
    """Send a pull for each of so many queues, and return how many are held."""
    holds = clients.server.gateway.holds
    before = clients.server.in_loop(lambda: len(holds))
    for queue in range(queues):
        client.send(11, PULL | {"queueId": queue % 16})
    assert client.ask(105, {"topic": "orders"}).code == 0
    after: int = clients.server.in_loop(lambda: len(holds))
    return after - before


def test_held_pulls(clients: Clients) -> None:
    many = sum(held(clients, one, 16) for one in clients.of("127.0.0.2", 20))
    assert 90 <= many <= 100
    [legal] = clients.of("127.0.0.3")
    assert held(clients, legal, 16) == 16
    [another] = clients.of("127.0.0.4")
    assert held(clients, another, 16) == 16


def test_held_pulls_of_one_connection(clients: Clients) -> None:
    """A third of the table, and all are given back once it is gone."""
    [one] = clients.of("127.0.0.2")
    assert 64 <= held(clients, one, 100) <= 67
    one.close()
    taken = clients.server.gateway.holds._sizes
    wait_until(lambda: clients.server.in_loop(lambda: (taken.taken, taken._of)) == (0, {}))


def test_members(clients: Clients) -> None:
    clients.server.gateway.clients._members.most = 200
    codes = [
        one.ask(34, None, heartbeat(one.name, [], [f"p{n}" for n in range(10)])).code
        for one in clients.of("127.0.0.2", 20)
    ]
    assert codes == [0] * 9 + [1] * 11
    [legal] = clients.of("127.0.0.3")
    assert legal.ask(34, None, heartbeat("v", [], [f"p{n}" for n in range(16)])).code == 0


def test_subscriptions(clients: Clients) -> None:
    def beat(client: RemotingClient, group: str, length: int) -> int:
        body = heartbeat(client.name, [consumer(group, {"orders": "x" * length})])
        code: int = client.ask(34, None, body).code
        return code

    bad = clients.of("127.0.0.2", 5)
    assert [beat(one, f"g{n}", 9000) for n, one in enumerate(bad)] == [0, 0, 0, 1, 1]
    [legal] = clients.of("127.0.0.3")
    assert beat(legal, "v", 9000) == 0


def test_replies(clients: Clients) -> None:
    replies = clients.server.gateway.replies
    replies.shares.most = 20 * 6711
    [asker] = clients.of("127.0.0.9")
    assert asker.ask(34, None, heartbeat("asker", [], ["p"])).code == 0
    bad = clients.of("127.0.0.2", 20)
    for one in bad:
        one.send(325, REPLY, b"x")
    wait_until(lambda: clients.server.in_loop(lambda: replies.shares.taken))
    assert clients.server.in_loop(lambda: replies.shares.of("127.0.0.2")) == 10 * 6710
    [legal] = clients.of("127.0.0.3")
    asked = legal.send(325, REPLY, b"mine")
    while True:
        push = asker.next_request(326)
        if push.body == b"mine":
            break
    asker.reply(push)
    assert legal.answer(asked).code == 0


def test_topics(clients: Clients) -> None:
    bad = clients.of("127.0.0.2", 7)
    codes = [one.ask(310, SEND | {"b": f"t{n}"}, b"x").code for n, one in enumerate(bad)]
    assert codes == [0] * 5 + [17] * 2
    [legal] = clients.of("127.0.0.3")
    assert legal.ask(310, SEND | {"b": "mine"}, b"x").code == 0


def test_whose_an_address_is() -> None:
    assert origin_of("192.0.2.1") == origin_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert origin_of("2001:db8:1:2:3:4:5:6") == origin_of("2001:db8:1:2::9") == "2001:db8:1:2::/64"
    assert origin_of("2001:db8:1:3::9") != origin_of("2001:db8:1:2::9")
    assert origin_of("fe80::1%eth0") == "fe80::/64"


# Connections


@pytest.fixture
def few() -> Iterator[Clients]:
    """Return clients of a server that has 64 connections, a sixteenth of which is 4."""
    yield from serving(connections=64)


def is_served(client: RemotingClient) -> bool:
    try:
        return client.ask(105, {"topic": "orders"}).code == 0
    except OSError:
        return False


def test_one_address_may_have_all_connections(few: Clients) -> None:
    many = few.of("127.0.0.2", 64)
    assert all(map(is_served, many))
    assert not any(map(is_served, few.of("127.0.0.2", 5)))
    assert all(map(is_served, many))


def test_others_are_given_a_sixteenth(few: Clients) -> None:
    """The one that was silent for longest is closed, and as many as are free stay for the next."""
    many = few.of("127.0.0.2", 64)
    assert all(map(is_served, many))
    assert is_served(many[0])
    seconds = few.of("127.0.0.3", 3)
    assert [is_served(one) for one in seconds] == [True, True, False]
    assert not any(map(is_served, few.of("127.0.0.2", 5)))
    assert [is_served(one) for one in many] == [True, False, False] + [True] * 61
    assert [is_served(one) for one in few.of("127.0.0.4", 2)] == [True, False]
    assert [is_served(one) for one in few.of("127.0.0.5", 2)] == [True, False]
    assert [is_served(one) for one in few.of("127.0.0.6", 2)] == [False, False]
    assert sum(map(is_served, many)) == 60
    for one in seconds:
        one.close()
    wait_until(lambda: len(few.server.gateway.connections.open) == 62)
    assert all(map(is_served, few.of("127.0.0.2", 2)))
    assert is_served(few.of("127.0.0.6")[0])


def test_others_are_given_some_where_there_are_few_files(
    few: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = few.of("127.0.0.2", 32)
    assert all(map(is_served, many))
    monkeypatch.setattr(places, "leaves_room", lambda descriptor: False)
    assert not is_served(few.of("127.0.0.2")[0])
    assert is_served(few.of("127.0.0.3")[0])
    assert sum(map(is_served, many)) == 31


def test_a_place_is_given_back(few: Clients) -> None:
    of = few.server._places._of
    for one in few.of("127.0.0.2", 20):
        one.close()
    wait_until(lambda: not few.server.in_loop(lambda: of))
