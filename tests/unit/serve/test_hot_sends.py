"""Plain sends from their frames to the log, without handlers: what is stored, and what is not."""

from __future__ import annotations

import json
import random
import struct
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import rmqstore
from rmqstore._core import ClientSends, FrameReader
from rmqstore.serve import serve
from rmqstore.serve.wire.frames import Request, with_code
from support import frame_oracle as oracle
from support.remoting import RemotingClient

BORN = "10.1.2.3:4567"
HOST = "127.0.0.1:9876"
LONG = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums",
    "e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties",
    "j": "reconsumeTimes", "k": "unitMode", "l": "maxReconsumeTimes", "m": "batch",
}  # fmt: skip


def properties(mapping: dict[str, str]) -> str:
    return "\x02".join(f"{k}\x01{v}" for k, v in mapping.items())


def fields(**changed: object) -> dict[str, object]:
    made: dict[str, object] = {
        "a": "Producer", "b": "orders", "c": "TBW102", "d": "4", "e": "1", "f": "0",
        "g": "1795190702924", "h": "7", "i": "TAGS\x01t\x02WAIT\x01true", "j": "0", "k": "false",
        "m": "false", **changed,
    }  # fmt: skip
    return {k: v for k, v in made.items() if v is not None}


def frame(code: int = 310, body: bytes = b"body", *, opaque: int = 5, flag: int = 0,
          binary: bool = False, **changed: object) -> bytes:  # fmt: skip
    made = fields(**changed)
    if code == 10:
        made = {LONG[k]: v for k, v in made.items()}
    if binary:
        texts = {k: str(v) for k, v in made.items()}
        return oracle.encode_binary(Request(code, texts, body, opaque, flag, "JAVA", 399))
    header = {"code": code, "extFields": made, "flag": flag, "opaque": opaque, "version": 399}
    return oracle.framed(json.dumps(header).encode(), body)


def batch(*items: tuple[bytes, str], flag: int = 3) -> bytes:
    made = b""
    for body, text in items:
        rest = text.encode()
        inner = struct.pack(">iiii", 0, 0, flag, len(body)) + body
        inner += struct.pack(">h", len(rest)) + rest
        made += struct.pack(">i", len(inner) + 4) + inner
    return made


class Wire:
    """The receiving side of a connection, without the connection."""

    def __init__(self, store, born=BORN, host=HOST):
        self.store = store
        self.sends = ClientSends(store.core, "DefaultCluster", "Region \u20ac")
        self.reader = FrameReader(Request)
        self.reader.set_hosts(born, host)

    def give(self, data: bytes) -> list[Request]:
        """Return the requests that are left to Python."""
        left = []
        while data:
            room = self.reader.get_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.reader.received(count)
            data = data[count:]
            while (request := self.reader.take(self.sends)) is not None:
                left.append(request)
        return left

    def answers(self) -> list[Request]:
        return oracle.split(self.reader.answers())


@pytest.fixture
def store(tmp_path: Path):
    with rmqstore.open(tmp_path, "a") as made:
        made.create_topic("orders", queue_nums=4)
        yield made


@pytest.fixture
def wire(store):
    made = Wire(store)
    made.sends.set_topic("orders", 4)
    return made


@pytest.mark.parametrize("code", [310, 10])
@pytest.mark.parametrize("binary", [False, True])
def test_a_message_is_stored_and_answered(store, wire, code, binary):
    text = properties({"KEYS": "k \u20ac", "WAIT": "true", "TAGS": "t", "own": "x", "CLUSTER": "c"})
    assert wire.give(frame(code, b"hello", i=text, j="2", f="1", binary=binary)) == []
    (answer,) = wire.answers()
    message = store.get("orders", 1, 0).messages[0]
    assert answer.fields == {
        "queueId": "1", "TRACE_ON": "true", "MSG_REGION": "Region \u20ac", "queueOffset": "0",
        "msgId": message.msg_id,
    }  # fmt: skip
    assert (answer.code, answer.opaque, answer.flag, answer.remark) == (0, 5, 1, None)
    assert message.properties == {
        "KEYS": "k \u20ac",
        "TAGS": "t",
        "own": "x",
        "CLUSTER": "DefaultCluster",
    }
    assert (message.raw_body, message.flag, message.sys_flag, message.reconsume_times) == (
        b"hello", 7, 1, 2,
    )  # fmt: skip
    assert (message.born_timestamp, message.born_host, message.store_host) == (
        1795190702924, BORN, HOST,
    )  # fmt: skip
    assert store.message(answer.fields["msgId"]).physical_offset == message.physical_offset


def test_escapes_are_those_of_java(store, wire):
    header = frame(i="?")[8:].replace(b'"?"', rb'"\u0041\u0001\ud83d\ude00\t\u0002B\u0001\ud83d"')
    header = header[: header.rindex(b"}") + 1]
    assert wire.give(oracle.framed(header, b"x")) == []
    found = store.get("orders", 1, 0).messages[0].properties
    assert found == {"A": "\U0001f600\t", "B": "?", "CLUSTER": "DefaultCluster"}


def test_oneway_is_not_answered(store, wire):
    assert wire.give(frame(flag=2) * 3 + frame()) == []
    assert len(wire.answers()) == 1
    assert store.get("orders", 1, 0).max_offset == 4


def test_a_negative_queue_is_picked(store, wire):
    assert wire.give(frame(e="-1") * 8) == []
    assert sorted(a.fields["queueId"] for a in wire.answers()) == sorted("0123" * 2)


@pytest.mark.parametrize(
    "changed",
    [
        {"b": "unknown"}, {"b": "%RETRY%g"}, {"b": "a/b"}, {"b": ""}, {"e": "4"}, {"e": "x"},
        {"e": "99999999999"}, {"f": "4"}, {"f": "8"}, {"f": "-1"}, {"g": ""}, {"h": "1.0"},
        {"a": None}, {"b": None}, {"c": None}, {"d": None}, {"d": "x"}, {"e": None}, {"f": None},
        {"g": None}, {"h": None}, {"m": "true"}, {"j": "z"}, {"i": "DELAY\x013"},
        {"i": "TRAN_MSG\x01true"}, {"i": "INNER_MULTI_DISPATCH\x01a,b"}, {"i": "a\x01b\x02a\x01c"},
        {"i": "INNER_MULTI_QUEUE_OFFSET\x010"}, {"i": "__CRC32#\x01123"},
        {"i": "k\x01" + "v" * 32766},
        {"i": "\x02".join(f"k{n}\x01v" for n in range(65))},
    ],
)  # fmt: skip
@pytest.mark.parametrize("binary", [False, True])
def test_what_is_not_plain_is_left_to_python(store, wire, changed, binary):
    good = frame(opaque=1)
    (left,) = wire.give(good + frame(binary=binary, opaque=9, **changed) + good)
    assert (left.code, left.body, left.opaque) == (310, b"body", 9)
    assert left.fields == {k: str(v) for k, v in fields(**changed).items()}
    assert [a.opaque for a in wire.answers()] == [1, 1]
    assert store.get("orders", 1, 0).max_offset == 2


def test_large_messages(store, wire):
    limit = store.config.max_message_size
    assert len(wire.give(frame(body=bytes(limit)))) == 1
    assert wire.give(frame(body=bytes(limit - 300))) == []
    assert wire.give(frame(i="k\x01" + "v" * 32700)) == []


def test_a_batch_is_one_run(store, wire):
    body = batch((b"one", "TAGS\x01a\x02WAIT\x01true"), (b"", ""), (b"three", "k\x01v\x02"))
    both = frame(320, body, m="true", i="UNIQ_KEY\x01z\x02WAIT\x01true")
    assert wire.give(frame() + both + frame()) == []
    answers = wire.answers()
    assert [a.fields["queueOffset"] for a in answers] == ["0", "1", "4"]
    found = store.get("orders", 1, 1, 3).messages
    assert answers[1].fields["msgId"] == ",".join(m.msg_id for m in found)
    assert [(m.body, m.flag) for m in found] == [(b"one", 3), (b"", 3), (b"three", 3)]
    assert [m.properties for m in found] == [
        {"TAGS": "a", "WAIT": "true", "CLUSTER": "DefaultCluster"},
        {"CLUSTER": "DefaultCluster"},
        {"k": "v", "CLUSTER": "DefaultCluster"},
    ]
    assert found[2].physical_offset == found[1].physical_offset + found[1].store_size


def test_a_batch_that_lies_is_left_to_python(store, wire):
    good = batch((b"one", "a\x01b"), (b"two", ""))
    for body in [b"", *(good[:cut] for cut in range(1, len(good)) if cut != 32)]:
        if body == good[: len(batch((b"one", "a\x01b")))]:
            continue
        assert [r.body for r in wire.give(frame(320, body, m="true"))] == [body]
    for at, value in [(16, -1), (16, 1 << 30), (16, 7)]:
        bad = good[:at] + struct.pack(">i", value) + good[at + 4 :]
        assert len(wire.give(frame(320, bad, m="true"))) == 1
    assert len(wire.give(frame(320, batch((b"x", "DELAY\x013")), m="true"))) == 1
    assert len(wire.give(frame(320, good, m="false"))) == 1
    assert len(wire.give(frame(320, batch(*[(bytes(100_000), "")] * 42), m="true"))) == 1
    assert store.get("orders", 1, 0).max_offset == 0


def test_many_in_one_read(store, wire):
    assert wire.give(b"".join(frame(opaque=n, e=n % 4) for n in range(5000))) == []
    answers = wire.answers()
    assert [a.opaque for a in answers] == list(range(5000))
    assert store.get("orders", 3, 0).max_offset == 1250
    assert wire.sends.counts()["orders"][0] == 5000
    assert wire.sends.counts()["orders"][1] == sum(
        m.store_size for q in range(4) for m in store.get("orders", q, 0, 5000).messages
    )


def test_topics_that_change(store, wire):
    wire.sends.set_topic("orders", 0)
    assert len(wire.give(frame())) == 1
    wire.sends.set_topic("orders", 2)
    assert wire.give(frame(e="1")) == []
    assert len(wire.give(frame(e="2"))) == 1


@pytest.mark.parametrize("queue", ["-1", "-2147483648", "0", "3"])
def test_a_topic_to_which_nobody_may_send_is_left_to_python(store, wire, queue):
    wire.sends.set_topic("orders", 0)
    assert len(wire.give(frame(e=queue) + frame(320, batch((b"x", "")), m="true", e=queue))) == 2
    wire.sends.set_topic("orders", 4)
    store.core.set_topic("orders", 0)  # producers see no queue
    assert len(wire.give(frame(e=queue))) == (1 if queue.startswith("-") else 0)
    assert store.get("orders", int(queue) if queue == "3" else 0, 0).max_offset == (
        0 if queue.startswith("-") else 1
    )


def test_a_store_that_refuses(store, wire):
    assert wire.give(frame()) == []
    store.core.pretend_disk_use(99, 99)
    left = wire.give(frame(opaque=1) + frame(opaque=2) + frame(opaque=3, b="other"))
    # The disk is looked at when a file is begun; until then messages are stored.
    assert [r.opaque for r in left][-1] == 3
    store.close()
    wire.answers()
    left = wire.give(frame(opaque=1) + frame(opaque=2) + frame(310, opaque=3))
    assert [r.opaque for r in left] == [1, 2, 3]
    assert wire.answers() == []


def test_ipv6(store):
    wire = Wire(store, "[2001:db8::1]:7", "[::1]:9")
    wire.sends.set_topic("orders", 4)
    wire.give(frame())
    message = store.get("orders", 1, 0).messages[0]
    assert (message.born_host, message.store_host) == ("[2001:db8::1]:7", "[::1]:9")
    assert wire.answers()[0].fields["msgId"] == message.msg_id
    with pytest.raises(ValueError, match="born_host"):
        wire.reader.set_hosts("nowhere", HOST)


def test_random_messages_are_those_of_the_slow_way(store, wire):
    """The same requests by ``_put_stored``, with the properties made by a dict."""
    draw = random.Random(3)
    names = ["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "CLUSTER", "a", "\u00e4", "x y", "", "W"]
    store.create_topic("slow", queue_nums=4)
    for number in range(400):
        mapping = {draw.choice(names): draw.choice(["", "v", "true", "\u20ac\U0001f600", '"\\'])
                   for _ in range(draw.randrange(6))}  # fmt: skip
        text = properties(mapping) + draw.choice(["", "\x02", "\x02junk\x02"])
        body = draw.randbytes(draw.choice([0, 1, 100, 5000]))
        queue, flag, sys_flag = draw.randrange(4), draw.randrange(-9, 9), draw.randrange(4)
        again, code = draw.choice([0, 3, -1]), draw.choice([10, 310])
        made = frame(code, body, i=text, e=queue, h=flag, f=sys_flag, j=again, g=number,
                     binary=draw.random() < 0.3)  # fmt: skip
        assert wire.give(made) == []
        kept = {k: v for k, v in mapping.items() if k and v and k != "WAIT"}
        kept["CLUSTER"] = "DefaultCluster"
        store.core.put_stored("slow", queue, body, properties(kept), flag=flag, sys_flag=sys_flag,
                          born_timestamp=number, born_host=BORN, store_host=HOST,
                          reconsume_times=again)  # fmt: skip
    assert len(wire.answers()) == 400
    for queue in range(4):
        hot = store.get("orders", queue, 0, 1000).messages
        slow = store.get("slow", queue, 0, 1000).messages
        assert len(hot) == len(slow) > 50
        for one, other in zip(hot, slow, strict=True):
            for name in ("properties", "raw_body", "flag", "sys_flag", "born_timestamp",
                         "born_host", "store_host", "reconsume_times", "queue_offset",
                         "prepared_transaction_offset", "body_crc"):  # fmt: skip
                assert getattr(one, name) == getattr(other, name), name


@pytest.mark.parametrize("checksum", [False, True])
def test_records_are_good_ones(tmp_path, checksum):
    config = rmqstore.StoreConfig(record_checksum=checksum)
    with rmqstore.open(tmp_path, "a", config=config) as store:
        store.create_topic("orders", queue_nums=4)
        wire = Wire(store)
        wire.sends.set_topic("orders", 4)
        wire.give(frame() + frame(320, batch((b"x", "a\x01b"), (b"y", "")), m="true"))
    with rmqstore.open(tmp_path, "r") as store:
        assert [m.body for m in store["orders"][1]] == [b"body", b"x", b"y"]
        assert store.core.verify() == (3, 3, [], [])


# ---- with a gateway


def asked(client, code=310, **changed):
    return client.send(code, fields(**changed), b"body")


def test_through_a_gateway():
    with serve(None) as server:
        server.store.create_topic("orders", queue_nums=4)
        with RemotingClient(server.address) as client:
            frame = client.answer(asked(client))
            assert frame.fields["queueOffset"] == "0"
            assert server.store.message(frame.fields["msgId"]).born_host == client.name
            assert server.gateway.sends.counts()["orders"][0] == 1
            server.store.delete_topic("orders")
            assert client.answer(asked(client, c="none")).code == 17
            server.store.create_topic("orders", queue_nums=1)
            assert client.answer(asked(client, e="0")).fields["queueOffset"] == "0"
            server.gateway.shared.hot_sends = False
            client.answer(asked(client, e="0"))
            assert server.gateway.sends.counts()["orders"][0] == 2


CHANGES = {
    "may not be written to": {"perm": 4},
    "neither": {"perm": 0},
    "may be written to": {"perm": 2},
    "no queues for producers": {"write_queue_nums": 0},
    "no queues for consumers": {"read_queue_nums": 0},
    "neither's queues": {"read_queue_nums": 0, "write_queue_nums": 0},
    "more for consumers": {"read_queue_nums": 8},
    "more for producers": {"write_queue_nums": 8},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("code", [310, 10, 320])
def test_a_changed_topic_is_the_same_either_way(change, code):
    """Plain sends by the core and by Python: the same answers, the same messages."""

    def by(hot: bool) -> list[object]:
        with serve(None) as server:
            server.store.create_topic("orders", queue_nums=4)
            server.gateway.shared.hot_sends = hot
            registry = server.store.registry
            registry.change({"orders": lambda there: replace(there, **CHANGES[change])})
            said: list[object] = []
            with RemotingClient(server.address) as client:
                for queue in ("-1", "0", "3", "4", "7", "8", "-2147483648"):
                    made = fields(e=queue, m="true" if code == 320 else "false")
                    if code == 10:
                        made = {LONG[k]: v for k, v in made.items()}
                    text = queue.encode()
                    body = batch((text, "a\x01b")) if code == 320 else text
                    answer = client.answer(client.send(code, made, body))
                    got = answer.fields or {}
                    picked = int(queue) < 0 and answer.code == 0
                    said.append((queue, answer.code, "" if picked else got.get("queueId"),
                                 (answer.remark or "").split(" Producer: ")[0]))  # fmt: skip
            stored = sorted((m.body, m.queue_id) for m in server.store.scan())
            said.append([(body, "" if body[:1] == b"-" else queue) for body, queue in stored])
            return said

    assert by(hot=True) == by(hot=False)


def test_the_core_leaves_a_topic_that_is_not_writable():
    """A broker takes what is sent to it all the same; clients do not find it in their routes."""
    with serve(None) as server:
        server.store.create_topic("orders", queue_nums=4)
        registry = server.store.registry
        counts = server.gateway.sends.counts
        with RemotingClient(server.address) as client:
            assert client.answer(asked(client, e="-1")).code == 0
            registry.change({"orders": lambda there: replace(there, perm=4)})
            for queue in ("-1", "-1", "0"):
                assert client.answer(asked(client, e=queue)).code == 0
            assert counts()["orders"][0] == 1
            registry.change({"orders": lambda there: replace(there, perm=6)})
            assert client.answer(asked(client, e="-1")).code == 0
            assert counts()["orders"][0] == 2


def sync_config(**changed):
    return rmqstore.StoreConfig(flush_disk_type="SYNC_FLUSH", **changed)


def test_sync_flush_answers_what_is_on_the_disk():
    with serve(None, config=sync_config()) as server:
        server.store.create_topic("orders", queue_nums=4)
        with RemotingClient(server.address) as client:
            for number in range(30):
                asked(client, e=str(number % 4))
            asked(client, i="WAIT\x01false")
            for opaque in range(1, 32):
                answer = client.answer(opaque)
                assert answer.code == 0
                offset = int(answer.fields["msgId"][-16:], 16)
                if opaque < 31:
                    assert server.store.stats()["flushed_position"] > offset


def test_many_clients_share_syncs():
    with serve(None, config=sync_config()) as server:
        server.store.create_topic("orders", queue_nums=4)
        before = server.store.stats()["commit_log_syncs"]

        def send():
            with RemotingClient(server.address) as client:
                for _ in range(10):
                    for opaque in [asked(client) for _ in range(20)]:
                        assert client.answer(opaque).code == 0

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        last = server.store.get("orders", 1, 799)  # waits for the dispatch
        assert last.max_offset == 800
        assert server.store.stats()["commit_log_syncs"] - before <= 200


def test_answers_with_another_code():
    wanted = oracle.split(with_code(oracle.encode(0, {"a": "b"}, b"", 5, 1, None) * 2, 10))
    assert [(r.code, r.fields, r.opaque) for r in wanted] == [(10, {"a": "b"}, 5)] * 2


def test_a_client_that_reads_nothing_is_not_read():
    with serve(None) as server:
        server.store.create_topic("orders", queue_nums=4)
        with RemotingClient(server.address) as slow, RemotingClient(server.address) as other:
            slow.socket.settimeout(0.5)
            data = frame() * 100_000
            with pytest.raises(TimeoutError):
                slow.socket.sendall(data)
            assert other.answer(asked(other)).code == 0
