"""The real 4.9.3 as the store under test, through ``interop/``'s driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import rmqstore
from crash.writer import placed
from faults.framework import Case
from faults.invariants import EXAMPLES, Seen, Tell, check, check_files, judge, sizes
from faults.model import Model, Named, Place, content_of
from interop import compare, writers
from interop.driver import Driver, DriverError
from support.oracle import FILLER_UNIT

SIZES = {
    "mappedFileSizeCommitLog": 64 << 10,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
# The most hits that a query of 4.9.3 gives; its default is 64.
ALL_HITS = {"maxMsgsNumBatch": 1 << 20}
PATIENCE = 20.0  # seconds for the opening of a small store


@dataclass(frozen=True)
class TheirMessage:
    """A record as the driver gives it, with the names of ours."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    raw_body: bytes
    tags: str | None
    keys: tuple[str, ...]
    uniq_key: str | None

    @classmethod
    def of(cls, record: dict[str, Any]) -> TheirMessage:
        own = record["properties"]
        places = (record[n] for n in ("topic", "queue_id", "queue_offset", "physical_offset"))
        keys = tuple(own.get("KEYS", "").split())
        return cls(*places, record["body"], own.get("TAGS"), keys, own.get("UNIQ_KEY"))


def config(flush: str, **more: Any) -> dict[str, Any]:
    return {**SIZES, **ALL_HITS, "flushDiskType": flush, **more}


def message(name: str) -> dict[str, Any]:
    m = placed(name)
    properties = {"KEYS": " ".join(m["keys"])} | ({"TAGS": m["tags"]} if m["tags"] else {})
    return {
        "topic": m["topic"],
        "queue_id": m["queue_id"],
        "body": m["body"],
        "properties": properties,
    }


def requests(prefix: str, names: list[list[str]]) -> Iterator[dict[str, Any]]:
    """Endless requests of some messages each; their names are appended to ``names``."""
    number = 0
    while True:
        some = [f"{prefix}.{number}.{i}" for i in range(4)]
        names.append(some)
        number += 1
        yield {"op": "append", "timeout": 60, "wait": False, "messages": [message(n) for n in some]}


def write_and_kill(case: Case, root: Path, model: Model, prefix: str, flush: str) -> None:
    """Have 4.9.3 write into a store, kill it, and learn what it acknowledged."""
    assert isinstance(model.known, Named)
    model.known.prefixes.add(prefix)
    names: list[list[str]] = []
    with Driver() as driver:
        opened = driver.open(root, config(flush))
        assert opened["start"], driver.log()
        answers = case.draw.randint(5, 80)
        rows = driver.killed_at_work(requests(prefix, names), answers)
    for some, puts in zip(names, rows, strict=False):
        learn_puts(model, some, puts)


def learn_puts(model: Model, names: list[str], puts: list[Any]) -> None:
    for name, put in zip(names, puts, strict=False):
        if put.status == "PUT_OK":
            content = content_of(name)
            place = content.topic, content.queue_id, put.queue_offset
            model.acked[place] = content, put.physical_offset


def look(driver: Driver, model: Model, tell: Tell, where: str) -> None:
    """I1 to I4 of the store that the driver has open."""
    seen = Seen()
    for unit in driver.dump(body=True):
        place = unit.topic, unit.queue_id, unit.queue_offset
        if unit.record is None:
            tell("I3", f"{where}: the unit of {place} points to no record: {unit}")
            continue
        found = TheirMessage.of(unit.record)
        if (found.topic, found.queue_id, found.queue_offset) != place:
            tell("I3", f"{where}: the unit of {place} points to {found.keys}")
            continue
        seen.messages[place] = found
    judge(seen, model, tell, where=where)
    wanted = [(m.topic, key, m.physical_offset) for m in seen.messages.values() for key in m.keys]
    hits = driver.locate([(topic, key) for topic, key, _ in wanted])
    lost = [w for w, offsets in zip(wanted, hits, strict=True) if w[2] not in offsets]
    if lost:
        tell("I4", f"{where}: {len(lost)} of {len(wanted)} keys: {lost[:3]}")


class Checker:
    """One Java program that opens store after store; a new one where the last was lost."""

    def __init__(self) -> None:
        self.driver: Driver | None = None

    def close(self) -> None:
        if self.driver is not None:
            self.driver.close()

    def check(self, case: Case, root: Path, model: Model, flush: str, more: str = "after") -> None:
        """Open, look, put, look, close, and look once more."""
        if self.driver is None or not self.driver.alive:
            self.close()
            self.driver = Driver()
        tell = case.violation
        # It makes a file of the log before it needs it, and removes it when it is shut down.
        files = {name: size for name, size in sizes(root).items() if (root / name).stat().st_blocks}
        try:
            opened = self.driver.open(root, config(flush), timeout=PATIENCE)
            if not opened["start"]:
                tell("refused", "load() is false")
                return
            look(self.driver, model, tell, "opened")
            model.known.prefixes.add(more)
            names = [f"{more}.{number}" for number in range(10)]
            learn_puts(model, names, self.driver.append([message(name) for name in names]))
            look(self.driver, model, tell, "after more puts")
            if not self.driver.shutdown():
                tell("I5", "shut down, and abort is there")
            check_files(files, root, tell)
        except DriverError as error:
            tell("hung" if "time" in str(error) else "died", str(error)[:2000])


# ---- I6: what ours recovered, opened by the real store


@dataclass(frozen=True)
class Recovered:
    """A store that ours recovered and closed, and what is expected of it."""

    root: Path
    flush: str
    model: Model
    cut: bool = False  # by a power cut: a queue's file may be there, and its only records gone


def see_ours(case: Case, stores: list[Recovered]) -> None:
    with Driver() as driver:
        for store in stores:
            sees_the_same(case, driver, store)


def sees_the_same(case: Case, driver: Driver, recovered: Recovered) -> None:
    """Whether 4.9.3 opens a store and shows what ours does, and ours the same afterwards."""
    root, flush, model = recovered.root, recovered.flush, recovered.model

    def tell(text: str) -> None:
        case.violation("I6", f"{root}: {text}")

    def ours(where: str, model: Model) -> tuple[dict[Place, Any], rmqstore.StoreConfig]:
        with rmqstore.open(root, "r") as store:
            seen = check(store, model, case.violation, where=f"{root}, {where}")
            return seen.messages, store.config

    before, own = ours("before 4.9.3", model)
    # It removes files in which nothing is: the log's next, and those behind a queue's end.
    files = {
        name: size for name, size in sizes(root).items() if (root / name).read_bytes().strip(b"\0")
    }
    # Opened without a configuration where no file told its size, a store has the usual ones.
    fields = {theirs: getattr(own, name) for theirs, name in writers.FIELDS.items()}
    opened = driver.open(root, {**fields, **ALL_HITS, "flushDiskType": flush}, timeout=PATIENCE)
    if not opened["start"]:
        tell(f"load() is false: {driver.log()[-1000:]}")
        return
    dumped = driver.dump()
    # Of a queue whose file is there and has nothing it takes the first place for a unit.
    ghosts = {unit[:3] for unit in dumped if recovered.cut and unit[3:6] == (0, 0, 0)}
    units = [unit for unit in dumped if unit[3:6] != FILLER_UNIT and unit[:3] not in ghosts]
    found = {unit[:3]: unit for unit in units}
    if len(found) < len(units):
        tell(f"{len(units)} units, of {len(found)} places")
    # It enters anew what lies behind the newest unit of any queue, of topics that are gone as well.
    newest = max((message.physical_offset for message in before.values()), default=-1)
    came_back = {
        place
        for place, unit in found.items()
        if place not in before
        and place[0] in model.deleted_topics
        and unit.physical_offset > newest
    }
    if names := sorted((before.keys() ^ found.keys()) - came_back):
        lacks = [place for place in names if place in before]
        extra = [(place, found[place].physical_offset) for place in names if place in found]
        tell(f"4.9.3 lacks {len(lacks)}: {lacks[:EXAMPLES]}, has as well {extra[:EXAMPLES]}")
    common = [found[place] for place in before.keys() & found.keys()]
    differing = [unit for unit in common if not is_the_same(before[unit[:3]], unit.record)]
    if differing:
        tell(f"{len(differing)} differ: {differing[:EXAMPLES]}")
    keys, pairs = compare.keys_of([unit for unit in common if unit.record is not None])
    lost = [
        (pair, wanted)
        for (pair, wanted), hits in zip(keys.items(), driver.locate(list(keys)), strict=True)
        if {hit for hit in hits if pair in pairs.get(hit, ())} != set(wanted)
    ]
    if lost:
        tell(f"{len(lost)} of {len(keys)} keys are not found: {lost[:EXAMPLES]}")
    if not driver.shutdown():
        tell("shut down, and abort is there")
    check_files(files, root, case.violation)
    after, _ = ours("after 4.9.3", replace(model, dead=set()) if came_back else model)
    if names := sorted((before.keys() ^ after.keys()) - came_back):
        tell(f"ours shows {len(names)} other places afterwards: {names[:EXAMPLES]}")
    case.note("I6: stores that 4.9.3 opened")
    case.note("I6: messages compared", len(common))
    case.note("I6: keys compared", len(keys))
    case.note("I6: empty queues in which 4.9.3 sees a unit of zeros", len(ghosts))


def is_the_same(message: Any, record: dict[str, Any] | None) -> bool:
    try:
        compare.message(message, record or {}, Counter())
    except (AssertionError, KeyError):
        return False
    return True
