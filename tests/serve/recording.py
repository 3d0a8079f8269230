"""A recording proxy between clients and a server.

The server is told to name the proxy's address in routes and message ids, so nothing that passes is
changed. The decoder is this file's own: it shares nothing with the server under test.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Self

TLS_HANDSHAKE = b"\x16"  # what a connection with TLS begins with; a frame begins with zero
LANGUAGES = ["JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO"]
PROXY_HOST = "127.0.0.2"  # a loopback address of its own, so that it has the server's port numbers


@dataclass
class Frame:
    """One frame as it was sent."""

    at: float
    connection: int
    port: str  # "names", "broker" or "vip"
    from_client: bool
    code: int
    opaque: int
    flag: int
    language: str
    version: int
    remark: str | None
    fields: dict[str, Any] | None  # None: there is no extFields
    body: bytes
    binary: bool

    @property
    def is_answer(self) -> bool:
        """Whether it answers a request of the other side."""
        return self.flag & 1 != 0


@dataclass
class Exchange:
    """A request and its answer, ``None`` where none came."""

    asked: Frame
    answered: Frame | None = None


@dataclass
class _Side:
    received: bytearray = field(default_factory=bytearray)


def decode(frame: bytes) -> dict[str, Any]:
    """Return the parts of a frame, without its first four bytes."""
    (mark,) = struct.unpack_from(">i", frame)
    length = mark & 0xFFFFFF
    header, body = frame[4 : 4 + length], frame[4 + length :]
    if mark >> 24 == 0:
        parts = json.loads(header)
        return {
            "code": parts["code"],
            "opaque": parts["opaque"],
            "flag": parts["flag"],
            "language": parts["language"],
            "version": parts["version"],
            "remark": parts.get("remark"),
            "fields": parts.get("extFields"),
            "body": body,
            "binary": False,
        }
    code, language, version, opaque, flag, size = struct.unpack_from(">hBhiii", header)
    at = 17 + size
    remark = header[17:at].decode() if size > 0 else None
    (rest,) = struct.unpack_from(">i", header, at)
    at += 4
    fields = {}
    end = at + rest
    while at < end:
        (size,) = struct.unpack_from(">h", header, at)
        name = header[at + 2 : at + 2 + size].decode()
        at += 2 + size
        (size,) = struct.unpack_from(">i", header, at)
        fields[name] = header[at + 4 : at + 4 + size].decode()
        at += 4 + size
    return {
        "code": code,
        "opaque": opaque,
        "flag": flag,
        "language": LANGUAGES[language],
        "version": version,
        "remark": remark,
        "fields": fields,
        "body": body,
        "binary": True,
    }


class Recorder:
    """The proxy: one thread, sockets in select.  A context manager.

    Parameters
    ----------
    ports : dict of str to int
        The server's ports on 127.0.0.1 by name; the proxy has the same on ``PROXY_HOST``.
    """

    def __init__(self, ports: dict[str, int]) -> None:
        self.frames: list[Frame] = []
        self.problems: list[str] = []
        self.encrypted = 0  # connections of which nothing can be said
        self._listening: dict[socket.socket, tuple[str, int]] = {}
        self._pairs: dict[socket.socket, tuple[socket.socket, bool, int, str, bytearray]] = {}
        self._connections = 0
        for name, port in ports.items():
            listening = socket.socket()
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((PROXY_HOST, port))
            listening.listen(64)
            self._listening[listening] = (name, port)
        self._stop, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._wake.send(b"x")
        self._thread.join(10)
        for one in [*self._listening, *self._pairs, self._stop, self._wake]:
            one.close()

    def take(self) -> list[Frame]:
        """Return the frames since the last call."""
        taken, self.frames = self.frames, []
        return taken

    def _run(self) -> None:
        while True:
            readable, _, _ = select.select([self._stop, *self._listening, *self._pairs], [], [])
            for one in readable:
                if one is self._stop:
                    return
                if one in self._listening:
                    self._accept(one)
                elif one in self._pairs:
                    self._pass(one)

    def _accept(self, listening: socket.socket) -> None:
        name, port = self._listening[listening]
        client, _ = listening.accept()
        server = socket.socket()
        try:
            server.connect(("127.0.0.1", port))
        except OSError:
            client.close()
            return
        self._connections += 1
        for one, other, is_client in ((client, server, True), (server, client, False)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs[one] = (other, is_client, self._connections, name, bytearray())

    def _pass(self, one: socket.socket) -> None:
        other, from_client, connection, name, received = self._pairs[one]
        try:
            data = one.recv(1 << 18)
            other.sendall(data)
        except OSError:
            data = b""
        if not data:
            for each in (one, other):
                self._pairs.pop(each, None)
                each.close()
            return
        if received == TLS_HANDSHAKE:
            return
        if from_client and not received and data[:1] == TLS_HANDSHAKE:
            self.encrypted += 1
            for each in (one, other):
                self._pairs[each][-1][:] = TLS_HANDSHAKE
            return
        received += data
        at = time.monotonic()
        while len(received) >= 4:
            (length,) = struct.unpack_from(">i", received)
            if len(received) < 4 + length:
                break
            frame = bytes(received[4 : 4 + length])
            del received[: 4 + length]
            try:
                parts = decode(frame)
            except (ValueError, KeyError, struct.error) as error:
                self.problems.append(f"{error}: {frame[:200]!r}")
                continue
            self.frames.append(Frame(at, connection, name, from_client, **parts))


def exchanges(frames: list[Frame]) -> list[Exchange]:
    """Return requests with their answers, in the order of the requests."""
    made: list[Exchange] = []
    open_requests: dict[tuple[int, bool, int], Exchange] = {}
    for frame in frames:
        if frame.is_answer:
            exchange = open_requests.pop(
                (frame.connection, not frame.from_client, frame.opaque), None
            )
            if exchange is not None:
                exchange.answered = frame
            continue
        exchange = Exchange(frame)
        made.append(exchange)
        if not frame.flag & 2:
            open_requests[frame.connection, frame.from_client, frame.opaque] = exchange
    return made
