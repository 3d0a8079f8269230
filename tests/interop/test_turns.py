"""One store, owned by rmqstore and by the real DefaultMessageStore 4.9.3 in turns.

``RMQSTORE_TURNS`` is how often it changes hands, ``RMQSTORE_INTEROP_SEED`` repeats the traffic of
a run that failed.  A third of the owners are killed while they write.

Where 4.9.3 itself loses something, the test tells which of the faults named in ``checks`` it was,
and lets nothing else pass.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import random
import select
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from interop import checks, turns
from interop.driver import Driver, Put, Unit, copy, host
from interop.writers import java_hash

pytestmark = pytest.mark.long

TURNS = int(os.environ.get("RMQSTORE_TURNS", "20"))
PATIENCE = 60  # seconds for any step of our child
CONFIG = {**turns.SIZES, "maxMsgsNumBatch": 1 << 14}
NAMES = [
    *("topic", "queue_id", "queue_offset", "physical_offset", "store_size", "flag", "sys_flag"),
    *("born_timestamp", "store_timestamp", "reconsume_times", "prepared_transaction_offset"),
    *("body_crc", "msg_id", "born_host", "store_host", "body_sha1", "properties"),
]
PARTS = ("commitlog", "index", "consumequeue/Topic1/0")  # of these there must be several files
ENOUGH_TO_ROLL = 20  # turns
OLD_KEYS = 150  # so many of the keys of earlier turns the real store is asked for each time
OUR_KEYS = 120  # so many of these ours is: what 4.9.3 has destroyed it must look for in the log
IN_DOUBT = 30  # messages of the calls that were under way when their writer was killed
BORN_V6, STORE_V6 = 0x10, 0x20
Place = tuple[str, int, int]
Row = tuple[Any, ...]  # physical offset, size and tags code of the unit, NAMES of the record
same_host = lru_cache(maxsize=None)(host)


def real_map(units: list[Unit]) -> dict[Place, Row]:
    rows = {}
    for unit in units:
        record = unit.record
        assert record is not None, unit
        for name in ("born_host", "store_host"):
            record[name] = same_host(record[name])
        rows[unit[:3]] = (*unit[3:6], *(record[name] for name in NAMES))
    assert len(rows) == len(units)
    return rows


def our_map(store: Any) -> dict[Place, Row]:
    rows = {}
    for name, topic in store.topics.items():
        for queue_id, queue in topic.items():
            start, stop = queue.min_offset, queue.max_offset
            units = queue.units(start, stop).tolist()
            got = store.get(name, queue_id, start, stop - start + 1).messages
            for offset, unit, m in zip(range(start, stop), units, got, strict=True):
                rows[name, queue_id, offset] = (
                    *unit,
                    *(getattr(m, each) for each in NAMES[:13]),
                    same_host(m.born_host),
                    same_host(m.store_host),
                    base64.b64encode(hashlib.sha1(m.raw_body).digest()).decode(),
                    m.properties,
                )
    return rows


def assert_same(ours: dict[Place, Row], theirs: dict[Place, Row], when: str) -> None:
    if ours != theirs:
        differ = [p for p in ours.keys() | theirs.keys() if ours.get(p) != theirs.get(p)]
        place = min(differ)
        raise AssertionError(
            f"{when}: {len(differ)} of {len(theirs)} rows differ, the first is {place}:\n"
            f"ours   {ours.get(place)}\nin the real store {theirs.get(place)}"
        )


class Our:
    """Our side's writer in a process of its own, the store open and nothing written yet."""

    def __init__(self, root: Path, turn: int, end: str) -> None:
        self._reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, turns.PIPE_BYTES)
        self._unread = b""
        self.process = subprocess.Popen(
            [sys.executable, turns.__file__, str(root), str(writing), str(turn), end],
            pass_fds=[writing],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        os.close(writing)

    def said(self) -> Iterator[Any]:
        """Each line until its end; a torn last one is nothing."""
        while True:
            line, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread = rest
                yield json.loads(line)
                continue
            if not select.select([self._reading], [], [], PATIENCE)[0]:
                raise AssertionError("our writer is silent")
            data = os.read(self._reading, 1 << 16)
            if not data:
                return
            self._unread += data

    def close(self) -> tuple[int, str]:
        """End it, however it is; exit status and what it complained of."""
        self.process.kill()
        _, error = self.process.communicate(timeout=PATIENCE)
        with contextlib.suppress(OSError):
            os.close(self._reading)
        return self.process.returncode, error.decode(errors="replace")


class Turns:
    def __init__(self, directory: Path, start: Callable[[], Driver], seed: str) -> None:
        self.root = directory / "store"
        self.copied = directory / "copy"
        self.start = start
        self.random = random.Random(f"{seed} turns")
        self.agreed: dict[Place, Row] = {}
        self.names: dict[str, Place] = {}  # of all that was agreed on
        self.acknowledged: dict[str, tuple[Place, int | None]] = {}
        self.unqueued: dict[str, int] = {}  # prepared and rolled back ones by physical offset
        self.wanted: dict[tuple[str, str], set[int]] = defaultdict(set)
        self.keys_of: dict[int, set[tuple[str, str]]] = {}
        self.killed: set[int] = set()
        self.index_destroyed_before = 0  # INDEX_DESTROYED: keys of smaller offsets may be missing
        self.delay_forgotten: set[Place] = set()  # DELAY_FORGOTTEN: units of these
        self.new: list[str] = []  # at the last hand-over
        self.counts: Counter[str] = Counter()

    # ---- writing

    def acknowledge(self, lines: list[list[Any]]) -> None:
        for name, place, physical_offset in lines:
            assert name not in self.acknowledged
            if turns.is_queued(turns.message_of(name)):
                self.acknowledged[name] = (tuple(place), physical_offset)
            else:
                self.unqueued[name] = physical_offset

    def ours(self, turn: int, kill: bool) -> None:
        """Open, show that nothing has changed by that, write, and close or be killed."""
        child = Our(self.root, turn, "kill" if kill else "close")
        try:
            said = child.said()
            assert next(said, None) == "open", child.close()
            if turn:
                self.read_ours(f"turn {turn}, opened by ours")
            child.process.stdin.write(b"\n")
            child.process.stdin.flush()
            last = self.random.randint(3, 60)
            for number, line in enumerate(said):
                if kill and number == last:
                    child.process.kill()
                if line != "closed":
                    self.acknowledge(line)
        finally:
            if not kill:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(timeout=PATIENCE)
            status, error = child.close()
        assert status == (-9 if kill else 0), error

    def requests(self, turn: int) -> list[dict[str, Any]]:
        names = turns.Names(turn, 0)
        made = []
        for _ in range(30):
            kind = names.random.random()
            if kind < 0.8:
                some = [names.some(names.random.choice("pppppt"))[0] for _ in range(4)]
                made.append({"op": "append", "wait": False, "names": some})
            else:
                some = names.some("b", names.random.randint(1, 5))
                leader = turns.message_of(some[0])
                fields = {each: leader[each] for each in ("topic", "queue_id", "store_host")}
                made.append({"op": "batch", "names": some, **fields})
            made[-1]["messages"] = [real_message(name) for name in some]
        return made

    def answered(self, requests: list[dict[str, Any]], answers: list[list[Put]]) -> None:
        for request, rows in zip(requests, answers, strict=False):
            assert {row.status for row in rows} <= {"PUT_OK"}, rows
            if request["op"] == "batch" and rows:
                physical = [int(one[-16:], 16) for one in rows[0].msg_id.split(",")]
                offsets = range(rows[0].queue_offset, rows[0].queue_offset + len(physical))
            else:
                physical = [row.physical_offset for row in rows]
                offsets = [row.queue_offset for row in rows]
            for name, at, offset in zip(request["names"], physical, offsets, strict=False):
                place = (*turns.queue_of(turns.message_of(name)), offset)
                self.acknowledge([[name, place, at]])

    def theirs(self, turn: int, kill: bool) -> None:
        """Write with the real store, which is open, and close or kill it; learn what it has."""
        real = self.start()
        requests = self.requests(turn)
        if not kill:
            rows = []
            for request in requests:
                messages = request["messages"]
                if request["op"] == "append":
                    rows.append(real.append(messages, wait=False))
                else:
                    names = ("topic", "queue_id", "store_host")
                    fields = {name: request[name] for name in names}
                    rows.append([real.batch(messages=messages, **fields)])
            self.answered(requests, rows)
            self.take(self.corrected(real_map(real.dump())), f"turn {turn}")
            self.real_keys(real)
            assert real.shutdown()
            return
        sent = [{k: v for k, v in request.items() if k != "names"} for request in requests]
        answers = real.killed_at_work(sent, self.random.randint(1, 25))
        self.answered(requests, answers)
        real = self.start()
        lost, forgotten = self.index_destroyed_before, set(self.delay_forgotten)
        try:
            copied = copy(self.root, self.copied)
            self.finished(real, copied)
            self.opened_by_real(real, copied, turn)
            assert real.shutdown()
        finally:
            shutil.rmtree(self.copied, ignore_errors=True)
        self.index_destroyed_before, self.delay_forgotten = lost, forgotten  # of the copy only

    # ---- what is there

    def finished(self, real: Driver, root: Path) -> None:
        """Remove the files without bytes for which the real store refuses what it left itself."""
        unfinished = checks.unfinished_files(root)
        if not unfinished:
            return
        assert not real.open(root, CONFIG)["load"]
        assert any(str(path) in real.log() for path in unfinished), real.log()
        for path in unfinished:
            path.unlink()
        self.counts["times FILE_UNFINISHED"] += 1

    def opened_by_real(self, real: Driver, root: Path, turn: int) -> None:
        dispatched = checks.delayed_units(root)
        survives_from = checks.index_survives_from(root)
        self.counts["times INDEX_DESTROYED"] += survives_from > 0
        self.index_destroyed_before = max(self.index_destroyed_before, survives_from)
        opened = real.open(root, CONFIG)
        assert opened["load"], real.log()
        assert opened["start"]
        assert opened["clean"] == (turn not in self.killed)
        rows = real_map(real.dump())
        if turn in self.killed:
            for place, row in rows.items():
                if place not in dispatched and row[2] != corrected(place, row)[2]:
                    self.delay_forgotten.add(place)
                    self.counts["times DELAY_FORGOTTEN"] += 1
        self.take(self.corrected(rows), f"turn {turn}")
        self.real_keys(real)

    def corrected(self, rows: dict[Place, Row]) -> dict[Place, Row]:
        """The rows without DELAY_FORGOTTEN where it is known to have been."""
        return rows | {
            place: corrected(place, rows[place]) for place in self.delay_forgotten if place in rows
        }

    def read_ours(self, when: str) -> None:
        with rmqstore.open(self.root, "r") as store:
            ours = self.corrected(our_map(store))
            assert_same(ours, self.agreed, when)
            self.our_keys(store)
        self.counts["messages"] += len(ours)

    def take(self, rows: dict[Place, Row], when: str) -> None:
        """Compare what the real store has with all that is known; learn what is new."""
        for place, row in self.agreed.items():
            assert rows.get(place) == row, f"{when}: {place} was {row}, is {rows.get(place)}"
        self.new = []
        ends: Counter[tuple[str, int]] = Counter()
        for place in rows:
            assert place[2] == ends[place[:2]], f"{when}: {place} after {ends[place[:2]]}"
            ends[place[:2]] += 1
        for place, row in rows.items():
            if place not in self.agreed:
                name = check_row(place, row)
                assert name not in self.names, f"{when}: {name} is there twice"
                turn = int(name.partition(".")[0])
                assert name in self.acknowledged or turn in self.killed, f"{when}: {name} is new"
                self.names[name] = place
                self.new.append(name)
                self.learn_keys(row[0], row[3], dict(zip(NAMES, row[3:], strict=True)))
        in_doubt = [name for name in self.new if name not in self.acknowledged]
        assert len(in_doubt) <= IN_DOUBT, f"{when}: nobody acknowledged {in_doubt}"
        for name, (place, physical_offset) in self.acknowledged.items():
            assert self.names.get(name) == place, f"{when}: {name} was acknowledged at {place}"
            assert physical_offset in {None, rows[place][0]}
        self.agreed = rows

    def learn_keys(self, offset: int, topic: str, record: dict[str, Any]) -> None:
        properties = record["properties"]
        keys = {*properties.get("KEYS", "").split(" "), properties.get("UNIQ_KEY")} - {None, ""}
        self.keys_of[offset] = {(topic, key) for key in keys}
        for key in self.keys_of[offset]:
            self.wanted[key].add(offset)

    def some_keys(self) -> list[tuple[str, str]]:
        new = {key for name in self.new for key in self.keys_of[self.agreed[self.names[name]][0]]}
        old = self.random.sample(sorted(self.wanted), min(OLD_KEYS, len(self.wanted)))
        return sorted(new.union(old))

    def our_keys(self, store: Any) -> None:
        """Every key is found by ours, whoever wrote and whatever became of the index files."""
        keys = self.some_keys()
        keys = self.random.sample(keys, min(OUR_KEYS, len(keys)))
        for topic, key in keys:
            found = [message.physical_offset for message in store.query(topic, key)]
            unqueued = self.check_unqueued(store, found, key)
            wanted = sorted(self.wanted[topic, key], reverse=True)
            assert [hit for hit in found if hit not in unqueued] == wanted, (topic, key)
        for name, offset in self.unqueued.items():
            assert store.at(offset).keys[0] == name
        for topic, name, offset, indexed in self.some_unqueued():
            found = [message.physical_offset for message in store.query(topic, name)]
            assert found == ([offset] if indexed else []), name
        self.counts["keys"] += len(keys)

    def some_unqueued(self) -> list[tuple[str, str, int, bool]]:
        """Topic, name and offset of some that are in no queue, and whether it is in the index."""
        names = self.random.sample(sorted(self.unqueued), min(10, len(self.unqueued)))
        some = [(name, turns.message_of(name)) for name in names]
        return [
            (m["topic"], name, self.unqueued[name], m["sys_flag"] == turns.PREPARED)
            for name, m in some
        ]

    def check_unqueued(self, store: Any, hits: list[int], key: str) -> set[int]:
        """Hits that are in no queue: prepared ones, which are indexed all the same."""
        unqueued = {hit for hit in hits if hit not in self.keys_of}
        for hit in unqueued:
            message = store.at(hit)
            assert message.sys_flag & turns.ROLLBACK == turns.PREPARED
            assert turns.message_of(message.keys[0])["sys_flag"] == turns.PREPARED
            assert key in message.keys or key == message.uniq_key
        return unqueued

    def real_keys(self, real: Driver) -> None:
        keys = self.some_keys()
        for key, hits in zip(keys, real.locate(keys), strict=True):
            found = {hit for hit in hits if key in self.keys_of.get(hit, ())}
            missing = self.wanted[key] - found
            assert found <= self.wanted[key]
            assert all(offset < self.index_destroyed_before for offset in missing), (
                f"{key}: the real index lacks {sorted(missing)}, and INDEX_DESTROYED explains "
                f"only what is below {self.index_destroyed_before}"
            )
            self.counts["keys missing by INDEX_DESTROYED"] += bool(missing)
        some = self.some_unqueued()
        hits_of = real.locate([(topic, name) for topic, name, *_ in some])
        for (_, name, offset, indexed), hits in zip(some, hits_of, strict=True):
            assert (offset in hits) == indexed or offset < self.index_destroyed_before, name
        self.counts["keys"] += len(keys)


def corrected(place: Place, row: Row) -> Row:
    """The row with the time to deliver at where it has the hash of its tags instead."""
    record = dict(zip(NAMES, row[3:], strict=True))
    tags = record["properties"].get("TAGS")
    if place[0] != turns.SCHEDULE_TOPIC or row[2] != (java_hash(tags) if tags else 0):
        return row
    return (*row[:2], record["store_timestamp"] + turns.LEVELS[place[1] + 1], *row[3:])


def real_message(name: str) -> dict[str, Any]:
    """The message as the driver takes it."""
    m = dict(turns.message_of(name))
    properties = {**m["properties"], "KEYS": " ".join(m.pop("keys"))}
    tags, uniq_key = m.pop("tags"), m.pop("uniq_key")
    if tags is not None:
        properties["TAGS"] = tags
    if uniq_key is not None:
        properties["UNIQ_KEY"] = uniq_key
    m["properties"] = properties
    return {each: value for each, value in m.items() if value is not None}


def check_row(place: Place, row: Row) -> str:
    """Compare one message with what was sent; return its name."""
    record = dict(zip(NAMES, row[3:], strict=True))
    properties = dict(record["properties"])
    name = properties["KEYS"].split(" ")[0]
    m = turns.message_of(name)
    kind = name.partition("@")[0][-1]
    assert turns.is_queued(m)
    uniq_key = properties.pop("UNIQ_KEY", None)
    if kind in "pt":
        assert uniq_key == m["uniq_key"]
    wanted = {**m["properties"], "KEYS": " ".join(m["keys"])}
    if m["tags"] is not None:
        wanted["TAGS"] = m["tags"]
    code = java_hash(m["tags"]) if m["tags"] else 0
    if m["delay_level"]:
        code = record["store_timestamp"] + turns.LEVELS[m["delay_level"]]
        wanted |= {"DELAY": str(m["delay_level"]), "REAL_TOPIC": m["topic"]}
        wanted["REAL_QID"] = str(m["queue_id"])
    assert properties == wanted
    assert row[:3] == (record["physical_offset"], record["store_size"], code)
    assert place == (record["topic"], record["queue_id"], record["queue_offset"])
    assert place[:2] == turns.queue_of(m)
    digest = hashlib.sha1(m["body"]).digest()
    assert record["body_sha1"] == base64.b64encode(digest).decode()
    for each in ("flag", "prepared_transaction_offset"):
        assert record[each] == m[each], each
    if m["born_timestamp"] is not None:
        assert record["born_timestamp"] == m["born_timestamp"]
    v6 = BORN_V6 if ":" in record["born_host"][0] else 0
    v6 |= STORE_V6 if ":" in record["store_host"][0] else 0
    assert record["sys_flag"] == m["sys_flag"] | v6
    if m["born_host"] is not None:
        assert record["born_host"] == same_host(m["born_host"])
    assert record["store_host"] == same_host(m["store_host"])
    return name


def test_turns(
    start: Callable[[], Driver],
    tmp_path: Path,
    compared: Callable[[str, int], None],
    seed: str,
) -> None:
    print(f"RMQSTORE_TURNS={TURNS}")
    start().reset()
    state = Turns(tmp_path, start, seed)
    first = time.monotonic()
    kills = set(state.random.sample(range(TURNS), -(-TURNS // 3)))
    most: Counter[str] = Counter()  # files: 4.9.3 may have destroyed some of the index by the end
    for turn in range(TURNS):
        began = time.monotonic()
        kill = turn in kills
        if kill:
            state.killed.add(turn)
        if turn % 2 == 0:
            state.ours(turn, kill)
            with rmqstore.open(state.root, "r") as store:
                left = state.corrected(our_map(store))
            state.opened_by_real(start(), state.root, turn)
            assert_same(left, state.agreed, f"turn {turn}, as ours left it")
            state.counts["messages"] += len(left)
        else:
            state.theirs(turn, kill)
            state.read_ours(f"turn {turn}, as the real one left it")
        for part in PARTS:
            most[part] = max(most[part], len(list((state.root / part).glob("*"))))
        print(
            f"turn {turn}: {'ours' if turn % 2 == 0 else 'the real one'} "
            f"{'killed' if kill else 'closed'}, {len(state.agreed)} messages, "
            f"{time.monotonic() - began:.1f} s"
        )
    start().reset()
    print(f"seconds: {time.monotonic() - first:.1f}", dict(state.counts), dict(most))
    assert min(most.values()) > 1 or TURNS < ENOUGH_TO_ROLL, most
    compared("3 hand-overs", TURNS)
    compared("3 hand-overs by kill -9", len(kills))
    for what in ("messages", "keys"):
        compared(f"3 {what} at hand-overs", state.counts[what])
