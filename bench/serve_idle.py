"""``rmqstore serve`` alone: idle consumers, how soon a message arrives, start and stop.

    PYTHONPATH=bench:tests python bench/serve_idle.py [--consumers 1000] [--only TEXT]

The consumers are of this process, a connection each, and ask for what a Java push consumer asks for
while nothing comes: two pulls that are held for 15 s, its offset every 5 s, the list of its group
every 20 s, routes and a heartbeat every 30 s. Each is a group of its own.

The exit code is 1 where a goal is missed; the goals are for a thousand consumers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from serve.killed import ServeProcess, free_port
from versus_serve import resident, seconds_of_processor

TOPIC = "idle"
PULL_SECONDS = 15.0
CORE = 0.02  # goals: of a core, of a thousand idle consumers
MEMORY = 50  # MB of its own, with them
ARRIVAL = 1000.0  # us, p99
START, STOP = 150.0, 100.0  # ms, medians


def judged(name: str, value: float, goal: float, text: str) -> bool:
    """Print a figure beside its goal, an upper bound; return whether it is reached."""
    met = value < goal
    print(
        f"{name}: {text.format(value)} (goal: below {text.format(goal)}){'' if met else ' MISSED'}"
    )
    return met


class IdleConsumer(asyncio.Protocol):
    """An idle push consumer."""

    def __init__(self, number: int) -> None:
        self.group = f"group-{number}"
        self.retry = f"%RETRY%{self.group}"
        self.opaque = 0
        self.pulls: dict[int, str] = {}
        self.transport: asyncio.Transport | None = None
        self.received = bytearray()
        self.offsets = {TOPIC: 0, self.retry: 0}
        self.answers = 0
        self.found = 0
        self.refused = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Pull again after an answer."""
        received = self.received
        received += data
        while len(received) >= 8:
            total, length = struct.unpack_from(">ii", received)
            if len(received) < 4 + total:
                return
            header = json.loads(received[8 : 8 + length])
            del received[: 4 + total]
            self.answers += header["flag"] & 1
            topic = self.pulls.pop(header["opaque"], None) if header["flag"] & 1 else None
            if topic is not None:
                self.found += header["code"] == 0
                self.refused += header["code"] not in (0, 19, 20)
                fields = header.get("extFields", {})
                self.offsets[topic] = int(fields.get("nextBeginOffset", 0))
                self.pull(topic)

    def send(
        self, code: int, fields: dict[str, str] | None, body: bytes = b"", flag: int = 0
    ) -> int:
        """Send a request."""
        self.opaque += 1
        header: dict[str, object] = {"code": code}
        if fields is not None:
            header["extFields"] = fields
        header |= {
            "flag": flag, "language": "JAVA", "opaque": self.opaque,
            "serializeTypeCurrentRPC": "JSON", "version": 399,
        }  # fmt: skip
        text = json.dumps(header, separators=(",", ":")).encode()
        assert self.transport is not None
        self.transport.write(struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body)
        return self.opaque

    def pull(self, topic: str) -> None:
        """Pull, and be held."""
        number = self.send(11, {
            "consumerGroup": self.group, "topic": topic, "queueId": "0",
            "queueOffset": str(self.offsets[topic]), "maxMsgNums": "32", "sysFlag": "2",
            "commitOffset": "0", "suspendTimeoutMillis": str(int(PULL_SECONDS * 1000)),
            "subVersion": "1", "expressionType": "TAG",
        })  # fmt: skip
        self.pulls[number] = topic

    def heartbeat(self) -> None:
        """Send a heartbeat."""
        subscriptions = [
            {"classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*",
             "subVersion": 1, "tagsSet": [], "topic": topic}
            for topic in self.offsets
        ]  # fmt: skip
        consumer = {
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "consumeType": "CONSUME_PASSIVELY",
            "groupName": self.group, "messageModel": "CLUSTERING",
            "subscriptionDataSet": subscriptions, "unitMode": False,
        }  # fmt: skip
        body = {
            "clientID": f"127.0.0.1@{self.group}", "consumerDataSet": [consumer],
            "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}],
        }  # fmt: skip
        self.send(34, None, json.dumps(body).encode())

    def routes(self) -> None:
        """Ask for the routes of its topics."""
        for topic in self.offsets:
            self.send(105, {"topic": topic})

    def keep_offsets(self) -> None:
        """Commit an offset, oneway."""
        for topic, offset in self.offsets.items():
            fields = {"consumerGroup": self.group, "topic": topic, "queueId": "0",
                      "commitOffset": str(offset)}  # fmt: skip
            self.send(15, fields, flag=2)

    def members(self) -> None:
        """Ask for the members of its group."""
        for _ in self.offsets:
            self.send(38, {"consumerGroup": self.group})

    def put(self) -> None:
        """Send a message to the topic."""
        self.send(310, {
            "a": "p", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0",
            "g": str(int(time.time() * 1000)), "h": "0", "i": "WAIT\1true", "j": "0", "k": "false",
            "m": "false",
        }, b"x" * 1024)  # fmt: skip


async def connect(server: ServeProcess, number: int) -> IdleConsumer:
    """Connect a consumer."""
    loop = asyncio.get_running_loop()
    _, made = await loop.create_connection(lambda: IdleConsumer(number), "127.0.0.1", server.port)
    return made


class Blocking(asyncio.Transport):
    """Writing side of a blocking socket."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__()
        self.socket = connected

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send it all."""
        self.socket.sendall(data)


@contextmanager
def connected(server: ServeProcess, consumer: IdleConsumer) -> Iterator[socket.socket]:
    """Connect a consumer with a blocking socket."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as made:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        consumer.connection_made(Blocking(made))
        yield made


async def make_topic(server: ServeProcess) -> None:
    """Create the topic by a first message."""
    producer = await connect(server, -1)
    producer.put()
    while not producer.answers:
        await asyncio.sleep(0.01)
    assert producer.transport is not None
    producer.transport.close()


async def repeat(seconds: float, act: Callable[[], None]) -> None:
    """Act again and again, beginning at any time of the first turn."""
    await asyncio.sleep(random.uniform(0, seconds))
    while True:
        act()
        await asyncio.sleep(seconds)


async def idle(server: ServeProcess, count: int, seconds: float) -> bool:
    """Measure a server's use for idle consumers; return whether the goals are met."""
    loop = asyncio.get_running_loop()
    await make_topic(server)
    before = resident(server.process.pid)
    tasks: list[asyncio.Task[None]] = []
    consumers: list[IdleConsumer] = []
    for number in range(count):
        one = await connect(server, number)
        consumers.append(one)
        one.heartbeat()
        for every, act in (
            (30, one.heartbeat), (30, one.routes), (5, one.keep_offsets), (20, one.members),
        ):  # fmt: skip
            tasks.append(loop.create_task(repeat(every, act)))
        loop.call_later(random.uniform(2, PULL_SECONDS), one.pull, TOPIC)
        loop.call_later(random.uniform(2, PULL_SECONDS), one.pull, one.retry)
        await asyncio.sleep(0.002)
    await asyncio.sleep(PULL_SECONDS + 2)
    used = seconds_of_processor(server.process.pid)
    began = time.monotonic()
    await asyncio.sleep(seconds)
    used = seconds_of_processor(server.process.pid) - used
    share = used / (time.monotonic() - began)
    after = resident(server.process.pid)
    assert not sum(one.refused for one in consumers), "pulls were refused"
    who = f"{count:,} idle push consumers"
    met = [
        judged(f"{who}, of a core", share, CORE, "{:.2%}"),
        judged(f"{who}, memory of its own", after / 1e6, MEMORY, "{:.1f} MB"),
    ]
    print(f"memory of its own before them: {before / 1e6:.1f} MB")
    for task in tasks:
        task.cancel()
    for one in consumers:
        assert one.transport is not None
        one.transport.close()
    return all(met)


async def arrival(server: ServeProcess, count: int, _seconds: float) -> bool:
    """Measure the latency from a send to a waiting consumer on another connection.

    With sockets that block: a client that asks again and again whether something has come keeps
    the processor from the server, and would measure how the kernel shares it out.
    """
    await make_topic(server)
    consumer, producer = IdleConsumer(0), IdleConsumer(1)
    with connected(server, consumer) as waiting, connected(server, producer) as sending:
        consumer.heartbeat()
        consumer.pull(TOPIC)
        took: list[float] = []
        for wanted in range(1, 2 * max(count, 100)):
            if wanted > 1:  # the first message was there
                time.sleep(0.003)
                began = time.perf_counter()
                producer.put()
            while consumer.found < wanted:
                consumer.data_received(waiting.recv(1 << 16))
            if wanted > 1:
                took.append(time.perf_counter() - began)
            while producer.answers < wanted - 1:
                producer.data_received(sending.recv(1 << 16))
    took.sort()
    p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
    print(f"a message at a waiting consumer, p50: {p50 * 1e6:,.0f} us")
    return judged("a message at a waiting consumer, p99", p99 * 1e6, ARRIVAL, "{:,.0f} us")


def lifetimes(scratch: Path, rounds: int = 15) -> bool:
    """Measure a start until clients can connect, and a stop until the process is gone."""
    starts, stops, answers = [], [], []
    for number in range(rounds):
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "rmqstore", "serve", str(scratch / f"life-{number}"),
             "--port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        starts.append(time.perf_counter() - began)
        began = time.perf_counter()
        process.terminate()
        process.wait(30)
        stops.append(time.perf_counter() - began)
        process.stdout.close()
        answers.append(process.returncode)
    assert not any(answers), answers
    met = []
    for name, taken, goal in (("start", starts, START), ("stop", stops, STOP)):
        millis = statistics.median(taken) * 1e3
        met.append(judged(f"{name}, median of {rounds}", millis, goal, "{:.0f} ms"))
        print(f"{name}: {min(taken) * 1e3:.0f} to {max(taken) * 1e3:.0f} ms")
    return all(met)


Measured = Callable[[ServeProcess, int, float], Awaitable[bool]]
MEASURED: dict[str, Measured] = {"arrival": arrival, "idle": idle}


def main() -> int:
    """Measure; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="serve_idle", description=__doc__.partition("\n")[0])
    parser.add_argument("--consumers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=40.0, help="of idling")
    parser.add_argument("--only", default="", help="part of: start, arrival, idle")
    given = parser.parse_args()
    met = []
    with tempfile.TemporaryDirectory(prefix="serve-idle-") as scratch:
        if given.only in "start":
            met.append(lifetimes(Path(scratch)))
        for name, act in MEASURED.items():
            if given.only in name:
                with ServeProcess(Path(scratch, name), free_port()) as server:
                    met.append(asyncio.run(act(server, given.consumers, given.seconds)))
                    server.stop()
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
