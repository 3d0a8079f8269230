"""A client of the remoting protocol over one socket, with an encoder of its own."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

__all__ = ["Frame", "RemotingClient"]

VERSION = 399


@dataclass
class Frame:
    """A received frame: an answer, or a request of the server."""

    code: int
    fields: dict[str, str] | None
    body: bytes
    flag: int
    opaque: int
    remark: str | None
    header: dict[str, Any] = field(default_factory=dict)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RemotingClient:
    """A connection that asks, tells, and keeps what the server asks of it.

    Attributes
    ----------
    pushed : deque of Frame
        Requests of the server that were read and not taken.
    """

    def __init__(self, address: str, seconds: float = 60.0, *, source: str = "") -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection(
            (host.strip("[]"), int(port)), seconds, (source, 0) if source else None
        )
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pushed: deque[Frame] = deque()
        self._answers: dict[int, Frame] = {}
        self._received = bytearray()
        self._opaque = 0

    @property
    def name(self) -> str:
        """``ip:port`` of this end, which is the born host of what it sends."""
        host, port = self.socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def send(
        self,
        code: int,
        fields: dict[str, object] | None = None,
        body: bytes = b"",
        *,
        flag: int = 0,
        version: int = VERSION,
        language: str = "JAVA",
    ) -> int:
        """Send a request and return its number."""
        self._opaque += 1
        header: dict[str, object] = {
            "code": int(code), "flag": flag, "language": language, "opaque": self._opaque,
            "serializeTypeCurrentRPC": "JSON", "version": version,
        }  # fmt: skip
        if fields is not None:
            header["extFields"] = {
                name: value if isinstance(value, (str, int, float)) else str(value)
                for name, value in fields.items()
            }
        text = json.dumps(header, separators=(",", ":")).encode()
        self.socket.sendall(struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body)
        return self._opaque

    def ask(
        self,
        code: int,
        fields: dict[str, object] | None = None,
        body: bytes = b"",
        *,
        seconds: float = 60.0,
        **header: Any,
    ) -> Frame:
        """Send a request and return its answer."""
        return self.answer(self.send(code, fields, body, **header), seconds)

    def tell(
        self, code: int, fields: dict[str, object] | None = None, body: bytes = b"", **header: Any
    ) -> None:
        """Send a request that is not answered."""
        self.send(code, fields, body, flag=2, **header)

    def answer(self, opaque: int, seconds: float = 60.0) -> Frame:
        """Return the answer to a request that was sent."""
        until = time.monotonic() + seconds
        while opaque not in self._answers:
            self._take(until)
        return self._answers.pop(opaque)

    def next_request(self, code: int, seconds: float = 60.0) -> Frame:
        """Return the next request of the server with this code; others stay."""
        until = time.monotonic() + seconds
        while True:
            for frame in self.pushed:
                if frame.code == code:
                    self.pushed.remove(frame)
                    return frame
            self._take(until)

    def reply(self, request: Frame, code: int = 0, body: bytes = b"") -> None:
        """Answer a request of the server."""
        text = json.dumps(
            {"code": code, "flag": 1, "language": "JAVA", "opaque": request.opaque,
             "version": VERSION}
        ).encode()  # fmt: skip
        self.socket.sendall(struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body)

    def is_quiet(self, seconds: float) -> bool:
        """Return whether nothing comes for so long."""
        try:
            came = self._take(time.monotonic() + seconds)
        except TimeoutError:
            return True
        print(f"what came: {came}")
        return False

    def _take(self, until: float) -> Frame:
        frame = _parse(self._frame(until))
        if frame.flag & 1:
            self._answers[frame.opaque] = frame
        else:
            self.pushed.append(frame)
        return frame

    def _frame(self, until: float) -> bytes:
        received = self._received
        while True:
            if len(received) >= 4:
                total = int.from_bytes(received[:4], "big")
                if len(received) >= 4 + total:
                    frame = bytes(received[4 : 4 + total])
                    del received[: 4 + total]
                    return frame
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("no frame came in time")
            self.socket.settimeout(left)
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionResetError("the server has closed the connection")
            received += data

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()


def _parse(frame: bytes) -> Frame:
    (mark,) = struct.unpack_from(">i", frame)
    length = mark & 0xFFFFFF
    header = json.loads(frame[4 : 4 + length])
    return Frame(
        header["code"], header.get("extFields"), frame[4 + length :], header["flag"],
        header["opaque"], header.get("remark"), header,
    )  # fmt: skip
