"""What no client sends: it is answered or the connection closed, and the others do not notice."""

from __future__ import annotations

import json
import logging
import os
import random
import select
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.serve.server import Server
from rmqstore.serve.wire.codes import RequestCode
from support.remoting import RemotingClient

SMALL = rmqstore.StoreConfig.small()
ROUTE = {"topic": "TBW102"}
SEND = {"a": "p", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
        "i": "", "j": "0", "k": "false", "m": "false"}  # fmt: skip
DEEP = 100_000


@pytest.fixture
def server(caplog: pytest.LogCaptureFixture) -> Iterator[Server]:
    """Serve; afterwards no error must have been logged that nobody has handled."""
    caplog.set_level(logging.WARNING)
    with rmqstore.serve(config=SMALL) as server:
        server.store.create_topic("orders", queue_nums=4)
        yield server
    bad = [one for one in caplog.records if one.exc_info or one.levelno >= logging.ERROR]
    assert not bad, [(one.getMessage(), one.exc_info) for one in bad]


@pytest.fixture
def other(server: Server) -> Iterator[RemotingClient]:
    """Another client, which must still be served afterwards."""
    with RemotingClient(server.address) as other:
        assert is_served(other)
        yield other
        assert is_served(other)
        assert other.ask(RequestCode.SEND_MESSAGE_V2, {**SEND}, b"later").code == 0


def is_served(client: RemotingClient) -> bool:
    return client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, ROUTE).code == 0


def framed(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    mark = kind << 24 | len(header)
    return struct.pack(">iI", 4 + len(header) + len(body), mark) + header + body


def header_of(code: object, fields: object = None, **others: object) -> bytes:
    named = {"code": code, "flag": 0, "language": "JAVA", "opaque": 5, "version": 399}
    return json.dumps({**named, "extFields": fields or {}, **others}).encode()


def read_to_the_end(client: RemotingClient) -> bytes:
    """Return what comes until the server closes the connection."""
    data = bytearray()
    client.socket.settimeout(60)
    try:
        while more := client.socket.recv(1 << 16):
            data += more
    except ConnectionError:
        pass
    return bytes(data)


GOOD = header_of(105, ROUTE)


NO_FRAMES = [
    struct.pack(">i", (16 << 20) + 1),
    struct.pack(">i", (1 << 31) - 1),
    struct.pack(">i", -1),
    struct.pack(">i", -(1 << 31)),
    struct.pack(">i", 0),
    struct.pack(">i", 3),
    struct.pack(">iI", 100, 97) + b"{" * 96,
    struct.pack(">iI", 16, 0xFFFFFF) + bytes(12),
    struct.pack(">iI", 1 << 20, (256 << 10) + 1),
    struct.pack(">iI", 16, 2 << 24 | 4) + bytes(12),
    struct.pack(">iI", 16, 0xFF << 24 | 4) + bytes(12),
    struct.pack(">iI", 4 + len(GOOD), len(GOOD) - 1) + GOOD,
    framed(b""),
    framed(b"\xff\xfe" * 10),
    framed(b'{"code":105'),
    framed(b"[1,2]"),
    framed(b'{"code":105}}'),
    framed(b'{"x":' * (DEEP // 4) + b"1" + b"}" * (DEEP // 4)),
    framed(b'{"x":' + b"[" * DEEP + b"]" * DEEP + b"}"),
    framed(b"[" * DEEP),
    framed(bytes(20), b"", 1),
    framed(struct.pack(">hbhiii", 105, 0, 399, 1, 0, 1 << 30) + bytes(8), b"", 1),
    framed(header_of(105, ROUTE, language=[])),
    framed(header_of(105, ROUTE, language={})),
    framed(struct.pack(">hbhiiiih", 105, 0, 399, 1, 0, 0, 9, 30_000) + bytes(7), b"", 1),
]


def test_no_frames(server: Server, other: RemotingClient) -> None:
    for data in NO_FRAMES:
        with RemotingClient(server.address) as client:
            client.socket.sendall(data)
            whole = len(data) >= 4 and data[:4] == struct.pack(">i", len(data) - 4)
            if not whole:
                with suppress(OSError):  # closed meanwhile
                    client.socket.shutdown(socket.SHUT_WR)
            assert b'"code":0' not in read_to_the_end(client), data[:40]
            assert is_served(other)


def test_a_frame_before_bad_ones_is_answered(server: Server, other: RemotingClient) -> None:
    with RemotingClient(server.address) as client:
        client.socket.sendall(framed(GOOD) * 3 + b"\xff" * 100)
        assert read_to_the_end(client).count(b'"code":0') == 3


def test_cut_frames(server: Server, other: RemotingClient) -> None:
    data = framed(json.dumps({"code": 310, "opaque": 1, "extFields": SEND}).encode(), b"cut")
    for cut in range(0, len(data), 3):
        with RemotingClient(server.address) as client:
            client.socket.sendall(data[:cut])
    assert is_served(other)
    assert server.store.get("orders", 0, 0).messages == []


def test_deep_bodies(server: Server, other: RemotingClient) -> None:
    bodies = (
        b"[" * DEEP, b"[" * DEEP + b"]" * DEEP, b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        b'{"consumerDataSet":' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"clientID":' + b"9" * DEEP + b"}",
    )  # fmt: skip
    codes = (34, 46, 41, 42, 200, 222)
    for code in codes:
        for body in bodies:
            answer = other.ask(code, {"topic": "orders", "group": "g", "timestamp": 0}, body)
            assert answer.code != 0 or code == 222, (code, body[:30])
            assert len(answer.remark or "") < 1000


def test_numbers_as_text_and_text_as_numbers(server: Server, other: RemotingClient) -> None:
    with RemotingClient(server.address) as client:
        client.socket.sendall(
            framed(header_of("105", ROUTE, opaque="5", flag="0", version="399", language=3))
        )
        assert client.answer(5).code == 0
        for code, wrong in (
            (310, {"e": "x"}), (310, {"d": "1.5"}), (310, {"g": "9" * 30}), (310, {"j": ""}),
            (310, {"f": "0x10"}), (310, {"h": "--1"}), (310, {"e": " 1"}), (310, {"g": "\u0663"}),
        ):  # fmt: skip
            answer = client.ask(code, {**SEND, **wrong}, b"x")
            assert answer.code == 1, (wrong, answer.remark)
            assert answer.remark
        numbers = {**SEND, "b": 12345, "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "j": 0}
        assert client.ask(310, numbers, b"x").code == 0
        assert server.store.get("12345", 0, 0).messages[0].body == b"x"
        for code in (11, 14, 15, 29, 30, 31, 32, 33, 12, 36, 37):
            wrong = dict.fromkeys(
                ("queueId", "queueOffset", "offset", "commitOffset", "timestamp", "maxNum",
                 "maxMsgNums", "sysFlag", "delayLevel", "commitLogOffset", "beginTimestamp"),
                "one",
            )  # fmt: skip
            names = {"topic": "orders", "group": "g", "consumerGroup": "g", "key": "k"}
            assert client.ask(code, {**names, **wrong}).code == 1


def test_unknown_codes(server: Server, other: RemotingClient) -> None:
    for code in (0, 1, 9, 47, 103, 104, 999, 32767, -1, -(1 << 31), (1 << 31) - 1):
        answer = other.ask(code, {"topic": "orders"}, b"x")
        assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


def test_unknown_languages(server: Server, other: RemotingClient) -> None:
    languages: list[Any] = ["RUST", "", "\u00e9", "x" * 1000, 99, -1, None]
    for language in languages:
        assert other.ask(105, ROUTE, language=language).code == 0
        assert other.ask(34, None, b'{"clientID":"c"}', language=language).code == 0


def test_oneway_of_codes_that_answer(server: Server, other: RemotingClient) -> None:
    """Not even an error is answered."""
    codes = [code for code in RequestCode if code != RequestCode.PULL_MESSAGE]
    for code in (*codes, 999):
        other.tell(code, {"topic": "none", "group": "g", "consumerGroup": "g"}, b"{}")
        other.tell(code)
    assert is_served(other)
    assert other._answers == {}
    assert all(one.code == 40 for one in other.pushed)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is not told")
@pytest.mark.slow  # a sanitizer keeps what is freed
def test_who_does_not_read_costs_little(server: Server, other: RemotingClient) -> None:
    size = len(other.ask(RequestCode.GET_BROKER_CONFIG).body)
    asked = framed(header_of(int(RequestCode.GET_BROKER_CONFIG)))
    requests = asked * ((1 << 30) // size)
    before = resident()
    with RemotingClient(server.address) as slow:
        slow.socket.setblocking(False)
        sent = 0
        # Until the server takes no more: of a gigabyte of answers none is read.
        while sent < len(requests) and select.select([], [slow.socket], [], 1.0)[1]:
            sent += slow.socket.send(memoryview(requests)[sent : sent + (1 << 16)])
            assert resident() - before < 64 << 20
        assert sent < len(requests)
        assert resident() - before < 64 << 20
        assert is_served(other)


def batch_of(bodies: list[bytes]) -> bytes:
    return b"".join(
        struct.pack(">iiiii", 22 + len(one), 0, 0, 0, len(one)) + one + bytes(2) for one in bodies
    )


def test_half_a_batch(
    server: Server, other: RemotingClient, wait_until: Callable[..., None]
) -> None:
    batch = batch_of([b"first", b"second"])
    fields = {**SEND, "m": "true"}
    for cut in range(1, len(batch)):
        if cut == len(batch_of([b"first"])):
            continue  # a batch of one
        answer = other.ask(320, fields, batch[:cut])
        assert answer.code != 0, cut
    for at in (16, 25):  # the lengths of the body and of the properties
        for value in (-1, 1 << 30, (1 << 31) - 1, 0):
            wrong = batch[:at] + struct.pack(">i", value) + batch[at + 4 :]
            if wrong != batch:
                assert other.ask(320, fields, wrong).code != 0, (at, value)
    assert server.store.get("orders", 0, 0).messages == []
    assert other.ask(320, fields, batch).code == 0
    wait_until(lambda: len(server.store.get("orders", 0, 0).messages) == 2)


def test_tls_on_a_plain_port(server: Server, other: RemotingClient) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host, port = server.address.split(":")
    with (
        socket.create_connection((host, int(port)), 60) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(plain)


VALUES = (
    "", "0", "-1", "1", "2147483647", "-2147483648", "9223372036854775807",
    "-9223372036854775808", "99999999999999999999", "1.5", "NaN", "true", "x" * 2000, "\x00",
    "a\x01b\x02c", "\ud800", "../../x", "%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "TBW102",
    "RMQ_SYS_TRANS_HALF_TOPIC", "SQL92", "a > 1 and", "F" * 32, 5, -7, 1e300, True, None, [], {},
)  # fmt: skip


def seeds() -> list[bytes]:
    """Return good frames of all codes but those that take away the right to write."""
    fields = {
        **SEND, **ROUTE, "producerGroup": "p", "topic": "orders", "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1",
        "flag": "0", "properties": "KEYS\x01k\x02", "i": "TAGS\x01a\x02KEYS\x01k\x02",
        "reconsumeTimes": "0", "unitMode": "false", "batch": "false", "consumerGroup": "g",
        "group": "g", "queueOffset": "0", "maxMsgNums": "32", "commitOffset": "0",
        "suspendTimeoutMillis": "5", "subscription": "a || b", "subVersion": "1", "offset": "0",
        "expressionType": "TAG", "delayLevel": "1", "timestamp": "0", "key": "k", "maxNum": "9",
        "beginTimestamp": "0", "endTimestamp": "9999999999999", "tranStateTableOffset": "0",
        "commitLogOffset": "0", "commitOrRollback": "8", "fromTransactionCheck": "false",
        "msgId": "7F00000100002A9F0000000000000000", "transactionId": "t", "clientId": "c",
        "namespace": "n", "value": "v", "isForce": "true", "isC": "false", "readQueueNums": "4",
        "writeQueueNums": "4", "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
        "order": "false", "index": "0", "count": "5", "srcGroup": "g", "destGroup": "h",
        "statsName": "TOPIC_PUT_NUMS", "statsKey": "orders", "compareGroup": "h",
    }  # fmt: skip
    subscription = {"topic": "orders", "subString": "a || b", "subVersion": 1,
                    "expressionType": "TAG", "tagsSet": ["a"], "codeSet": [97]}  # fmt: skip
    body = json.dumps({
        "clientID": "c", "clientId": "c", "consumerGroup": "g", "group": "g",
        "producerDataSet": [{"groupName": "p"}], "subscriptionData": subscription,
        "consumerDataSet": [{
            "groupName": "g", "subscriptionDataSet": [subscription], "consumeType": 1,
            "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        }],
        "mqSet": [{"brokerName": "broker-a", "queueId": 0, "topic": "orders"}],
        "groupName": "g", "retryQueueNums": 1, "topic": "orders",
    }).encode()  # fmt: skip
    frames = []
    for code in RequestCode:
        if code in (RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.DELETE_TOPIC_IN_BROKER,
                    RequestCode.UPDATE_AND_CREATE_TOPIC):  # fmt: skip
            continue
        data = batch_of([b"1", b"22"]) if code == RequestCode.SEND_BATCH_MESSAGE else body
        frames.append(framed(header_of(int(code), fields), data))
        binary = struct.pack(">hbhiii", code, 0, 399, 5, 0, 0)
        pairs = b"".join(
            struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(value.encode()))
            + value.encode()
            for name, value in fields.items()
        )  # fmt: skip
        frames.append(framed(binary + struct.pack(">i", len(pairs)) + pairs, data, 1))
    return frames


def changed(draw: random.Random, text: bytes) -> bytes:
    """Return bytes of which some are others, gone, or twice."""
    data = bytearray(text)
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(data) + 1)
        kind = draw.randrange(5)
        if kind == 0:
            data[at : at + 1] = bytes([draw.randrange(256)])
        elif kind == 1:
            data[at : at + 1] = draw.choice(b'"\\{}[],:-0129u\x00\xed\xff').to_bytes(1, "big")
        elif kind == 2:
            del data[at : at + draw.randrange(1, 9)]
        elif kind == 3:
            data[at:at] = data[at : at + draw.randrange(1, 30)]
        else:
            digits = [place for place, byte in enumerate(data) if 0x30 <= byte <= 0x39]
            if digits:
                data[draw.choice(digits)] = draw.choice(b"0123456789-")
    return bytes(data)


def mutated(draw: random.Random, frame: bytes) -> bytes:
    """Return a frame that is changed: a field's value, the body, the header, or any bytes."""
    length = int.from_bytes(frame[5:8], "big")
    header, body = frame[8 : 8 + length], frame[8 + length :]
    kind = draw.random()
    if kind < 0.5 and frame[4] == 0:
        fields = json.loads(header)["extFields"]
        for name in draw.sample(sorted(fields), draw.randrange(1, 5)):
            if draw.random() < 0.2:
                del fields[name]
            else:
                fields[name] = draw.choice(VALUES)
        header = header_of(json.loads(header)["code"], fields)
    elif kind < 0.75:
        body = changed(draw, body)
    elif kind < 0.95:
        header = changed(draw, header)
    else:
        return changed(draw, frame)
    return framed(header, body, frame[4])


def test_mutated_frames(
    server: Server, other: RemotingClient, wait_until: Callable[..., None]
) -> None:
    draw = random.Random(int(os.environ.get("RMQSTORE_FRAMES_SEED", "14")))
    frames = seeds()
    answered = 0
    frames_sent = int(os.environ.get("RMQSTORE_FRAMES", "4000"))
    for number in range(frames_sent // 4):
        with RemotingClient(server.address) as client:
            try:
                client.socket.sendall(
                    b"".join(mutated(draw, draw.choice(frames)) for _ in range(4))
                )
                client.socket.shutdown(socket.SHUT_WR)
            except OSError:  # closed meanwhile
                pass
            answered += read_to_the_end(client).count(b'"code":')
        if number % 25 == 0:
            assert is_served(other)
    assert answered > frames_sent // 4  # the others end their connections
    done = other.ask(RequestCode.SEND_MESSAGE_V2, {**SEND, "b": "afterwards"}, b"seen")
    assert done.code == 0, done.remark
    wait_until(lambda: server.store.get("afterwards", 0, 0).messages)


@pytest.mark.parametrize(
    ("begin", "says"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP is not spoken here; the page and"),
        (b"POST /x HTTP/1.1\r\n", "HTTP is not spoken here"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "a handshake of TLS, for which there is no certificate"),
        (b"GOT / HTTP/1.1\r\n", "a frame of 1196381216"),
    ],
)
def test_other_protocols(server, other, caplog, begin, says):
    with RemotingClient(server.address) as client:
        client.socket.sendall(begin)
        assert client.socket.recv(1) == b""
    assert f"closed: {says}" in caplog.text
