"""TLS and plain connections on one port, told apart by the first byte.

Source: ``remoting/netty/NettyRemotingServer.java HandshakeHandler``.
"""

from __future__ import annotations

import asyncio
import socket

__all__ = ["Handshakes", "begins_with_tls", "write_in_parts"]

_PART = 64 << 10  # bytes
_HANDSHAKE = b"\x16"  # ContentType of TLS; a frame begins with 0, or 1 for 16 MiB
_RECORD_HEAD = 5  # bytes: type, version, length of the rest
_TURNS = 3  # of the loop, until data sent before the client's handshake began is answered


async def begins_with_tls(
    loop: asyncio.AbstractEventLoop, accepted: socket.socket, seconds: float
) -> bool:
    """Whether a client begins with a TLS handshake, by its first byte; nothing is consumed.

    Waits for the whole first record, or the client could choose when the handshake, with our
    signature, continues. ``TimeoutError`` after ``seconds``, ``OSError`` if the client is gone.
    """
    async with asyncio.timeout(seconds):  # wait_for may lose a cancellation
        first = await _peeked(loop, accepted, 1)
        if first != _HANDSHAKE:
            return False
        head = await _peeked(loop, accepted, _RECORD_HEAD)
        await _peeked(loop, accepted, _RECORD_HEAD + int.from_bytes(head[3:]))
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    return True


async def _peeked(loop: asyncio.AbstractEventLoop, accepted: socket.socket, count: int) -> bytes:
    """Return the first bytes a client has sent without consuming them; fewer at its end."""
    readable: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        if not readable.done():
            readable.set_result(None)

    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
    loop.add_reader(accepted, ready)
    try:
        await readable
    finally:
        loop.remove_reader(accepted)
    return accepted.recv(count, socket.MSG_PEEK)


class Handshakes:
    """Begins handshakes one by one, in order of arrival; used in the loop.

    Each takes a millisecond of the loop, and thousands may arrive at once.
    """

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    async def turn(self) -> None:
        """Wait until the previous handshake is answered."""
        async with self._one:
            for _ in range(_TURNS):
                await asyncio.sleep(0)


def write_in_parts(transport: asyncio.Transport, data: bytes) -> None:
    """Write to a TLS transport in parts, so that its count of untaken bytes lacks one part at most.

    Bytes already encrypted are in another transport's buffer.
    """
    if len(data) <= _PART:
        transport.write(data)
        return
    view = memoryview(data)
    for at in range(0, len(data), _PART):
        transport.write(view[at : at + _PART])
