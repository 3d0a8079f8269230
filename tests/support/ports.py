"""Ports that stay free between two uses of a test."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

__all__ = ["quiet_port", "taken"]


def quiet_port() -> int:
    """Return a port that is free, as are its neighbours two and four ports back and two on.

    It is none that the system chooses for others: tests that run beside this one take those.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(100):
        port = random.randrange(lowest // 2, lowest - 8)
        with suppress(OSError), ExitStack() as free:
            for near in (port - 4, port - 2, port, port + 2):
                free.enter_context(taken("127.0.0.1", near))
            return port
    raise AssertionError("no port is free")


def taken(host: str, port: int) -> socket.socket:
    """Return a socket that listens there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((host, port))
    made.listen()
    return made
