"""Ours against what the real store reads of the same directory, with every comparison counted."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter, defaultdict
from typing import Any

from interop import traffic, writers
from interop.driver import StoreReader, Unit, host
from support.oracle import SCHEDULE_TOPIC

SAME_NAMES = [
    *("topic", "queue_id", "queue_offset", "physical_offset", "store_size", "flag", "sys_flag"),
    *("born_timestamp", "store_timestamp", "reconsume_times", "prepared_transaction_offset"),
    *("body_crc", "msg_id", "properties"),
]
ROLLBACK = 0xC
COMPRESSED = 0x1
Queues = dict[tuple[str, int], list[Unit]]


def sha1(data: Any) -> str:
    """As the drivers give it: base64."""
    return base64.b64encode(hashlib.sha1(data).digest()).decode()


def by_queue(units: list[Unit]) -> Queues:
    """Units by topic and queue id, in order."""
    queues: Queues = defaultdict(list)
    for unit in units:
        queues[unit.topic, unit.queue_id].append(unit)
    return dict(queues)


def message(ours: Any, record: dict[str, Any], tally: Counter) -> None:
    """Compare one message with the record as the real store decodes it, in every column."""
    for name in SAME_NAMES:
        assert getattr(ours, name) == record[name], (name, record["physical_offset"])
    assert host(ours.born_host) == host(record["born_host"])
    assert host(ours.store_host) == host(record["store_host"])
    assert sha1(ours.raw_body) == record["body_sha1"], record["physical_offset"]
    properties = record["properties"]
    assert ours.tags == properties.get("TAGS")
    assert list(ours.keys) == [key for key in properties.get("KEYS", "").split(" ") if key]
    assert ours.uniq_key == properties.get("UNIQ_KEY")
    tally["records"] += 1
    tally["fields"] += len(SAME_NAMES) + 6


def queues(store: Any, units: list[Unit], tally: Counter, *, whole: bool = True) -> None:
    """Compare every unit and every record.

    Without ``whole`` ours may have more behind: the real store was asked while it went on.
    """
    theirs = by_queue(units)
    mine = {
        (name, queue_id): queue
        for name, topic in store.topics.items()
        for queue_id, queue in topic.items()
        if len(queue)
    }
    assert sorted(mine) == sorted(theirs) or (not whole and set(theirs) <= set(mine))
    for place, expected in theirs.items():
        queue = mine[place]
        start, stop = expected[0].queue_offset, expected[-1].queue_offset + 1
        assert queue.min_offset == start
        assert queue.max_offset == stop or (not whole and queue.max_offset > stop)
        stored = [tuple(unit) for unit in queue.units(start, stop).tolist()]
        assert stored == [unit[3:6] for unit in expected], place
        tally["units"] += len(stored)
        for ours, unit in zip(queue[start:stop], expected, strict=True):
            message(ours, unit.record, tally)


def keys_of(units: list[Unit]) -> tuple[dict, dict]:
    """(topic, key) to physical offsets, newest first, and physical offset to such pairs."""
    places: dict[tuple[str, str], set[int]] = defaultdict(set)
    pairs: dict[int, set[tuple[str, str]]] = {}
    for unit in units:
        record = unit.record
        assert record is not None
        if record["sys_flag"] & ROLLBACK == ROLLBACK:
            continue
        properties = record["properties"]
        keys = {properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")} - {None, ""}
        pairs[unit.physical_offset] = {(record["topic"], key) for key in keys}
        for pair in pairs[unit.physical_offset]:
            places[pair].add(unit.physical_offset)
    return {pair: sorted(hits, reverse=True) for pair, hits in places.items()}, pairs


def keys(
    store: Any, units: list[Unit], tally: Counter, real: StoreReader | None, *options: bool
) -> None:
    """Find by every key, and compare with the real index too if there is one that lost nothing."""
    places, pairs = keys_of(units)
    by_topic: dict[str, list[str]] = defaultdict(list)
    for topic, key in places:
        by_topic[topic].append(key)
    for index_only in options or (False,):
        for topic, names in by_topic.items():
            offsets, starts = store.locate_many(topic, names, index_only=index_only)
            for n, key in enumerate(names):
                found = offsets[starts[n] : starts[n + 1]].tolist()
                assert found == places[topic, key], (topic, key, index_only)
            tally["keys"] += len(names)
    for topic, names in by_topic.items():
        for key in names[:: max(1, len(names) // 40)]:
            found = [m.physical_offset for m in store.query(topic, key)]
            assert found == places[topic, key]
            tally["keys"] += 1
    if real is not None:
        for pair, hits in zip(places, real.locate(list(places)), strict=True):
            assert {hit for hit in hits if pair in pairs[hit]} == set(places[pair]), pair
            tally["keys"] += 1


def tags(store: Any, units: list[Unit], tally: Counter) -> None:
    """``get`` of whole queues with each tag that is there, and with several."""
    for (topic, queue_id), expected in by_queue(units).items():
        named = [_named(unit) for unit in expected]
        there = sorted({name for name in named if name})
        for wanted in [*([name] for name in there), [*there[::2], "no such tag"], []]:
            offset, found = expected[0].queue_offset, []
            expression = " || ".join(wanted) or "*"
            while True:
                got = store.get(topic, queue_id, offset, 200, tags=expression)
                found += [m.physical_offset for m in got.messages]
                if got.next_offset <= offset or got.next_offset > expected[-1].queue_offset:
                    break
                offset = got.next_offset
            assert found[: len(expected)] == [
                unit.physical_offset
                for unit, name in zip(expected, named, strict=True)
                if not wanted or name in wanted
            ], (topic, queue_id, expression)
            tally["gets"] += 1


def _named(unit: Unit) -> str | None:
    """The tag that the unit can be found by: delayed messages have a time where its hash is."""
    assert unit.record is not None
    name = unit.record["properties"].get("TAGS")
    code = writers.java_hash(name or "") & 0xFFFFFFFF
    return name if name and code == unit.tags_code & 0xFFFFFFFF else None


def answers(store: Any, real: StoreReader, units: list[Unit], tally: Counter) -> None:
    """``getMessage``'s statuses and offsets around both ends, and tags by the real filter."""
    for (topic, queue_id), expected in by_queue(units).items():
        start, stop = expected[0].queue_offset, expected[-1].queue_offset + 1
        for offset in {start, stop - 1, stop, stop + 1, stop + 100}:
            theirs, ours = real.get(topic, queue_id, offset, 1), store.get(topic, queue_id, offset)
            assert ours.status.name == theirs.status, (topic, queue_id, offset)
            assert (ours.min_offset, ours.max_offset) == (theirs.min_offset, theirs.max_offset)
            if theirs.status != "FOUND":
                assert ours.next_offset == theirs.next_offset
            tally["gets"] += 1
        theirs = real.get(topic, queue_id, start, 32, "paid || Aa")
        ours = store.get(topic, queue_id, start, 32, tags="paid || Aa")
        # The real store compares the hash alone; its client drops the others, ours does at once.
        kept = [r for r in theirs.records if r["properties"].get("TAGS") in ("paid", "Aa")]
        found = [m.physical_offset for m in ours.messages]
        assert [r["physical_offset"] for r in kept] == found[: len(kept)]
        assert found or not kept
        tally["gets"] += 1


def times(store: Any, real: StoreReader, units: list[Unit], tally: Counter, per_file: int) -> None:
    """Offsets by time where 4.9.3 has one file to look in; it picks one by file time first."""
    for (topic, queue_id), expected in by_queue(units).items():
        first, last = expected[0].queue_offset, expected[-1].queue_offset
        if first // per_file != last // per_file:
            continue
        stored = [unit.record["store_timestamp"] for unit in expected]
        asked = sorted({stored[0] - 1000, *stored, *(t + 1 for t in stored), stored[-1] + 1000})
        asked = asked[:: max(1, len(asked) // 100)]
        queue = store[topic][queue_id]
        for at, theirs in zip(asked, real.offsets_at(topic, queue_id, asked), strict=True):
            ours = queue.offset_at(at, boundary="nearest")
            assert abs(stored[ours - first] - at) == abs(stored[theirs - first] - at)
            lower = next((n for n, t in enumerate(stored) if t >= at), len(stored)) + first
            assert queue.offset_at(at) == lower
            tally["times"] += 2


def sent(store: Any, messages: list[Any], tally: Counter) -> None:
    """Compare with what clients sent: every message, its body inflated."""
    for one in messages:
        if one.transaction:
            halves = store.query(traffic.HALF_TOPIC, one.uniq_key)
            assert halves, one
            found = store.query(one.topic, one.uniq_key)
            assert len(found) == (1 if one.committed else 0), one
            records = halves + found
        else:
            records = [store.message(one.msg_id)]
            first = records[0]
            assert first.msg_id == one.msg_id
            assert first.queue_offset == one.queue_offset
            if one.delay_level:
                assert (first.topic, first.queue_id) == (
                    SCHEDULE_TOPIC,
                    one.delay_level - 1,
                )
                delivered = store.query(one.topic, one.uniq_key)
                assert len(delivered) == (one.delay_level in (1, 2)), one
                records += delivered
            else:
                assert (first.topic, first.queue_id) == (one.topic, one.queue_id)
        for record in records:
            content(record, one)
        tally["sends"] += 1
        tally["bodies"] += len(records)


def content(record: Any, one: Any) -> None:
    """Compare one record of a message with what was sent."""
    assert record.body == one.body, one.uniq_key
    assert bool(record.sys_flag & COMPRESSED) == (len(one.body) > traffic.COMPRESSED_OVER)
    assert (record.uniq_key, record.tags) == (one.uniq_key, one.tags)
    assert list(record.keys) == one.keys
    properties = record.properties
    # The broker puts a half message back for its check without the flag, and commits that copy.
    assert record.flag == one.flag or (one.transaction and record.flag == 0)
    assert one.properties.items() <= properties.items()
    if record.topic != one.topic:
        assert properties["REAL_TOPIC"] == one.topic


def consumed(store: Any, rows: list[Any], tally: Counter) -> None:
    """Compare with what a consumer got: the same message at the same place."""
    for row in rows:
        record = store.at(row.physical_offset)
        assert sha1(record.body) == row.body_sha1, row
        assert record.queue_id == row.queue_id
        assert record.queue_offset == row.queue_offset
        assert record.reconsume_times == row.reconsume_times
        assert record.topic in (row.topic, record.topic if row.reconsume_times else row.topic)
        for name, value in record.properties.items():
            # A consumer's own library writes these anew.
            if name not in ("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "WAIT"):
                assert row.properties.get(name) == value, (row, name)
        tally["consumed"] += 1


def loaded(store: Any, rows: list[Any], tally: Counter) -> None:
    """Compare with what the background load was told to be stored."""
    for row in rows:
        assert row.status == "SEND_OK"
        record = store.message(row.msg_id)
        assert (record.topic, record.queue_id) == (row.topic, row.queue_id)
        assert (record.queue_offset, record.uniq_key) == (row.queue_offset, row.uniq_key)
        assert sha1(record.body) == row.body_sha1
        tally["sends"] += 1


def subscribed(store: Any, topic: str, names: tuple[str, ...]) -> set[int]:
    """Physical offsets of what a subscription to these tags must get of a topic, by ours."""
    found: set[int] = set()
    for queue_id, queue in store[topic].items():
        if len(queue):
            got = store.get(topic, queue_id, queue.min_offset, len(queue), tags=" || ".join(names))
            while got.messages or got.next_offset < got.max_offset:
                found |= {m.physical_offset for m in got.messages}
                got = store.get(
                    topic, queue_id, got.next_offset, len(queue), tags=" || ".join(names)
                )
    return found
