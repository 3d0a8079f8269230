"""What messages are looked up by: keys as the core takes them, and store message ids.

Source: ``common/message/MessageDecoder.java decodeMessageId``.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["key_column", "offset_of"]

_MESSAGE_ID_LENGTHS = (32, 56)
_OFFSET_HEX = 16


def key_column(keys: Iterable[str]) -> object:
    """Return many keys as the core takes them: an Arrow array, or a list."""
    if isinstance(keys, str):
        raise TypeError(f"argument 'keys' is {keys!r}; it may be an iterable of str")
    return keys if hasattr(keys, "__arrow_c_array__") else list(keys)


def offset_of(message_id: str) -> int | None:
    """Return the physical offset that a store message id names, None if it is none."""
    if len(message_id) not in _MESSAGE_ID_LENGTHS or not message_id.isascii():
        return None
    try:
        bytes.fromhex(message_id)
    except ValueError:
        return None
    offset = int(message_id[-_OFFSET_HEX:], 16)
    return offset if offset < 1 << 63 else None
