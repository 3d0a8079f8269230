"""Requests signed as ``AclClientRPCHook`` signs them."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

from support.remoting import Frame, RemotingClient

__all__ = ["sign", "signed"]


def sign(
    fields: Mapping[str, object] | None, body: bytes, key: str, secret: str
) -> dict[str, object]:
    """Return the fields of a request with an account's key and signature."""
    texts = {name: str(value) for name, value in (fields or {}).items()} | {"AccessKey": key}
    content = "".join(texts[name] for name in sorted(texts)).encode() + body
    made = hmac.new(secret.encode(), content, hashlib.sha1).digest()
    return {**texts, "Signature": base64.b64encode(made).decode()}


def signed(
    client: RemotingClient,
    code: int,
    fields: Mapping[str, object] | None = None,
    body: bytes = b"",
    *,
    key: str = "RocketMQ",
    secret: str = "12345678",
) -> Frame:
    """Return the answer to a signed request."""
    return client.ask(code, sign(fields, body, key, secret), body)
