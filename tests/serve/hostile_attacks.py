"""Attacks on a server: each fills a bound that it finds, with sizes drawn from a seed.

An attack does a bounded amount of work and returns; refusals and closed connections are part of it.
What it may not see (a message that it has no permission for) it notes as a problem.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import ssl
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from serve.hostile_client import SECRET
from serve.hostile_ground import ATTACKER, BIG_QUEUES, OPERATOR, Target
from serve.hostile_load import Load, Out, pump
from support.remoting import Frame, RemotingClient
from support.serving import consumer, heartbeat
from support.signing import sign

__all__ = ["ATTACKS", "Ground"]

SEND, PULL, QUERY, COMMIT, HEARTBEAT, LOCK, MAX_OFFSET = 310, 11, 12, 15, 34, 41, 30
STATUS, RUNNING_INFO, REPLY = 223, 307, 325
NO_PERMISSION = 16
_MOST_EXPRESSION = 65_536  # characters, of a filter
_FORGED = "a\n2026-11-25 rmqstore: forged\r\x1b[2J\x9b\u202e\x00"


@dataclass
class Ground:
    """Target of an attack.

    Attributes
    ----------
    target : Target
    chance : random.Random
        Of sizes.
    scale : float
        Of counts: 1 in the campaign.
    stopped : threading.Event
        Set when attacks are to end.
    """

    target: Target
    chance: random.Random
    scale: float
    stopped: threading.Event

    def count(self, most: int) -> int:
        """Return a random count near the limit."""
        return max(1, int(most * self.scale * self.chance.uniform(0.5, 1)))

    def frame(
        self, code: int, fields: dict[str, object] | None = None, body: bytes = b"", *,
        flag: int = 0, key: str = ATTACKER,
    ) -> bytes:  # fmt: skip
        """Return a request, signed where there are accounts."""
        if self.target.accounts is not None:
            fields = sign(fields, body, key, SECRET)
        header: dict[str, object] = {
            "code": code, "flag": flag, "language": "JAVA", "opaque": 7, "version": 399,
        }  # fmt: skip
        if fields:
            header["extFields"] = {name: str(value) for name, value in fields.items()}
        text = json.dumps(header).encode()
        return struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body

    def ask(
        self, client: RemotingClient, code: int, fields: dict[str, object] | None = None,
        body: bytes = b"", *, key: str = ATTACKER,
    ) -> Frame:  # fmt: skip
        """Return the answer to a request."""
        client.socket.sendall(self.frame(code, fields, body, key=key))
        return client.answer(7)

    @contextlib.contextmanager
    def client(self) -> Iterator[RemotingClient]:
        """Open a connection, and close it."""
        with RemotingClient(self.target.address) as made:
            yield made

    def pump(
        self, loads: Sequence[bytes | Out], *, seconds: float = 10.0, reads: bool = True,
        quiet: float = 0.3,
    ) -> None:  # fmt: skip
        """Send each load over a connection of its own."""
        host, _, port = self.target.address.rpartition(":")
        quiet = max(0.3, quiet * self.scale)
        pump((host, int(port)), loads, Load(seconds, self.stopped, reads, quiet))


def _pull(topic: str, offset: int, wanted: str, *, hold: int = 0, group: str = "g",
          kind: str = "SQL92", queue: int = 0) -> dict[str, object]:  # fmt: skip
    return {
        "consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset,
        "maxMsgNums": 32, "sysFlag": 6 if hold else 4, "commitOffset": 0,
        "suspendTimeoutMillis": hold, "subscription": wanted, "expressionType": kind,
        "subVersion": 0,
    }  # fmt: skip


def _send(topic: str, *, properties: str = "", flag: int = 0, queue: int = 0,
          group: str = "p") -> dict[str, object]:  # fmt: skip
    return {
        "a": group, "b": topic, "c": "TBW102", "d": 8, "e": queue, "f": flag, "g": 1, "h": 0,
        "i": properties, "j": 0, "k": "false", "m": "false",
    }  # fmt: skip


def _expression(chance: random.Random, number: int = 0) -> str:
    """Return an expression that names ``a`` as often as allowed, and matches no message."""
    term = chance.choice([
        "a = {}", "a > {}9999999", "a BETWEEN {} AND {}", "NOT (a <> {})", "a IN ('{}', 'x')",
        "a = {}.5 AND b IS NULL",
    ])  # fmt: skip
    terms, length, most = [f"c = {number}"], 20, chance.randint(30_000, _MOST_EXPRESSION)
    while True:
        one = term.replace("{}", str(len(terms)))
        length += len(one) + 4
        if length > most:
            return " OR ".join(terms)
        terms.append(one)


def filters(ground: Ground) -> None:
    """Pull with long expressions over long properties."""
    chance = ground.chance
    digits = chance.choice("123") * chance.randint(1000, 32_000)
    put = ground.frame(SEND, _send("t", properties=f"a\1{digits}\2"), b"x")
    ground.pump([put * 8])
    pulls = [ground.frame(PULL, _pull("t", 0, _expression(chance))) for _ in range(4)]
    ground.pump([one * ground.count(40) for one in pulls])


def held(ground: Ground) -> None:
    """Have pulls with long expressions held, and wake all of them by small messages."""
    chance = ground.chance
    topic, queue = "t", chance.randrange(1, 4)
    with ground.client() as asker:
        end = ground.ask(asker, MAX_OFFSET, {"topic": topic, "queueId": queue})
        offset = int((end.fields or {}).get("offset", 0))
        expression = _expression(chance)
        pulls = [
            ground.frame(
                PULL, _pull(topic, offset, f"{expression} OR d = {n}", hold=60_000, queue=queue)
            )
            for n in range(ground.count(1000))
        ]
        waking = threading.Event()
        value = chance.choice(["-1", "9"])  # for none of them, or for many

        def wake() -> None:
            with contextlib.suppress(OSError):
                for _ in range(ground.count(20)):
                    if waking.wait(0.05):
                        break
                    ground.ask(asker, SEND, _send(topic, properties=f"a\1{value}\2", queue=queue))

        waker = threading.Thread(target=wake)
        waker.start()
        ground.pump([b"".join(pulls[n::10]) for n in range(10)], seconds=5, quiet=1)
        waking.set()
        waker.join()


def fields(ground: Ground) -> None:
    """Ask a silent consumer, in wide ext fields, which wait for it."""
    wide = "x" * ground.chance.randint(30_000, 60_000) + "\N{GRINNING FACE}"
    name = f"silent-{ground.chance.getrandbits(32):x}"
    beat = ground.frame(HEARTBEAT, None, heartbeat(name, [consumer("silent", {"t": "*"})]))
    with ground.client() as silent:
        silent.socket.sendall(beat)
        if ground.chance.random() < 0.5:
            asked = ground.frame(STATUS, {"topic": "t", "group": "silent", "other": wide})
        else:
            asked = ground.frame(
                RUNNING_INFO, {"consumerGroup": "silent", "clientId": name, "other": wide}
            )
        ground.pump([asked * ground.count(40)] * ground.count(40), quiet=1)


def disk(ground: Ground) -> None:
    """Send without reading answers, which wait for the disk where the flush is synchronous."""
    size = ground.chance.choice([100, 1000, 10_000, 200_000])
    sent = ground.frame(SEND, _send("t", properties="WAIT\1true\2"), bytes(size))
    each = min(20_000, ground.count(2 << 20) // len(sent) + 1)
    ground.pump([sent * each] * 8, quiet=1, reads=ground.chance.random() < 0.5)


def topics(ground: Ground) -> None:
    """Make topics by sending to them."""
    prefix = f"{ground.chance.getrandbits(32):x}"
    sends = [ground.frame(SEND, _send(f"{prefix}-{n}"), b"x") for n in range(ground.count(1000))]
    ground.pump([b"".join(sends[n::4]) for n in range(4)])


def tables(ground: Ground) -> None:
    """Fill tables of locks, offsets, groups, members and subscriptions."""
    chance, prefix = ground.chance, f"{ground.chance.getrandbits(32):x}"
    where = [("t", 4), ("unknown", 500), ("secret", 1), ("orders", 495)]
    queues = [
        {"brokerName": "broker-a", "topic": topic, "queueId": n}
        for topic, most in where for n in range(most)
    ]  # fmt: skip
    locks, commits, beats = [], [], []
    for n in range(ground.count(100)):
        body = {"clientId": "c", "consumerGroup": f"{prefix}-{n}", "mqSet": queues}
        locks.append(ground.frame(LOCK, None, json.dumps(body).encode()))
    for n in range(ground.count(5000)):
        offset: dict[str, object] = {
            "topic": chance.choice(["t", "orders", "unknown"]), "queueId": n % 6,
            "consumerGroup": f"{prefix}-{n // 6}", "commitOffset": 1,
        }  # fmt: skip
        commits.append(ground.frame(COMMIT, offset))
    long = "||".join(f"tag{n}" for n in range(chance.choice([1, 10, 1000])))
    for n in range(ground.count(20)):
        groups = [consumer(f"{prefix}-{n}-{each}", {"t": long}) for each in range(30)]
        produced = [f"{prefix}-{n}-{each}" for each in range(500)]
        beats.append(ground.frame(HEARTBEAT, None, heartbeat(f"c{n}", groups, produced)))
    ground.pump([b"".join(one) for one in (locks, commits, beats)])


def log(ground: Ground) -> None:
    """Have client texts logged: ids, groups, remarks, and invalid frames."""
    text = _FORGED + "x" * ground.chance.choice([1, 1000, 100_000])
    beat = heartbeat(text, [consumer(text[:100], {text[:100]: "*"})], [text, "g"])
    frames = [
        ground.frame(HEARTBEAT, None, heartbeat(_FORGED, [], ["g"])),
        ground.frame(HEARTBEAT, None, beat),
        ground.frame(REPLY, _send("t", properties=f"REPLY_TO_CLIENT\1{_FORGED}\2", group=text)),
        ground.frame(SEND, _send("t", properties="TIMER_DELAY_SEC\x0130\2", group=text), b"x"),
        ground.frame(SEND, _send(text), b"x"),
        ground.frame(LOCK, None, b"{" + text.encode()),
    ]
    ground.pump([b"".join(frames) * ground.count(20)] * 4)
    ground.pump([b"\0\0\1\0\0\0\0\xf0" + text.encode() * 3] * ground.count(50))


def denied(ground: Ground) -> None:
    """Have pulls held, lose the permission, and get none of the later messages."""
    accounts = ground.target.accounts
    if accounts is None:  # the pulls alone, and their clients are gone
        pull = ground.frame(PULL, _pull("secret", 0, "*", hold=60_000, kind="TAG"))
        ground.pump([pull * ground.count(50)] * 10, quiet=1)
        return
    accounts.write("PUB|SUB")
    with ground.client() as operator, ground.client() as reader:
        place: dict[str, object] = {"topic": "secret", "queueId": 0}
        end = int((ground.ask(operator, MAX_OFFSET, place, key=OPERATOR).fields or {})["offset"])
        pull = _pull("secret", end, "*", hold=3_600_000, kind="TAG")
        until = time.monotonic() + 60
        while not ground.stopped.is_set():  # until the file that allows it has been read
            reader.socket.sendall(ground.frame(PULL, pull))
            try:
                refused = reader.answer(7, 0.2)
            except TimeoutError:
                break
            if time.monotonic() > until:
                ground.target.problems.append(f"a pull is refused for a minute: {refused.remark}")
                return
        for _ in range(ground.count(300)):
            reader.socket.sendall(ground.frame(PULL, pull))
        accounts.write("DENY")
        if ground.stopped.is_set() or reader.answer(7).code != NO_PERMISSION:
            if not ground.stopped.is_set():
                ground.target.problems.append("a held pull was not ended by DENY")
            return
        # It was read, and what is stored from now on is nothing for the attacker.
        body = b"secret %d" % ground.chance.getrandbits(62)
        ground.ask(operator, SEND, _send("secret"), body, key=OPERATOR)
        with contextlib.suppress(TimeoutError):
            while True:
                frame = reader._take(time.monotonic() + 0.5)
                if frame.code == 0 or body in frame.body:
                    ground.target.problems.append("a message came after DENY")


def queues(ground: Ground) -> None:
    """Ask about a topic of 65,536 queues, and change many groups by a heartbeat."""
    asked: list[tuple[int, dict[str, object]]] = [
        (202, {"topic": "big"}), (303, {"topic": "big", "group": "g"}),
        (208, {"consumerGroup": "g", "topic": "big"}), (317, {"isOrder": "false"}),
        (308, {"topic": "big", "group": "g"}), (105, {"topic": "big"}), (21, {}), (43, {}),
        (321, {"topic": "t", "queueId": 0, "index": 0, "count": 50_000}),
    ]  # fmt: skip
    offsets = b"".join(
        ground.frame(COMMIT, {"topic": "big", "consumerGroup": "g", "queueId": n,
                              "commitOffset": 1})
        for n in range(0, BIG_QUEUES, max(1, int(64 / ground.scale)))
    )  # fmt: skip
    loads = [offsets]
    for _ in range(3):
        loads.append(b"".join(
            ground.frame(*ground.chance.choice(asked)) for _ in range(ground.count(8))
        ))  # fmt: skip
    name = f"{ground.chance.getrandbits(32):x}"
    most = ground.count(900)
    for step in range(2):
        beat = heartbeat("c", [consumer(f"{name}-{n}", {"t": f"v{step}"}, version=step)
                               for n in range(most)])  # fmt: skip
        loads.append(ground.frame(HEARTBEAT, None, beat))
    ground.pump(loads, quiet=3)


def page(ground: Ground) -> None:
    """Put bodies that inflate to much, and show them on the page, many at once."""
    deflater = zlib.compressobj()
    body = b"".join(deflater.compress(bytes(1 << 20)) for _ in range(ground.count(200)))
    body += deflater.flush()
    ground.pump([ground.frame(SEND, _send("bombs", flag=1), body) * 20])

    def look() -> None:
        for _ in range(ground.count(3)):
            with contextlib.suppress(OSError):
                ground.target.get("/api/topic?name=bombs", 20)

    threads = [threading.Thread(target=look) for _ in range(ground.count(20))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def unread(ground: Ground) -> None:
    """Pull much, read nothing, and go."""
    size = ground.chance.choice([2_000, 200_000])
    ground.pump([ground.frame(SEND, _send("t", queue=3), bytes(size)) * 8])
    pull = ground.frame(PULL, _pull("t", 0, "*", kind="TAG", queue=3))
    ground.pump([pull * ground.count(500)] * ground.count(30), quiet=1, reads=False)


def handshakes(ground: Ground) -> None:
    """Begin TLS and go on in various ways: not at all, with nonsense, or to the end."""
    host, _, port = ground.target.address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    out = ssl.MemoryBIO()
    begun = context.wrap_bio(ssl.MemoryBIO(), out)
    with contextlib.suppress(ssl.SSLWantReadError):
        begun.do_handshake()
    hello = out.read()
    loads = [hello, hello[:50], b"\x16\x03\x01\x00\x05junk!", hello + hello]
    ground.pump([ground.chance.choice(loads) for _ in range(ground.count(200))])
    for _ in range(ground.count(50)):
        if ground.stopped.is_set():
            return
        with socket.create_connection((host, int(port)), 10) as plain:
            context.wrap_socket(plain).close()


def frames(ground: Ground) -> None:
    """Begin large frames, and do not end them."""
    begun = struct.pack(">ii", 16 << 20, 100)
    sizes = [ground.chance.randint(1 << 20, 14 << 20) for _ in range(ground.count(30))]
    ground.pump([Out(begun, size) for size in sizes], quiet=1)


ATTACKS: dict[str, Callable[[Ground], None]] = {
    one.__name__: one
    for one in (filters, held, fields, disk, topics, tables, log, denied, queues, page, unread,
                handshakes, frames)
}  # fmt: skip
