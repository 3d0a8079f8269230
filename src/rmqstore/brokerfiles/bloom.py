"""Bloom filter of consumers that filter by expressions: a few bits for each group and topic.

Source: ``filter/util/BloomFilter.java``; Guava's ``Hashing.murmur3_128``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rmqstore.base.layout import INT32_MAX

__all__ = ["BloomFilter", "murmur3_128"]

_64 = (1 << 64) - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


@dataclass(frozen=True)
class BloomFilter:
    """Size of a Bloom filter, and the bits of a group's subscription to a topic."""

    error_percent: int = 20  # ``maxErrorRateOfBloomFilter``, 1 to 99: false positives in 100 tests
    # ``expectConsumerNumUseFilter``, 1 or more: subscriptions sharing the bits.
    expected: int = 32

    @property
    def positions_each(self) -> int:
        """Bits of one subscription."""
        return math.ceil(math.log(self.error_percent / 100) / math.log(0.5))

    @property
    def bits(self) -> int:
        """Total bits, a multiple of 8."""
        inverse = math.log(1 / (self.error_percent / 100)) / math.log(2)
        return 8 * math.ceil(math.ceil(self.expected * inverse * (1 / math.log(2))) / 8)

    def positions(self, group: str, topic: str) -> list[int]:
        """Return the bits of a group's subscription to a topic; duplicates are possible."""
        low, _ = murmur3_128(f"{group}#{topic}".encode("utf-8", "replace"))
        first, step = _int32(low), _int32(low >> 32)
        found = []
        for i in range(1, self.positions_each + 1):
            combined = _int32(first + i * step)
            found.append((~combined if combined < 0 else combined) % self.bits)
        return found


def murmur3_128(data: bytes) -> tuple[int, int]:
    """Return both halves of MurmurHash3 for x64, seed 0, each 0 to 2**64 - 1."""
    first = second = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        first ^= _mix_first(int.from_bytes(data[at : at + 8], "little"))
        first = ((_rotate(first, 27) + second) * 5 + 0x52DCE729) & _64
        second ^= _mix_second(int.from_bytes(data[at + 8 : at + 16], "little"))
        second = ((_rotate(second, 31) + first) * 5 + 0x38495AB5) & _64
    second ^= _mix_second(int.from_bytes(data[whole + 8 :], "little"))
    first ^= _mix_first(int.from_bytes(data[whole : whole + 8], "little"))
    first ^= len(data)
    second ^= len(data)
    first = (first + second) & _64
    second = (second + first) & _64
    first, second = _finish(first), _finish(second)
    first = (first + second) & _64
    return first, (second + first) & _64


def _mix_first(word: int) -> int:
    return (_rotate(word * _C1 & _64, 31) * _C2) & _64


def _mix_second(word: int) -> int:
    return (_rotate(word * _C2 & _64, 33) * _C1) & _64


def _rotate(word: int, by: int) -> int:
    return (word << by | word >> (64 - by)) & _64


def _finish(word: int) -> int:
    word = ((word ^ word >> 33) * 0xFF51AFD7ED558CCD) & _64
    word = ((word ^ word >> 33) * 0xC4CEB9FE1A85EC53) & _64
    return word ^ word >> 33


def _int32(value: int) -> int:
    """Return the low 32 bits as Java's ``int``."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value > INT32_MAX else value
