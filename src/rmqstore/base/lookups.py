"""Arguments of lookups: keys as the core takes them, and store message ids.

Source: ``common/message/MessageDecoder.java decodeMessageId``.
"""

from __future__ import annotations

from collections.abc import Iterable

from rmqstore.base.arguments import wrong_type
from rmqstore.base.layout import INT64_MAX

__all__ = ["key_column", "offset_of"]

_MESSAGE_ID_LENGTHS = (32, 56)
_OFFSET_HEX = 16


def key_column(keys: Iterable[str]) -> object:
    """Return keys as the core takes them: an Arrow array, or a list."""
    if isinstance(keys, str):
        raise wrong_type("keys", "an iterable of str", keys)
    return keys if hasattr(keys, "__arrow_c_array__") else list(keys)


def offset_of(message_id: str) -> int | None:
    """Return the physical offset in a store message id, None if invalid."""
    if len(message_id) not in _MESSAGE_ID_LENGTHS or not message_id.isascii():
        return None
    try:
        bytes.fromhex(message_id)
    except ValueError:
        return None
    offset = int(message_id[-_OFFSET_HEX:], 16)
    return offset if offset <= INT64_MAX else None
