"""``config/consumerFilter.json``: subscriptions with an expression, and their Bloom bits.

Source: ``broker/filter/ConsumerFilterManager.java``, ``ConsumerFilterData.java``.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqstore.base.arguments import shown
from rmqstore.base.layout import INT32_MAX, INT64_MAX
from rmqstore.brokerfiles.bloom import BloomFilter
from rmqstore.brokerfiles.configfile import ConfigFile
from rmqstore.brokerfiles.fields import file_object, object_of
from rmqstore.files.paths import CONFIG, CONSUMER_FILTER_JSON

if TYPE_CHECKING:
    from rmqstore.config.store_config import StoreConfig

__all__ = ["ConsumerFilter", "ConsumerFilterTable", "bitmap_subscriptions"]

_DEAD_AGO_MS = 30_000  # consumers present when the broker stopped
_CLEAN_AFTER_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class ConsumerFilter:
    """A group's subscription to a topic with an expression."""

    topic: str
    consumer_group: str
    expression: str
    expression_type: str = "SQL92"  # tags make no such subscription
    born_time: int = 0  # ms; bit maps of earlier messages lack it
    dead_time: int = 0  # ms; end of its last consumer, below ``born_time`` while there is one
    client_version: int = 0  # of the newest subscription
    bit_num: int = 0  # of a bit map
    bit_pos: tuple[int, ...] = ()  # bits of this subscription

    @property
    def dead(self) -> bool:
        """Whether the group has no consumer."""
        return self.dead_time >= self.born_time

    def died_before(self, now: int, span: int = _CLEAN_AFTER_MS) -> bool:
        """Whether it has been dead for ``span`` ms."""
        return self.dead and now - self.dead_time >= span

    def belongs_to(self, bloom: BloomFilter) -> bool:
        """Whether its bits are of that filter."""
        return (
            self.bit_num == bloom.bits
            and len(self.bit_pos) == bloom.positions_each
            and all(0 <= at < bloom.bits for at in self.bit_pos)
        )

    @classmethod
    def from_json(cls, topic: str, group: str, entry: Any) -> ConsumerFilter:
        """Return the subscription of an entry; ``ValueError`` if it is invalid."""
        where = f"the filter of {shown(group)} for {shown(topic)}"
        entry = object_of(where, entry)
        bits = entry.get("bloomFilterData") or {}
        if not isinstance(bits, dict) or not isinstance(bits.get("bitPos") or [], list):
            raise ValueError(f"bloomFilterData of {where} must be an object with a list bitPos")
        return cls(
            topic=topic,
            consumer_group=group,
            expression=_text(entry, where, "expression", ""),
            expression_type=_text(entry, where, "expressionType", "SQL92"),
            born_time=_number(entry.get("bornTime"), f"bornTime of {where}"),
            dead_time=_number(entry.get("deadTime"), f"deadTime of {where}"),
            client_version=_number(entry.get("clientVersion"), f"clientVersion of {where}"),
            bit_num=_number(bits.get("bitNum"), f"bitNum of {where}"),
            bit_pos=tuple(
                _number(at, f"bitPos of {where}", INT32_MAX) for at in bits.get("bitPos") or []
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the entry as the broker writes it."""
        return {
            "bloomFilterData": {"bitNum": self.bit_num, "bitPos": list(self.bit_pos)},
            "bornTime": self.born_time,
            "clientVersion": self.client_version,
            "consumerGroup": self.consumer_group,
            "dead": self.dead,
            "deadTime": self.dead_time,
            "expression": self.expression,
            "expressionType": self.expression_type,
            "topic": self.topic,
        }


class ConsumerFilterTable:
    """Subscriptions with an expression, and their file; new ones get bits of ``bloom``."""

    def __init__(self, root: str | os.PathLike[str], bloom: BloomFilter | None = None) -> None:
        self.file = ConfigFile(Path(root) / CONFIG / CONSUMER_FILTER_JSON)
        self.bloom = bloom or BloomFilter()
        self._filters: dict[tuple[str, str], ConsumerFilter] = {}

    @classmethod
    def load(
        cls, root: str | os.PathLike[str], bloom: BloomFilter | None = None, *, now: int
    ) -> ConsumerFilterTable:
        """Read a store's table, as a broker starting at ``now`` (ms): all are dead.

        The table is empty if any entry has bits of another Bloom filter: new bit maps would not
        mean the same. ``StoreCorruptError`` if file and ``.bak`` are torn.
        """
        table = cls(root, bloom)
        filters = table.file.load(_decode) or []
        if all(one.belongs_to(table.bloom) for one in filters):
            for one in filters:
                dead = one.dead_time or max(now - _DEAD_AGO_MS, one.born_time)
                table._filters[one.topic, one.consumer_group] = dataclasses.replace(
                    one, dead_time=dead
                )
        return table

    def save(self, *, now: int) -> None:
        """Write the file, without subscriptions dead for a day at ``now`` (ms)."""
        self._filters = {key: one for key, one in self._filters.items() if not one.died_before(now)}
        self.file.save(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return the JSON to write."""
        topics: dict[str, Any] = {}
        for one in self:
            entry = topics.setdefault(one.topic, {"groupFilterData": {}, "topic": one.topic})
            entry["groupFilterData"][one.consumer_group] = one.to_json()
        return {"filterDataByTopic": topics}

    def register(
        self, group: str, topic: str, expression: str, *, client_version: int, now: int
    ) -> bool:
        """Enter a group's subscription, without writing; ``False`` if there is a newer one.

        REQUIRES: the expression parses.
        """
        bits = tuple(self.bloom.positions(group, topic))
        new = ConsumerFilter(
            topic, group, expression, "SQL92", now, 0, client_version, self.bloom.bits, bits
        )
        old = self._filters.get((topic, group))
        if old is not None and client_version < old.client_version:
            return False
        if old is not None and client_version == old.client_version:
            if not old.dead:
                return False
            new = dataclasses.replace(old, dead_time=0)
        elif old is not None and (old.expression, old.bit_num, old.bit_pos) == (
            expression,
            new.bit_num,
            new.bit_pos,
        ):
            new = dataclasses.replace(old, client_version=client_version, dead_time=0)
        self._filters[topic, group] = new
        return True

    def unregister(self, group: str, *, now: int) -> None:
        """Note the end of a group's last consumer; the file is not written yet."""
        for key, one in self._filters.items():
            if one.consumer_group == group and not one.dead:
                self._filters[key] = dataclasses.replace(one, dead_time=now)

    def get(self, topic: str, group: str) -> ConsumerFilter | None:
        """Return a group's subscription to a topic, ``None`` if it has none."""
        return self._filters.get((topic, group))

    def __iter__(self) -> Iterator[ConsumerFilter]:
        """Iterate over a snapshot of the subscriptions."""
        return iter(list(self._filters.values()))

    def __len__(self) -> int:
        return len(self._filters)


def bitmap_subscriptions(
    root: str, config: StoreConfig, now: int
) -> tuple[dict[str, list[tuple[str, list[int]]]], int]:
    """Return the subscriptions for bit maps: expression and bits by topic, and a map's bytes."""
    bloom = BloomFilter(
        config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
    )
    found: dict[str, list[tuple[str, list[int]]]] = {}
    for one in ConsumerFilterTable.load(root, bloom, now=now):
        texts = (one.topic, one.expression)
        if one.expression_type != "SQL92" or any(map(_has_surrogates, texts)):
            continue
        if not one.died_before(now):
            found.setdefault(one.topic, []).append((one.expression, list(one.bit_pos)))
    return found, bloom.bits // 8


def _has_surrogates(text: str) -> bool:
    """Whether the core refuses a text."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _decode(data: Any) -> list[ConsumerFilter]:
    found = []
    for topic, entry in _object(file_object(data), "filterDataByTopic").items():
        if entry is None:
            continue
        groups = _object(object_of(f"topic {shown(topic)}", entry), "groupFilterData")
        for group, one in groups.items():
            if one is not None:
                found.append(ConsumerFilter.from_json(str(topic), str(group), one))
    return found


def _object(data: dict[str, Any], name: str) -> dict[Any, Any]:
    value = data.get(name)
    return {} if value is None else object_of(name, value)


def _text(entry: dict[str, Any], where: str, name: str, default: str) -> str:
    value = entry.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise ValueError(f"{name} of {where} is {shown(value)}, must be text")
    return value


def _number(value: Any, what: str, most: int = INT64_MAX) -> int:
    if value is None:
        return 0
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{what} is {shown(value)}, must be 0 to {most}")
    return value
