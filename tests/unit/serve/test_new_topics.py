"""Topics that sends make: entered off the loop, many in one write, sends in their order."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore.serve.network.connection import Connection
from rmqstore.serve.server import Server
from rmqstore.serve.wire.frames import Request
from support.gates import Gate
from support.remoting import RemotingClient

pytestmark = pytest.mark.pure

SEND = {"a": "p", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
        "i": "", "j": "0", "k": "false", "m": "false"}  # fmt: skip
PLAIN = {
    "producerGroup": "p", "topic": "t", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
    "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "",
    "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
}  # fmt: skip
BACK = {"offset": "0", "group": "g", "delayLevel": "0", "originTopic": "there"}
BATCH = bytes.fromhex("00000018000000000000000000000000 00000001 78 0000".replace(" ", ""))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    config = rmqstore.StoreConfig.small()
    with rmqstore.serve(tmp_path / "store", config=config) as server:
        server.store.put("there", b"1", queue_id=0)
        yield server


@pytest.fixture
def gate(server: Server, monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate(monkeypatch)
    gate.close()
    return gate


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as client:
        yield client


def entries(server: Server) -> set[str]:
    file = Path(server.store.path, "config", "topics.json")
    return set(json.loads(file.read_bytes())["topicConfigTable"])


def bodies(server: Server, topic: str) -> list[bytes]:
    return [message.body for message in server.store.scan(topic)]


WAYS = {
    "smart": (310, SEND, b"x"),
    "plain": (10, PLAIN, b"x"),
    "batch": (320, {**SEND, "m": "true"}, BATCH),
    "delayed": (310, {**SEND, "b": "there", "i": "DELAY\x0118"}, b"x"),
    "half": (310, {**SEND, "b": "there", "i": "TRAN_MSG\x01true\x02PGROUP\x01p", "f": "4"}, b"x"),
    "built in": (310, {**SEND, "b": "BenchmarkTest"}, b"x"),
    "reply": (325, {**SEND, "i": ""}, b"x"),
    "tried again": (310, {**SEND, "b": "%RETRY%g"}, b"x"),
    "dead": (310, {**SEND, "b": "%RETRY%g", "j": "16"}, b"x"),
    "given back": (36, BACK, b""),
    "given up": (36, {**BACK, "delayLevel": "-1"}, b""),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_loop_goes_on(server: Server, client: RemotingClient, gate: Gate, way: str) -> None:
    code, fields, body = WAYS[way]
    number = client.send(code, fields, body)
    assert gate.reached.wait(60)
    with RemotingClient(server.address) as other:
        assert other.ask(310, {**SEND, "b": "there"}, b"2").code == 0
        assert other.ask(105, {"topic": "t"}).code == 17
    gate.open.set()
    answer = client.answer(number)
    assert answer.code == (1 if way == "reply" else 0), answer
    assert len(entries(server)) == (3 if way in ("dead", "given back", "given up") else 2)
    if way in ("smart", "plain", "batch"):
        assert bodies(server, "t") == [b"x"]
        assert client.ask(105, {"topic": "t"}).json["queueDatas"][0]["writeQueueNums"] == 4


@pytest.mark.parametrize("way", WAYS)
def test_what_cannot_be_entered_is_refused(
    server: Server, client: RemotingClient, gate: Gate, way: str
) -> None:
    gate.error = OSError(28, "No space left on device", "topics.json")
    gate.open.set()
    end = server.store.stats()["wrote_position"]
    code, fields, body = WAYS[way]
    answer = client.ask(code, fields, body)
    assert answer.code in (1, 14)
    assert answer.fields is not None or code == 36
    assert server.store.stats()["wrote_position"] == end
    assert entries(server) == {"there"}
    gate.error = None
    assert client.ask(code, fields, body).code == (1 if way == "reply" else 0)


@pytest.mark.parametrize("error", [MemoryError(), ValueError("no JSON")])
def test_an_unforeseen_error_leaves_nothing_parked(
    server: Server, client: RemotingClient, gate: Gate, error: Exception
) -> None:
    gate.error = error
    gate.open.set()
    for _ in range(2):
        assert client.ask(310, SEND, b"x").code == 1
    gate.error = None
    assert client.ask(310, SEND, b"x").code == 0
    assert bodies(server, "t") == [b"x"]


def test_many_at_once_are_few_writes(
    server: Server, client: RemotingClient, gate: Gate, wait_until: Callable[..., None]
) -> None:
    numbers = [client.send(310, {**SEND, "b": "t0"}, b"x")]
    assert gate.reached.wait(60)
    numbers += [client.send(310, {**SEND, "b": f"t{n}"}, b"x") for n in range(1, 60)]
    wait_until(lambda: server.gateway.requests[310] == 60)
    gate.open.set()
    for number in numbers:
        assert client.answer(number).code == 0
    assert gate.writes <= 3
    assert entries(server) == {"there", *(f"t{n}" for n in range(60))}


def test_a_crowd_of_topics_does_not_hold_up_the_topic_of_another(
    server: Server, client: RemotingClient, gate: Gate, wait_until: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Entered in one write, they are handled in rotation of those who asked for them."""
    handled: list[str] = []
    run = server.gateway.run

    def noting(connection: Connection, request: Request) -> None:
        if server.gateway.new_topics._handled:
            handled.append(server.gateway.new_topics._handled)
        run(connection, request)

    monkeypatch.setattr(server.gateway.new_topics, "_run", noting)
    monkeypatch.setattr(Connection, "owner", property(lambda self: self.peer))
    numbers = [client.send(310, {**SEND, "b": "t0"}, b"x")]
    assert gate.reached.wait(60)
    numbers += [client.send(310, {**SEND, "b": f"t{n}"}, b"x") for n in range(1, 60)]
    wait_until(lambda: server.gateway.requests[310] == 60)
    with RemotingClient(server.address) as other:
        asked = other.send(310, {**SEND, "b": "other"}, b"x")
        wait_until(lambda: server.gateway.requests[310] == 61)
        gate.open.set()
        assert other.answer(asked).code == 0
        assert [client.answer(number).code for number in numbers] == [0] * 60
    assert handled.index("other") <= 3
    assert sorted(handled) == sorted(["other", *(f"t{n}" for n in range(60))])


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("level", [0, 1, -1])
def test_many_groups_that_give_back_are_few_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None], flush: str,
    level: int,
) -> None:  # fmt: skip
    """And neither groups that are there nor sends wait for them."""
    config = rmqstore.StoreConfig.small().replace(flush_disk_type=flush)
    with rmqstore.serve(tmp_path / "store", config=config) as server:
        store = server.store
        offset = store.put("there", b"1", queue_id=0).physical_offset
        gate = Gate(monkeypatch)
        back = {**BACK, "offset": offset, "delayLevel": level}
        with (
            RemotingClient(server.address) as client,
            RemotingClient(server.address) as other,
        ):
            for kind in (0, -1):
                assert other.ask(36, {**back, "group": "old", "delayLevel": kind}).code == 0
            wait_until(lambda: not server.gateway.new_groups._saving)
            before = gate.writes
            gate.close()
            numbers = [client.send(36, {**back, "group": f"g{n % 40}"}) for n in range(60)]
            assert gate.reached.wait(60)
            for kind in (0, 1, -1):
                assert other.ask(36, {**back, "group": "old", "delayLevel": kind}).code == 0
            assert other.ask(310, {**SEND, "b": "there"}, b"2").code == 0
            wait_until(lambda: server.gateway.requests[36] == 65)
            assert "%RETRY%g0" not in entries(server)
            gate.open.set()
            for number in numbers:
                assert client.answer(number).code == 0
        kinds = ("%RETRY%", "%DLQ%") if level < 0 else ("%RETRY%",)
        assert entries(server) >= {f"{kind}g{n}" for n in range(40) for kind in kinds}
        assert gate.writes - before <= 8
        stored = [message.properties.get("REAL_TOPIC", message.topic) for message in store.scan()]
        assert sorted(one for one in stored if "%g" in one) == sorted(
            f"{kinds[-1]}g{n % 40}" for n in range(60)
        )
        file = Path(store.path, "config", "subscriptionGroup.json")
        groups = {"old", *(f"g{n}" for n in range(40))}
        wait_until(lambda: json.loads(file.read_bytes())["subscriptionGroupTable"].keys() == groups)


def test_an_answer_comes_after_the_entry(server: Server, client: RemotingClient) -> None:
    for n in range(20):
        assert client.ask(310, {**SEND, "b": f"t{n}"}, b"x").code == 0
        assert f"t{n}" in entries(server)


def test_sends_of_one_client_stay_in_order(
    server: Server, client: RemotingClient, gate: Gate, wait_until: Callable[..., None]
) -> None:
    numbers = [client.send(310, SEND, b"%03d" % n) for n in range(20)]
    assert gate.reached.wait(60)
    threading.Timer(0.02, gate.open.set).start()
    numbers += [client.send(310, SEND, b"%03d" % n) for n in range(20, 400)]
    for number in numbers:
        assert client.answer(number).code == 0
    assert bodies(server, "t") == [b"%03d" % n for n in range(400)]
    assert gate.writes == 1


def test_a_client_that_does_not_wait_is_read_no_further(
    server: Server, client: RemotingClient, gate: Gate, wait_until: Callable[..., None]
) -> None:
    body = bytes(100_000)
    sender = threading.Thread(
        target=lambda: [client.send(310, SEND, body, flag=2) for _ in range(300)], daemon=True
    )
    sender.start()
    assert gate.reached.wait(60)
    wait_until(lambda: any(one._paused for one in list(server.gateway.connections.open)))
    assert server.gateway.connections.kept_frames.taken <= 65 * 100_000 + (2 << 20)
    gate.open.set()
    sender.join(60)
    wait_until(lambda: len(bodies(server, "t")) == 300)


def test_a_stop_answers_what_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    gate.close()
    path = tmp_path / "store"
    server = rmqstore.serve(path, config=rmqstore.StoreConfig.small())
    with RemotingClient(server.address) as client:
        number = client.send(310, SEND, b"x")
        assert gate.reached.wait(60)
        closing = threading.Thread(target=server.close)
        closing.start()
        gate.open.set()
        assert client.answer(number).code == 0
        closing.join(60)
    with rmqstore.open(path) as store:
        assert [message.body for message in store.scan()] == [b"x"]
        assert list(store) == ["t"]
