"""Clients that do not read, and the counts of a server that must come down to nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from support.remoting import RemotingClient
from support.serving import wait_until

if TYPE_CHECKING:
    from rmqstore.serve import Server
    from support.remoting import Frame

__all__ = ["OPEN", "PULL", "answers", "is_settled", "silent", "unwritten", "with_small_buffers"]

_KEPT = 32 << 10
OPEN: list[RemotingClient] = []  # closed at the end of each test
PULL: dict[str, object] = {
    "consumerGroup": "g", "topic": "orders", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1,
    "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 60_000, "subVersion": 0,
    "subscription": "*",
}  # fmt: skip


def with_small_buffers(server: Server) -> Server:
    """Have the kernel keep little of what the server writes to clients that come."""
    for one in server._sockets:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KEPT)
    return server


def silent(server: Server, source: str = "127.0.0.1") -> RemotingClient:
    """Return a client for which the kernel keeps little."""
    client = RemotingClient(server.address, source=source)
    OPEN.append(client)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KEPT)
    return client


def answers(asked: Iterable[tuple[RemotingClient, int]]) -> list[Frame]:
    """Return the answers to requests of many clients, which all read at once."""
    of: dict[RemotingClient, list[int]] = {}
    for client, number in asked:
        of.setdefault(client, []).append(number)

    def read(client: RemotingClient) -> list[Frame]:
        return [client.answer(number) for number in of[client]]

    with ThreadPoolExecutor(len(of)) as pool:
        return [one for found in pool.map(read, of) for one in found]


def unwritten(server: Server) -> int:
    """Return the bytes that clients have not taken; a closed one's are gone with the next turn."""

    def total() -> int:
        return sum(one.unwritten for one in server.gateway.connections.open if one.is_open)

    count: int = server.in_loop(total)
    return count


def is_settled(server: Server) -> bool:
    """Wait until nothing is counted any more: no client waits for anything."""

    def counts() -> list[Any]:
        gateway = server.gateway
        unread, kept = gateway.connections.unread, gateway.connections.kept_frames
        return [
            unread.taken, len(unread._of), len(unread._waiting), unread._reserved,
            kept.taken, len(kept._large), len(kept._over), kept._shares.taken,
            gateway.connections.unanswered, len(gateway.holds), len(gateway.holds._slow),
            len(gateway.pools.lookups._running), len(gateway.pools.lookups._waiting),
        ]  # fmt: skip

    wait_until(lambda: not any(server.in_loop(counts)))
    return True
