"""What is delivered later wakes the pulls that wait for it: delays, retries, commits."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.settings import Settings
from support.remoting import Frame, RemotingClient
from support.serving import on_loop, wait_until

PULL, BACK, END = 11, 36, 37


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(None, Settings(), StoreConfig.small()) as made:
        made.store.create_topic("t", 1)
        made.store.create_topic("%RETRY%g", 1)
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def hold(server: Server, client: RemotingClient, topic: str) -> int:
    """Pull what is not there yet, and wait until it is held."""
    sent = client.send(PULL, {
        "consumerGroup": "g", "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32,
        "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 60_000, "subscription": "*",
        "subVersion": 0,
    })  # fmt: skip
    wait_until(lambda: on_loop(server, lambda gateway: len(gateway.holds)) == 1)
    return sent


def only(answer: Frame) -> rmqstore.Message:
    assert (answer.code, answer.remark) == (0, "FOUND")
    assert int.from_bytes(answer.body[:4], "big") == len(answer.body)
    return rmqstore.decode_record(answer.body)


def test_a_delayed_message(server: Server, client: RemotingClient) -> None:
    """It is there a second later, not before."""
    held = hold(server, client, "t")
    began = time.monotonic()
    server.store.put("t", b"later", delay_level=1)
    message = only(client.answer(held))
    assert time.monotonic() - began > 0.99  # its time is a whole millisecond
    assert (message.body, message.properties["DELAY"]) == (b"later", "1")


def test_the_clock_is_moved(server: Server, client: RemotingClient) -> None:
    held = hold(server, client, "t")
    server.store.put("t", b"much later", delay_level=18)
    assert client.is_quiet(0.1)
    server.store.clock.advance(7200)
    assert only(client.answer(held)).body == b"much later"


def test_a_message_given_back(server: Server, client: RemotingClient) -> None:
    held = hold(server, client, "%RETRY%g")
    put = server.store.put("t", b"again")
    fields = {"offset": put.physical_offset, "group": "g", "delayLevel": 0}
    assert client.ask(BACK, fields).code == 0
    assert client.is_quiet(0.1)
    server.store.clock.advance(10)
    message = only(client.answer(held))
    assert (message.topic, message.reconsume_times) == ("%RETRY%g", 1)
    assert message.properties["RETRY_TOPIC"] == "t"


def test_a_transaction_that_is_committed(server: Server, client: RemotingClient) -> None:
    held = hold(server, client, "t")
    half = server.store.transactions.put_half(
        "t", 0, b"committed", {"PGROUP": "p", "TRAN_MSG": "true"}
    )
    assert client.is_quiet(0.1)
    fields = {
        "producerGroup": "p", "tranStateTableOffset": half.queue_offset, "msgId": "x",
        "commitLogOffset": half.physical_offset, "commitOrRollback": 8,
    }  # fmt: skip
    client.tell(END, fields)
    assert only(client.answer(held)).sys_flag == 8
