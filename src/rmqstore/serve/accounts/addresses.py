"""Addresses exempt from signatures, in the syntax of ``plain_acl.yml``.

Source: ``acl/plain/RemoteAddressStrategyFactory.java``, ``acl/common/AclUtils.java``.
"""

from __future__ import annotations

import ipaddress

__all__ = ["AddressRule"]

_ALL = frozenset(("*", "*.*.*.*", "*:*:*:*:*:*:*:*"))
_V4_PARTS = 4
_V6_PARTS = 8


class AddressRule:
    """Rule for addresses; an empty text matches nothing, an invalid one is a ``ValueError``.

    ``192.168.0.1``, ``192.168.0.1,192.168.0.2``, ``192.168.0.{1,2}``, ``192.168.0.*``,
    ``192.168.1-10.*`` or ``*``; the same with colons for IPv6.
    """

    __slots__ = ("_everything", "_patterns")

    def __init__(self, text: str) -> None:
        text = text.strip()
        self._everything = text in _ALL
        self._patterns = [] if self._everything else [_pattern(one) for one in _each(text)]

    def matches(self, host: str) -> bool:
        """Whether an address matches."""
        if self._everything:
            return True
        parts = _parts(host) if self._patterns else []
        return any(
            len(parts) == len(pattern)
            and all(low <= part <= high for part, (low, high) in zip(parts, pattern, strict=True))
            for pattern in self._patterns
        )


def _each(text: str) -> list[str]:
    """Return the addresses listed in a rule."""
    if text.endswith("}"):
        prefix, brace, rest = text[:-1].partition("{")
        if not brace:
            raise ValueError(f"address {text!r} must have its braces in pairs")
        return [prefix + one.strip() for one in rest.split(",")]
    return [one.strip() for one in text.split(",")] if text else []


def _parts(host: str) -> list[int]:
    """Return the numbers of an address; none if it is invalid."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return []
    if isinstance(address, ipaddress.IPv4Address):
        return list(address.packed)
    if address.ipv4_mapped is not None:
        return list(address.ipv4_mapped.packed)
    packed = address.packed
    return [packed[at] << 8 | packed[at + 1] for at in range(0, 2 * _V6_PARTS, 2)]


def _pattern(text: str) -> list[tuple[int, int]]:
    """Return the bounds of each number in a pattern."""
    plain = _parts(text)
    if plain:
        return [(part, part) for part in plain]
    base, most, count = (16, 0xFFFF, _V6_PARTS) if ":" in text else (10, 0xFF, _V4_PARTS)
    pieces = text.split(":" if base == 16 else ".")
    bounds = []
    for piece in pieces:
        low, dash, high = piece.partition("-")
        try:
            bounds.append(
                (0, most) if piece == "*" else (int(low, base), int(high if dash else low, base))
            )
        except ValueError:
            bounds.append((-1, -1))
    if len(bounds) != count or any(not 0 <= low <= high <= most for low, high in bounds):
        raise ValueError(f"address {text!r} must be one, or have * or ranges in the place of parts")
    return bounds
