"""Requests to the page of a server."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

from rmqstore.serve.server import Server

__all__ = ["get", "open_to", "raw"]


def get(server: Server, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    asked = urllib.request.Request(f"http://{server.metrics_address}{path}", headers=names)
    try:
        with urllib.request.urlopen(asked, timeout=60) as reply:
            return reply.status, dict(reply.headers), reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def raw(server: Server, request: bytes) -> bytes:
    host, port = server.metrics_address.split(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def open_to(server: Server) -> socket.socket:
    host, port = server.metrics_address.split(":")
    return socket.create_connection((host, int(port)), 60)
