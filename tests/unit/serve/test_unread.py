"""Answers that clients do not read: bounded for each owner and in all, whatever has them sent."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqstore import StoreConfig
from rmqstore.serve.accounts.account import Account
from rmqstore.serve.accounts.acl import Acl
from rmqstore.serve.accounts.addresses import AddressRule
from rmqstore.serve.consuming import lookups
from rmqstore.serve.network import longanswers, memory
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Limits, Settings
from rmqstore.serve.wire.frames import Answer
from support.remoting import RemotingClient
from support.serving import bodies, consumer, end_holds, heartbeat, wait_until
from support.unread import OPEN, PULL, answers, is_settled, silent, unwritten, with_small_buffers

TLS = Path(__file__).parents[2] / "data" / "tls"
KIB, MIB = 1 << 10, 1 << 20
BUFFER = 256 * KIB  # so that all clients have 4 MiB
MOST = 16 * BUFFER
LARGE = 500 * KIB
PUB_SUB = 12
LONG_MAX = (1 << 63) - 1
KINDS = ("plain", "tls", "accounts")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close all clients that do not read."""
    yield
    while OPEN:
        OPEN.pop().close()


def server_with(**other: Any) -> Server:
    limits = Limits(write_buffer=other.pop("write_buffer", BUFFER))
    made = Server(None, Settings(limits=limits, **other), StoreConfig.small())
    made.store.create_topic("orders", queue_nums=2)
    return with_small_buffers(made)


@pytest.fixture
def server() -> Iterator[Server]:
    with server_with() as made:
        yield made


@pytest.fixture
def large(server: Server) -> Server:
    """Return a server that has a large message."""
    server.store.put("orders", bytes(LARGE), queue_id=0, keys=["k"])
    return server


def settings_of(kind: str) -> dict[str, Any]:
    if kind == "accounts":
        account = Account("a", "secret-secret", AddressRule("*"), False, PUB_SUB, PUB_SUB, {})
        return {"acl": Acl([account])}
    if kind == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
        return {"tls": context}
    return {}


def client_of(server: Server, kind: str, source: str = "127.0.0.1") -> RemotingClient:
    made = silent(server, source)
    if kind == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        made.socket = context.wrap_socket(made.socket)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_one_answer_for_each_of_many_connections(kind: str) -> None:
    """Beyond the bound they wait until others have read theirs; who reads is served."""
    signed = {"AccessKey": "a"} if kind == "accounts" else {}
    with server_with(**settings_of(kind)) as server:
        server.store.put("orders", bytes(LARGE), queue_id=0)
        many = [client_of(server, kind) for _ in range(60)]
        asked = [one.send(11, PULL | signed) for one in many]
        wait_until(
            lambda: server.in_loop(lambda: server.gateway.connections.unread.taken) > MOST - LARGE
        )
        wait_until(lambda: server.in_loop(lambda: len(server.gateway.holds._slow)) > 9)
        assert unwritten(server) <= MOST + len(many) * (64 * KIB)
        with client_of(server, kind, "127.0.0.2") as other:
            if kind != "accounts":
                assert len(other.ask(11, PULL).body) > LARGE
            assert other.ask(105, {"topic": "TBW102"} | signed).code == 0
        found = answers(zip(many, asked, strict=True))
        assert all(len(one.body) > LARGE for one in found)
        assert is_settled(server)
        for one in many:
            one.close()


@pytest.mark.parametrize("suspend", [0, 60_000])
def test_many_pulls_of_one_connection(large: Server, suspend: int) -> None:
    with silent(large) as slow, RemotingClient(large.address) as other:
        asked = [slow.send(11, PULL | {"suspendTimeoutMillis": suspend}) for _ in range(40)]
        wait_until(lambda: large.in_loop(lambda: large.gateway.connections.unread.taken) > BUFFER)
        assert other.ask(11, PULL).code == 0
        assert unwritten(large) <= BUFFER + LARGE + 4 * KIB
        assert all(slow.answer(one).code == 0 for one in asked)
        assert is_settled(large)


@pytest.mark.long
def test_held_pulls_of_who_does_not_read_end(server: Server) -> None:
    with silent(server) as slow:
        pull = PULL | {"suspendTimeoutMillis": 600_000}
        asked = [slow.send(11, pull) for _ in range(40)]
        wait_until(lambda: server.in_loop(lambda: len(server.gateway.holds)) == 40)
        server.store.put("orders", bytes(LARGE), queue_id=0)
        wait_until(lambda: server.in_loop(lambda: server.gateway.connections.unread.taken) > BUFFER)
        end_holds(server)
        assert server.in_loop(lambda: len(server.gateway.holds)) > 30
        assert unwritten(server) <= BUFFER + LARGE + 4 * KIB
        for one in asked:
            assert bodies(slow.answer(one)) == [bytes(LARGE)]
        assert is_settled(server)


def test_held_pulls_that_find_nothing_end_when_they_should(server: Server) -> None:
    with silent(server) as client:
        number = client.send(11, PULL | {"queueId": 1, "suspendTimeoutMillis": 300})
        assert client.answer(number).code == 19
        assert is_settled(server)


def test_held_pulls_of_who_leaves_are_forgotten(large: Server) -> None:
    for suspend in (0, 300, 60_000):
        with silent(large) as slow:
            for _ in range(100):
                slow.send(11, PULL | {"suspendTimeoutMillis": suspend})
            wait_until(
                lambda: large.in_loop(lambda: large.gateway.connections.unread.taken) > BUFFER
            )
        assert is_settled(large)


def query(key: str = "k") -> dict[str, object]:
    return {"topic": "orders", "key": key, "maxNum": 64, "beginTimestamp": 0,
            "endTimestamp": LONG_MAX}  # fmt: skip


@pytest.mark.parametrize("code", [12, 33])
def test_look_ups_of_who_does_not_read(
    large: Server, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "_MAX_BYTES", LARGE + KIB)
    (message,) = large.store["orders"][0]
    fields: dict[str, object] = {**query(), "offset": message.physical_offset}
    many = [silent(large) for _ in range(4)]
    asked = [(one, one.send(code, fields)) for one in many for _ in range(8)]
    wait_until(lambda: large.in_loop(lambda: large.gateway.connections.unread.taken) > BUFFER)
    with RemotingClient(large.address, source="127.0.0.2") as other:
        answer = other.ask(code, fields)
        assert (answer.code, answer.remark) == (0, None)
        assert bodies(answer) == [bytes(LARGE)]
    time.sleep(0.2)  # time for more than the bound
    assert unwritten(large) <= len(many) * (BUFFER + LARGE + 64 * KIB)
    assert all(bodies(one) == [bytes(LARGE)] for one in answers(asked))
    assert is_settled(large)
    for one in many:
        one.send(code, fields)
        one.close()
    assert is_settled(large)


def test_the_newest_records_of_a_key_up_to_the_bound(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "_MAX_BYTES", 30_000)
    for number in range(8):
        server.store.put("orders", b"%d" % number * 9_000, queue_id=0, keys=["k", "j"])
    with RemotingClient(server.address) as client:
        found = bodies(client.ask(12, query()))
        assert [one[:1] for one in found] == [b"5", b"6", b"7"]
        assert client.ask(12, query("none")).code == 22
        assert is_settled(server)


def test_long_answers_of_who_does_not_read(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are counted before they are built."""
    monkeypatch.setattr(longanswers, "MAX_FRAME", MIB)
    built: list[int] = []

    def long(connection: Any, request: Any) -> Iterator[None]:
        for _ in range(3):
            time.sleep(0.001)
            yield
        built.append(server.gateway.connections.unread.taken)
        return Answer(body=bytes(MIB))

    server.in_loop(server.gateway.handlers.__setitem__, 7777, long)
    many = [silent(server) for _ in range(20)]
    asked = [one.send(7777) for one in many]
    wait_until(lambda: len(built) >= 3)
    with RemotingClient(server.address, source="127.0.0.2") as other:
        assert len(other.ask(7777).body) == MIB
    time.sleep(0.2)  # time for more than the bound
    assert len(built) <= 5
    assert unwritten(server) <= MOST
    assert all(len(one.body) == MIB for one in answers(zip(many, asked, strict=True)))
    assert is_settled(server)
    for one in many:
        one.send(7777)
    for one in many:
        one.close()
    assert is_settled(server)


def test_a_long_answer_beside_unread_ones_is_an_error(large: Server) -> None:
    """One that is there already, of whatever kind, is not written beyond the bound."""

    def later(connection: Any, request: Any) -> None:
        kept.append((connection, request))

    kept: list[Any] = []
    large.in_loop(large.gateway.handlers.__setitem__, 7777, later)
    with silent(large) as slow:
        numbers = [slow.send(7777) for _ in range(2)]
        pulls = [slow.send(11, PULL) for _ in range(20)]
        wait_until(lambda: large.in_loop(lambda: large.gateway.connections.unread.taken) > BUFFER)
        for (connection, request), size in zip(kept, (LARGE, 1000), strict=True):
            large.in_loop(connection.answer, request, Answer(body=bytes(size)))
        assert [slow.answer(one).code for one in pulls] == [0] * 20
        refused, short = (slow.answer(one) for one in numbers)
        assert (refused.code, short.code, len(short.body)) == (2, 0, 1000)
        assert refused.remark == (
            f"the answer has {LARGE} bytes, and the client has not read earlier ones"
        )
        assert is_settled(large)


def online(server: Server, name: str, source: str = "127.0.0.1") -> RemotingClient:
    """Return a consumer that reads nothing but the answer to its heartbeat."""
    made = silent(server, source)
    body = heartbeat(name, [consumer("g", {"orders": "*"})], [])
    assert made.ask(34, None, body).code == 0
    return made


def test_messages_that_silent_consumers_are_given(large: Server) -> None:
    (message,) = large.store["orders"][0]
    consumers = [online(large, f"c{number}") for number in range(40)]
    with RemotingClient(large.address, source="127.0.0.2") as operator:
        asked = [
            operator.send(309, {"consumerGroup": "g", "clientId": f"c{number}",
                                "msgId": message.msg_id})
            for number in range(40)
        ]  # fmt: skip
        remarks = []
        for number in asked[::-1][:15]:
            remarks.append(operator.answer(number).remark or "")
        assert all("does not read what it is sent" in one for one in remarks)
        assert unwritten(large) <= MOST + len(consumers) * (64 * KIB)
        frame = consumers[0].next_request(309)
        assert len(frame.body) > LARGE
        consumers[0].reply(frame)
        assert operator.answer(asked[0]).code == 0
        for one in consumers:
            one.close()
    assert is_settled(large)


def test_bodies_that_are_passed_on_are_bounded(server: Server) -> None:
    fields: dict[str, object] = {"consumerGroup": "g", "clientId": "c"}
    with online(server, "c") as member, RemotingClient(server.address) as operator:
        refused = operator.ask(307, fields, bytes(64 * KIB + 1))
        assert (refused.code, refused.remark) == (
            1, "the body must be at most 65536 bytes, got 65537"
        )  # fmt: skip
        asked = operator.send(307, fields, bytes(64 * KIB))
        frame = member.next_request(307)
        assert len(frame.body) == 64 * KIB
        member.reply(frame, body=bytes(MIB))
        assert len(operator.answer(asked).body) == MIB
    assert is_settled(server)


@pytest.mark.parametrize(("size", "count"), [(100, 50), (30 * KIB, 5)])
def test_notices_to_who_does_not_read(server: Server, size: int, count: int) -> None:
    """They are left out, and in the end the client is closed."""
    slow = [online(server, f"c{number}") for number in range(30)]

    def notify() -> int:
        connections = [one for one in server.gateway.connections.open if one.is_open]
        for one in connections:
            for _ in range(count):
                one.notify(220, None, bytes(size))
        return len(connections)

    with RemotingClient(server.address, source="127.0.0.2") as other:
        assert other.ask(105, {"topic": "TBW102"}).code == 0
        while server.in_loop(notify) > 1:
            assert unwritten(server) <= MOST + len(slow) * (128 * KIB)
            while len(other.pushed) < count:
                other._take(time.monotonic() + 60)
            other.pushed.clear()
        assert other.ask(105, {"topic": "TBW102"}).code == 0
    for one in slow:
        one.close()
    assert is_settled(server)


def test_a_notice_reaches_who_reads_a_little_later(large: Server) -> None:
    with silent(large) as slow:
        asked = [slow.send(11, PULL) for _ in range(20)]
        wait_until(lambda: large.in_loop(lambda: large.gateway.connections.unread.taken) > BUFFER)
        (connection,) = large.gateway.connections.open
        assert large.in_loop(connection.notify, 40, {"consumerGroup": "g"})
        assert all(slow.answer(one).code == 0 for one in asked)
        assert slow.next_request(40).fields == {"consumerGroup": "g"}
        assert is_settled(large)


def test_of_too_much_the_largest_owner_pays(
    large: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Each owner may have one answer: where these are too many, not who comes last is closed."""
    many = [silent(large, f"127.0.0.{10 + number % 100}") for number in range(100)]
    greedy = [silent(large, "127.0.0.2") for _ in range(10)]
    for one in greedy:
        one.send(11, PULL)
    connections = large.gateway.connections
    wait_until(lambda: large.in_loop(lambda: connections.unread.taken) > 2 * MIB)
    for one in many:
        one.send(11, PULL)
    # All are answered: no later one has an owner of the same size pay.
    wait_until(lambda: large.in_loop(lambda: all(map(connections.unread.of, connections.open))))
    assert unwritten(large) <= 2 * MOST + 120 * (64 * KIB)
    named = [record.getMessage() for record in caplog.records if "not read" in record.getMessage()]
    assert named[0].startswith("127.0.0.2:")
    with RemotingClient(large.address, source="127.0.0.3") as other:
        assert bodies(other.ask(11, PULL)) == [bytes(LARGE)]
    for one in (*many, *greedy):
        one.close()
    assert is_settled(large)


def test_memory_is_given_back_for_many_that_had_little(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(memory, "_trim", given.append)
    monkeypatch.setattr(memory, "_SECONDS", 0.01)
    with server_with(write_buffer=MIB) as server:
        server.store.put("orders", bytes(LARGE), queue_id=0)
        many = [silent(server) for _ in range(5)]
        for one in many:
            one.send(11, PULL)
        unread = server.gateway.connections.unread
        wait_until(lambda: server.in_loop(lambda: unread.taken) > 5 * (LARGE - 200 * KIB))
        assert not server.in_loop(
            lambda: sum(one.is_slow for one in server.gateway.connections.open)
        )
        for one in many:
            one.close()
        wait_until(lambda: given)
        assert is_settled(server)


@pytest.mark.parametrize("kind", ["plain", "tls"])
def test_memory_is_given_back_for_what_tls_has_had(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection with TLS has buffers of its own, whatever its client has read."""
    given: list[int] = []
    monkeypatch.setattr(memory, "_trim", given.append)
    monkeypatch.setattr(memory, "_SECONDS", 0.01)
    with server_with(**settings_of(kind)) as server:
        many = [client_of(server, kind) for _ in range(6)]
        assert all(one.ask(105, {"topic": "TBW102"}).code == 0 for one in many)
        for one in many:
            one.close()
        assert is_settled(server)
        wait_until(lambda: not server.in_loop(lambda: server.gateway.connections.open))
        if kind == "tls":
            wait_until(lambda: given)
        else:
            time.sleep(0.05)
            assert not given


def test_a_client_that_reads_has_its_answers() -> None:
    """Many pulls at once of one that reads: more than it may leave unread."""
    settings = Settings(limits=Limits(write_buffer=BUFFER))
    with (
        Server(None, settings, StoreConfig.small()) as server,
        RemotingClient(server.address) as reader,
    ):
        server.store.create_topic("orders", queue_nums=1)
        server.store.put("orders", bytes(LARGE), queue_id=0)
        asked = [reader.send(11, PULL) for _ in range(50)]
        assert all(len(reader.answer(one).body) > LARGE for one in asked)
        assert is_settled(server)
