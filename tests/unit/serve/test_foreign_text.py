"""What clients write comes into the log as one line each, and back to clients cut."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

import rmqstore
from rmqstore.serve.server import Server
from support.remoting import RemotingClient
from support.serving import heartbeat, wait_until

pytestmark = pytest.mark.pure

REPLY, PUSH, RUNNING_INFO = 325, 326, 307
SEND = {
    "a": "g", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "",
    "j": "0", "k": "false", "m": "false",
}  # fmt: skip
FORGED = "a\n2026-11-25 rmqstore: forged\r\x1b[2J\x9b\u202e\x00xxx"
HOSTILE = FORGED + "x" * 200_000


@pytest.fixture
def server(caplog: pytest.LogCaptureFixture) -> Iterator[Server]:
    caplog.set_level(logging.INFO, "rmqstore")
    with rmqstore.serve() as made:
        made.store.create_topic("t")
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def said(caplog: pytest.LogCaptureFixture, words: str) -> str:
    """The first line with some words; every line is printable and of a bounded length."""
    for one in caplog.messages:
        assert one.isprintable()
        assert len(one) < 5000
    return next(one for one in caplog.messages if words in one)


def test_a_client_id_and_a_remark(
    server: Server, client: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    with RemotingClient(server.address) as asker:
        assert asker.ask(34, None, heartbeat(FORGED, producers=["g"])).code == 0
        number = client.send(REPLY, {**SEND, "i": f"REPLY_TO_CLIENT\1{FORGED}\2"}, b"1")
        pushed = asker.next_request(PUSH)
        header = {
            "code": 1, "flag": 1, "language": "JAVA", "opaque": pushed.opaque, "version": 1,
            "serializeTypeCurrentRPC": "JSON", "remark": HOSTILE,
        }  # fmt: skip
        text = json.dumps(header).encode()
        total = (4 + len(text)).to_bytes(4, "big")
        asker.socket.sendall(total + len(text).to_bytes(4, "big") + text)
        answer = client.answer(number)
    line = said(caplog, "a reply is not taken by")
    assert line.count(r"a\n2026-11-25 rmqstore: forged\r\x1b[2J\x9b\u202e\x00xxx") == 2
    assert f"({len(HOSTILE)} characters)" in line
    assert answer.code == 1


def test_a_group_and_a_topic(
    server: Server, client: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    fields = {**SEND, "a": "g\nforged", "i": "TIMER_DELAY_SEC\x0130\2"}
    assert client.ask(310, fields, b"x").code == 0
    assert r"(g\nforged): a message to t" in said(caplog, "arbitrary delay")


def test_a_producer_group_that_nobody_is_of(
    server: Server, client: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    group = "g\nforged\x1b[2J"
    now = server.store.clock.now()
    fields = {**SEND, "a": group, "g": now, "f": "4", "i": f"TRAN_MSG\1true\2PGROUP\1{group}\2"}
    assert client.ask(310, fields, b"half").code == 0
    server.store.clock.advance(120)
    server.store.transaction_checks.check()
    wait_until(lambda: "no producer of group" in caplog.text)
    assert r"group g\nforged\x1b[2J can" in said(caplog, "no producer of group")


def test_an_error_of_a_handler(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """An error that repeats what was asked, with its traceback."""

    def fail(connection, request):
        raise ValueError(request.fields["text"])

    server.gateway.handlers[9999] = fail
    with RemotingClient(server.address) as client:
        answer = client.ask(9999, {"text": HOSTILE})
    assert answer.remark is not None
    assert len(answer.remark) < 1100
    (record,) = [one for one in caplog.records if one.exc_info]
    text = logging.Formatter("%(message)s").format(record)
    assert r"forged\r\x1b[2J\x9b\u202e\x00xxx" in text
    first, second, *lines = text.split("\n")
    assert (first, second) == ("request 9999 failed", "Traceback (most recent call last):")
    assert all(one.startswith("  ") and one.isprintable() for one in lines)
    assert len(text) < 10_000


def test_a_remark_repeats_no_long_text(server: Server, client: RemotingClient) -> None:
    topic = "%DLQ%" + "y" * 5000
    answer = client.ask(310, {**SEND, "a": HOSTILE, "b": topic})
    assert answer.code != 0
    assert answer.remark is not None
    assert len(answer.remark) < 1200


def test_what_a_callback_raises(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError(HOSTILE)

    server.gateway.work.loop.call_soon_threadsafe(fail)
    wait_until(lambda: any(one.exc_info for one in caplog.records))
    (record,) = [one for one in caplog.records if one.exc_info]
    assert record.name == "rmqstore.serve"
    assert record.getMessage().isprintable()
    assert len(record.getMessage()) < 5000
    assert record.exc_text is not None
    assert all(
        one.startswith("  ") and one.isprintable() for one in record.exc_text.split("\n")[1:]
    )
