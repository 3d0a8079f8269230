"""Messages in the body of a send: properties, and the parts of a batch.

Source: ``common/message/MessageDecoder.java string2messageProperties``, ``decodeMessages``.
"""

from __future__ import annotations

import struct

from rmqstore.serve.wire.codes import ResponseCode
from rmqstore.serve.wire.frames import Refusal

__all__ = ["ILLEGAL", "parse_properties", "parts_of_batch"]

# Of one message: 32,767 bytes can be stored, and each property has at least four.
_MOST_PROPERTIES = 1 << 13
_PART = struct.Struct(">iiiii")  # of a batch: size, magic, sum, flag, body length
_RECORD_MORE = 69  # least bytes of a record that are not in the batch
_LENGTH = struct.Struct(">h")
ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit 128k, msg properties length limit 32k."
)


def parse_properties(string: str) -> dict[str, str]:
    """Return the valid properties of a string, as stored; ``Refusal`` if there are too many."""
    if string.count("\2") > _MOST_PROPERTIES:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, ILLEGAL)
    found = {}
    for item in string.split("\2"):
        name, _, value = item.partition("\1")
        if name and value:
            found[name] = value
    return found


def parts_of_batch(body: bytes, most: int) -> list[tuple[bytes, str, int]]:
    """Return body, properties and flag of each message of a batch.

    A message's own total size and checksum are ignored, as by a broker. ``Refusal`` as soon as
    the records exceed ``most`` bytes: there may be 190,000 messages.
    """
    rows = []
    at = 0
    try:
        while at < len(body):
            _, _, _, flag, length = _PART.unpack_from(body, at)
            begin = at + _PART.size
            if not 0 <= length <= len(body) - begin:
                raise ValueError("a body that is longer than the batch")
            (named,) = _LENGTH.unpack_from(body, begin + length)
            tail = begin + length + _LENGTH.size
            if not 0 <= named <= len(body) - tail:
                raise ValueError("properties that are longer than the batch")
            own = body[tail : tail + named].decode()
            rows.append((body[begin : begin + length], own, flag))
            at = tail + named
            if at + len(rows) * _RECORD_MORE > most:
                raise Refusal(ResponseCode.MESSAGE_ILLEGAL, ILLEGAL)
    except (ValueError, struct.error) as error:
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL, f"message {len(rows)} of the batch at {at}: {error}"
        ) from None
    if not rows:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "the batch has no message")
    return rows
