"""Addresses, and sockets listening on them.

Source: ``remoting/netty/NettyRemotingServer.java``, ``broker/BrokerController.java
fastRemotingServer``, ``remoting/common/RemotingUtil.java getLocalAddress``.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from contextlib import suppress

from rmqstore.base.arguments import wrong_value

__all__ = [
    "BACKLOG",
    "VIP_DISTANCE",
    "VipPortError",
    "address_text",
    "is_loopback",
    "listen",
    "origin_of",
    "own_address",
    "split_address",
    "unmapped",
]

BACKLOG = 1024
VIP_DISTANCE = 2  # clients with the VIP channel on send to the port minus this
_PORTS_TRIED = 64
_PORT_MAX = 65535
_SITE_BITS = 64  # of an IPv6 address: the host may choose and change the rest
# In the documentation range of RFC 5737: only used to ask which of our addresses reaches it;
# connecting a datagram socket sends nothing.
_FAR_AWAY = ("192.0.2.1", 9)


def address_text(host: str, port: int) -> str:
    """Return ``host:port``, ``[host]:port`` for IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unmapped(host: str) -> str:
    """Return the IPv4 form of an IPv4-mapped IPv6 address; others unchanged."""
    return host.removeprefix("::ffff:") if "." in host else host


def origin_of(host: str) -> str:
    """Return the origin to charge for a client's address: of IPv6 its whole /64."""
    host = unmapped(host)
    if ":" not in host:
        return host
    return str(ipaddress.IPv6Network((host.partition("%")[0], _SITE_BITS), strict=False))


def split_address(name: str, text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT`` or ``[v6]:PORT``, else ``ValueError`` with ``name``."""
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (
        colon
        and bare
        and (":" not in bare or bare != host)
        and not any(one.isspace() for one in bare)
        and port.isascii()
        and port.isdigit()
        and 1 <= int(port) <= 65535
    ):
        raise wrong_value(name, "'HOST:PORT', with a port of 1 to 65535", text)
    return bare, int(port)


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def own_address(host: str) -> str:
    """Return the address at which others reach us, if ``host`` stands for all of ours."""
    if host not in {"0.0.0.0", "::"}:
        return host
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(_FAR_AWAY)
        return str(asked.getsockname()[0])
    return "127.0.0.1"


class VipPortError(OSError):
    """The port minus two, where clients with the VIP channel on send, cannot be listened on.

    ``error`` is that port's, with its address as ``filename``; ``port`` is the server's.
    """

    def __init__(self, error: OSError, port: int) -> None:
        self.reason = os.strerror(error.errno or errno.EIO)
        self.conflict = f"clients with the VIP channel on would send there and not to port {port}"
        text = f"{self.reason}; {self.conflict}: choose another port, or vip=False"
        super().__init__(error.errno, text, error.filename)


def listen(host: str, port: int, *, vip: bool = True) -> list[socket.socket]:
    """Return the sockets of a port, and of the port minus two for the VIP channel.

    Port 0 takes a port with a free neighbour; 1 and 2 have none. ``VipPortError`` if the neighbour
    is in use, ``OSError`` if the port is or the address is not ours, with it as ``filename``.
    """
    for attempt in range(_PORTS_TRIED):
        main = bind(host, port)
        name = main.getsockname()
        number = name[1] - VIP_DISTANCE
        if not vip or number <= 0:
            return [main]
        try:
            return [main, bind(name[0], number)]
        except OSError as error:
            main.close()
            if port or attempt == _PORTS_TRIED - 1:
                raise VipPortError(error, name[1]) from None
    raise AssertionError("not reached")


def bind(host: str, port: int) -> socket.socket:
    """Return a listening, non-blocking socket."""
    shown = address_text(host, port)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        reason = f"the name has no address ({getattr(error, 'strerror', None) or error})"
        raise OSError(errno.EADDRNOTAVAIL, reason, shown) from None
    # Clients split an address at the first colon: IPv4 first if a name has both.
    found.sort(key=lambda one: one[0] != socket.AF_INET)
    family, _, _, _, where = found[0]
    try:
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(where)
            made.listen(BACKLOG)
            made.setblocking(False)
        except BaseException:
            made.close()
            raise
    except OSError as error:
        number = error.errno or errno.EIO
        reason = os.strerror(number)
        if number == errno.EADDRNOTAVAIL:
            reason = "not an address of this machine"
        elif number == errno.EADDRINUSE and port + VIP_DISTANCE <= _PORT_MAX:
            perhaps = f"perhaps a server on port {port + VIP_DISTANCE} has it"
            reason += f"; {perhaps}, for the VIP channel"
        raise OSError(number, reason, shown) from None
    return made
