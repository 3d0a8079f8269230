"""TLS and plain connections on one port: the first byte tells which it is.

Source: ``remoting/netty/NettyRemotingServer.java HandshakeHandler``.
"""

from __future__ import annotations

import asyncio
import socket

__all__ = ["begins_with_tls", "write_in_parts"]

_PART = 64 << 10  # bytes
_HANDSHAKE = 0x16  # ContentType of TLS; a frame begins with 0, or 1 if it is of 16 MiB


async def begins_with_tls(
    loop: asyncio.AbstractEventLoop, accepted: socket.socket, seconds: float
) -> bool:
    """Whether a client begins with a TLS handshake, by its first byte; nothing is consumed.

    ``TimeoutError`` if it sends nothing for so many seconds, ``OSError`` if it is gone.
    """
    readable: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(accepted, ready)
    try:
        async with asyncio.timeout(seconds):  # wait_for may forget that it is cancelled
            await readable
    finally:
        loop.remove_reader(accepted)
    first = accepted.recv(1, socket.MSG_PEEK)
    return first != b"" and first[0] == _HANDSHAKE


def write_in_parts(transport: asyncio.Transport, data: bytes) -> None:
    """Write to a transport with TLS, which tells what the client has not taken but for a part.

    What it has encrypted is in another one's buffer.
    """
    if len(data) <= _PART:
        transport.write(data)
        return
    view = memoryview(data)
    for at in range(0, len(data), _PART):
        transport.write(view[at : at + _PART])
