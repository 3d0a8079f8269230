"""The messages of a week, each by its number: what it is, who fails it, how a transaction ends."""

from __future__ import annotations

import struct

TOPIC = "orders"
GROUPS = ("billing", "audit")
RETRY_MAX = 3
PLAIN, DELAYED, TRANSACTION = range(3)
COMMITTED, ROLLED_BACK, LEFT = range(3)  # how a transaction ends; what is left is asked for

_NUMBER = struct.Struct(">q")
_PADDING = b"x" * 72


def mixed(number: int) -> int:
    """A number that looks drawn, the same each time."""
    return (number * 2654435761 ^ number >> 7) & 0xFFFFFFFF


def kind(number: int) -> int:
    part = mixed(number) % 1000
    return DELAYED if part < 4 else TRANSACTION if part < 6 else PLAIN


def level(number: int) -> int:
    """1 to 18, mostly low ones."""
    return 1 + mixed(number) // 1000 % 18


def end(number: int) -> int:
    return mixed(number) // 1000 % 3


def is_delivered(number: int) -> bool:
    """Whether each group must get it, or its dead letters."""
    if kind(number) != TRANSACTION or end(number) == COMMITTED:
        return True
    return end(number) == LEFT and number % 2 == 0  # what the check answers


def fails(number: int, group: str, times: int) -> bool:
    """Whether a group cannot handle it yet, having tried so many times."""
    part = mixed(number + len(group)) // 7 % 5000
    return part == 0 or (part == 1 and times < 2)


def body(number: int) -> bytes:
    return _NUMBER.pack(number) + _PADDING


def number_of(body: bytes) -> int:
    return int(_NUMBER.unpack_from(body)[0])
