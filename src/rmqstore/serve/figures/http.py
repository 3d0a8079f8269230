"""A small HTTP server in the gateway's loop: GET only, for this machine only.

Replies are bounded, and the connection is closed after each.  Pages of other sites cannot reach it
through a browser: ``Host`` must be this machine's name, and browsers send a request's origin.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from rmqstore.base.foreign import foreign
from rmqstore.base.warn import Log
from rmqstore.serve.network.sockets import address_text, bind

__all__ = ["Busy", "HttpServer", "Reply", "Resource"]

T = TypeVar("T")

_HOST = "127.0.0.1"
_NAMES = {"127.0.0.1", "localhost", "[::1]"}
_HEAD_BYTES = 16 << 10  # of a request line with headers
_READ_SECONDS = 10.0
_WRITE_SECONDS = 10.0
_CONNECTIONS = 64
_READING = 16  # of these, waiting for messages
_KEPT_SECONDS = 30.0  # a reply, at most
_BACKLOG = 16  # all are accepted at once, and hold a file descriptor until closed
_REASONS = {
    200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip
_HEADERS = (
    "Cache-Control: no-store\r\n"
    "Connection: close\r\n"
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "X-Content-Type-Options: nosniff\r\n"
)


@dataclass(frozen=True, slots=True)
class Reply:
    """HTTP reply."""

    body: bytes
    kind: str = "text/plain; charset=utf-8"  # media type
    status: int = 200


class Busy(Exception):
    """Too many waiting requests."""


# Called with the last value of each query field.
Resource = Callable[[Mapping[str, str]], Awaitable[Reply]]


class HttpServer:
    """Server of resources by path."""

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening  # from :meth:`bind`; closed with the server
        self.address = address_text(_HOST, listening.getsockname()[1])  # ``127.0.0.1:PORT``
        self._resources: dict[str, Resource] = {}  # by path
        self._log = Log("rmqstore.serve")
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[Any]] = set()
        self._awaiting: dict[asyncio.Task[Any], None] = {}  # those waiting for their client
        self._making: set[asyncio.Task[Reply]] = set()
        self._figures = ThreadPoolExecutor(1, "rmq-serve-figures")
        self._messages = ThreadPoolExecutor(1, "rmq-serve-page")
        self._reading = 0  # requests waiting for messages

    @staticmethod
    def bind(port: int) -> socket.socket:
        """Return a socket that listens on a local port, 0 for any; ``OSError`` if in use."""
        return bind(_HOST, port)

    def add(self, resources: Mapping[str, Resource]) -> None:
        """Serve resources, by path."""
        self._resources.update(resources)

    async def start(self) -> None:
        """Start serving; called in the loop."""
        self._server = await asyncio.start_server(
            self._connected, sock=self._socket, limit=_HEAD_BYTES, backlog=_BACKLOG
        )

    def stop(self) -> None:
        """Stop serving; called in the loop."""
        if self._server is not None:
            self._server.close()
        for task in (*self._serving, *self._making):
            task.cancel()

    def close(self) -> None:
        """Release the port, even if never started."""
        for worker in (self._figures, self._messages):
            worker.shutdown(wait=True, cancel_futures=True)
        self._socket.close()

    def made_once(
        self, make: Callable[[], Coroutine[Any, Any, Reply]], *, rest: int = 0
    ) -> Resource:
        """Return a resource whose reply, which may take long, is shared by all who wait for it.

        It is kept for ``rest`` times as long as it took, up to :data:`_KEPT_SECONDS`.
        """
        making: asyncio.Task[Reply] | None = None
        kept_until = 0.0

        async def timed() -> Reply:
            nonlocal kept_until
            loop = asyncio.get_running_loop()
            began = loop.time()
            reply = await make()
            kept_until = loop.time() + min(rest * (loop.time() - began), _KEPT_SECONDS)
            return reply

        async def resource(query: Mapping[str, str]) -> Reply:
            nonlocal making
            loop = asyncio.get_running_loop()
            if making is None or (making.done() and loop.time() >= kept_until):
                making = loop.create_task(timed())
                self._making.add(making)
                making.add_done_callback(self._making.discard)
            return await asyncio.shield(making)  # a client may leave before the others

        return resource

    async def aside(self, call: Callable[..., T], *arguments: Any) -> T:
        """Call a function for figures in a thread, one at a time, without blocking the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._figures, call, *arguments)

    async def read(self, call: Callable[..., T], *arguments: Any) -> T:
        """Read messages in a thread apart from figures; ``Busy`` keeps connections for these."""
        if self._reading >= _READING:
            raise Busy
        self._reading += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._messages, call, *arguments
            )
        finally:
            self._reading -= 1

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        # Drained bytes are with the system: a closed connection keeps nothing here.
        writer.transport.set_write_buffer_limits(0)
        try:
            if not self._begins(task):
                return
            reply = await self._answer(reader)
            if reply is not None:
                writer.write(_head(reply) + reply.body)
                async with self._awaits(_WRITE_SECONDS):
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.CancelledError):
            writer.transport.abort()  # the client is gone or slow, or the server stops
        finally:
            self._serving.discard(task)
            writer.close()

    def _begins(self, task: asyncio.Task[Any]) -> bool:
        """Count a connection; beyond the limit, drop the one waiting longest for its client."""
        if len(self._serving) >= _CONNECTIONS:
            oldest = next(iter(self._awaiting), None)
            if oldest is None:
                return False
            del self._awaiting[oldest]
            self._serving.discard(oldest)
            oldest.cancel()
        self._serving.add(task)
        return True

    @asynccontextmanager
    async def _awaits(self, seconds: float) -> AsyncIterator[None]:
        """Wait for the client up to a time limit, or until others need the connection more."""
        task = asyncio.current_task()
        assert task is not None
        self._awaiting[task] = None
        try:
            async with asyncio.timeout(seconds):
                yield
        finally:
            self._awaiting.pop(task, None)

    async def _answer(self, reader: asyncio.StreamReader) -> Reply | None:
        """Read a request and return its reply; None if there is no request."""
        try:
            async with self._awaits(_READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError:
            return _refused(400, "the request is too long")
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _refused(400, "this is no request of HTTP/1.1")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        reply = _check(words[0], headers) or await self._get(words[1])
        return Reply(b"", reply.kind, reply.status) if words[0] == "HEAD" else reply

    async def _get(self, address: str) -> Reply:
        try:
            target = urlsplit(address)
            query = parse_qs(
                target.query, max_num_fields=16, keep_blank_values=True, errors="surrogateescape"
            )
        except ValueError:
            return _refused(400, "this is no address")
        resource = self._resources.get(target.path)
        if resource is None:
            return _refused(404, "there is no such page")
        try:
            return await resource({name: values[-1] for name, values in query.items()})
        except Busy:
            return _refused(503, "too many wait for messages already")
        except Exception as error:
            self._log.warning("%s of the page failed: %s", target.path, error)
            return _refused(500, f"{type(error).__name__}: {error}")


def _check(method: str, headers: Mapping[str, str]) -> Reply | None:
    """Return the refusal of a request, if any."""
    if method not in {"GET", "HEAD"}:
        return _refused(405, "only GET is answered")
    host = headers.get("host", "").lower()
    name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    if (name if port.isdigit() and name else host) not in _NAMES:
        # Otherwise a site whose name resolves to this machine could read it.
        return _refused(403, "the Host is not this machine: ask for 127.0.0.1 or localhost")
    if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        return _refused(403, "the request comes from another site")
    return None


def _refused(status: int, text: str) -> Reply:
    return Reply(f"{foreign(text)}\n".encode(), status=status)


def _head(reply: Reply) -> bytes:
    return (
        f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}\r\n"
        f"Content-Type: {reply.kind}\r\n"
        f"Content-Length: {len(reply.body)}\r\n{_HEADERS}\r\n"
    ).encode("latin-1")
