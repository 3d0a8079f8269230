"""SYNC_FLUSH: what is answered when the disk is late or fails, on both ways of a send."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import rmqstore
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Settings
from support.remoting import Frame, RemotingClient
from support.serving import wait_until

FLUSH_DISK_TIMEOUT, NOT_AVAILABLE = 10, 14
SEND = {"a": "p", "b": "orders", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0,
        "j": 0, "k": "false", "m": "false"}  # fmt: skip


class SlowDisk:
    """The wake-up of the log, which says that the disk has nothing yet, or that it has failed."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.slow = True
        self.failed = False

    def reached(self, wanted: int) -> int:
        reached = self.real.reached(wanted)
        if self.failed:
            return -1
        return min(reached, 0) if self.slow else reached

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class Slow:
    """A server whose disk is slow, and a client."""

    def __init__(self, server: Server, client: RemotingClient) -> None:
        self.server = server
        self.client = client
        log_wakeup = server.store.core.log_wakeup
        self.disk = SlowDisk(log_wakeup())
        server.store.core.log_wakeup = lambda: self.disk  # type: ignore[method-assign,assignment]

    def send(self, **properties: str) -> int:
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        return self.client.send(310, {**SEND, "i": text}, b"body")

    def wait_until_held(self, count: int) -> None:
        """Wait until so many sends wait; plain ones that came with one read wait together."""
        durable = self.server.gateway.durable
        if self.server.gateway.shared.hot_sends:
            store = self.server.store
            wait_until(lambda: self.server.in_loop(lambda: len(store["orders"][0])) == count)
            assert self.server.in_loop(lambda: len(durable._heap))
        else:
            wait_until(lambda: self.server.in_loop(lambda: len(durable._heap)) == count)


@pytest.fixture(params=["hot", "handler"])
def hot(request: pytest.FixtureRequest) -> bool:
    return request.param == "hot"


@pytest.fixture(params=[60_000])
def slow(request: pytest.FixtureRequest, hot: bool) -> Iterator[Slow]:
    config = rmqstore.StoreConfig.small(
        flush_disk_type="SYNC_FLUSH", sync_flush_timeout=request.param
    )
    server = Server(None, Settings(), config)
    try:
        server.store.create_topic("orders", queue_nums=1)
        server.gateway.shared.hot_sends = hot
        with RemotingClient(server.address) as client:
            yield Slow(server, client)
    finally:
        with suppress(rmqstore.StoreFailedError):  # which is the test's doing
            server.close()


def place(answer: Frame) -> str:
    assert answer.fields is not None
    return answer.fields["queueOffset"]


@pytest.mark.parametrize("slow", [100], indirect=True)  # ms
def test_a_disk_that_is_late(slow: Slow) -> None:
    """The message is there all the same, and the answer says where."""
    answer = slow.client.answer(slow.send())
    assert (answer.code, place(answer)) == (FLUSH_DISK_TIMEOUT, "0")
    slow.disk.slow = False
    slow.server.gateway.durable._timeout = 60.0  # in which the real disk is not late
    answer = slow.client.answer(slow.send())
    assert (answer.code, place(answer)) == (0, "1")
    assert len(slow.server.store["orders"][0]) == 2


def test_a_disk_that_fails(slow: Slow) -> None:
    sent = [slow.send() for _ in range(3)]
    slow.wait_until_held(3)
    slow.disk.failed = True
    slow.server.store.core.set_failed(errno.EIO, "commitlog", "cannot be forced to the disk")
    slow.server.in_loop(slow.server.gateway.durable._woken)  # as the core does for who waits
    assert [slow.client.answer(one).code for one in sent] == [NOT_AVAILABLE] * 3
    assert slow.client.answer(slow.send()).code == NOT_AVAILABLE  # which comes after


def test_who_does_not_wait_is_answered_at_once(slow: Slow) -> None:
    waits = slow.send(WAIT="true")
    slow.wait_until_held(1)
    for number in range(1, 4):
        answer = slow.client.answer(slow.send(WAIT="false"))
        assert (answer.code, place(answer)) == (0, str(number))
    assert slow.client.is_quiet(0.05)
    slow.disk.slow = False
    slow.server.in_loop(slow.server.gateway.durable.ask)
    assert place(slow.client.answer(waits)) == "0"


def test_a_stop_answers_what_waits_for_the_disk(slow: Slow) -> None:
    """It forces the log to the disk before."""
    sent = slow.send()
    slow.wait_until_held(1)
    flush = slow.server.store.core.flush_log
    flushed = threading.Event()

    def flush_log() -> int:
        done = flush()
        flushed.set()
        slow.disk.slow = False
        return done

    slow.server.store.core.flush_log = flush_log  # type: ignore[method-assign]
    slow.server.close()
    assert flushed.is_set()
    answer = slow.client.answer(sent)
    assert (answer.code, place(answer)) == (0, "0")


def test_answers_for_who_is_gone_are_not_kept(slow: Slow) -> None:
    """Clients that come and go would otherwise leave as much as they like."""
    gateway = slow.server.gateway
    for _ in range(3):
        with RemotingClient(slow.server.address) as gone:
            gone.send(310, {**SEND, "i": ""}, b"body")
            wait_until(lambda: slow.server.in_loop(lambda: gateway.connections.unanswered) > 100)
        wait_until(lambda: slow.server.in_loop(lambda: gateway.connections.unanswered) == 0)
    sent = slow.send()
    wait_until(lambda: slow.server.in_loop(lambda: gateway.connections.unanswered) > 100)
    slow.disk.slow = False
    slow.server.in_loop(gateway.durable.ask)
    assert place(slow.client.answer(sent)) == "3"
    assert slow.server.in_loop(lambda: gateway.connections.unanswered) == 0
    assert len(slow.server.store["orders"][0]) == 4
