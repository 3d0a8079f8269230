"""Store files removed, emptied, cut, zeroed, linked: what is on the disk is read, every way."""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rmqstore
from faults.framework import Case, Run, campaign
from rmqstore.cli.damage import known_damage

STORES = Path(__file__).parents[1] / "data" / "stores"
IMAGES = ("closed", "killed", "light", "ext", "broker-clean", "broker-killed")
FORMS = ("remove", "empty", "cut", "zero", "zero tail", "link", "dangle")
FOLDERS = ("commitlog", "consumequeue", "consumequeue_ext", "index", "checkpoint")
PLACE = ("queue_offset", "physical_offset")
CHUNK = 12  # cases of a child
BLANK = 0x7FFFFFFF
SIZES = {
    "mapped_file_size_commit_log": 16384,
    "mapped_file_size_consume_queue": 400,
    "mapped_file_size_consume_queue_ext": 1024,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}

Place = tuple[str, int, int]


@dataclass
class Image:
    """A store before anything happened to it."""

    name: str
    root: Path
    closed: bool
    config: Any = None
    spans: dict[int, int] = field(default_factory=dict)  # records: physical offset and size
    places: dict[Place, int] = field(default_factory=dict)  # physical offsets by queue and offset
    ends: dict[tuple[str, int], int] = field(default_factory=dict)


def make(home: Path, name: str) -> Image:
    root = home / name
    if name.startswith("broker"):
        with tarfile.open(STORES / f"{name}.tar.xz") as packed:
            packed.extractall(home / "unpacked")
        shutil.move(next((home / "unpacked").rglob("commitlog")).parent, root)
        image = Image(name, root, closed=name == "broker-clean")
    else:
        changes: dict[str, Any] = {}
        if name == "light":
            changes = {"enable_multi_dispatch": True, "enable_lmq": True}
        if name == "ext":
            changes = {"enable_consume_queue_ext": True}
        config = rmqstore.StoreConfig(**SIZES, **changes)
        with rmqstore.open(root, "a", config=config) as store:
            for number in range(160):
                more = {"lite_topics": [f"L{number % 2}"]} if name == "light" else {}
                body = b"%03d" % number * (20 + number % 7 * 30)
                store.put("T", body, queue_id=number % 2, keys=f"k{number}", tags="a", **more)
        if name == "killed":
            (root / "abort").touch()
        image = Image(name, root, closed=name != "killed", config=config)
    with rmqstore.open(root, config=image.config) as store:
        image.spans = {m.physical_offset: m.store_size for m in store.scan()}
        for topic in store.topics.values():
            for queue_id, queue in topic.items():
                units = queue.units()
                image.ends[topic.name, queue_id] = queue.max_offset
                for at, unit in enumerate(units, queue.min_offset):
                    if 0 < unit["size"] < BLANK:
                        image.places[topic.name, queue_id, at] = int(unit["physical_offset"])
    return image


def victims(root: Path) -> list[Path]:
    return sorted(
        one for name in FOLDERS for one in [root / name, *(root / name).rglob("*")] if one.is_file()
    )


def harm(path: Path, form: str, draw: Any, elsewhere: Path) -> str:
    """Do one thing to a file; what was done."""
    size = path.stat().st_size
    at = draw.randrange(size) if size else 0
    if form == "remove":
        path.unlink()
    elif form == "empty":
        path.write_bytes(b"")
    elif form == "cut":
        with path.open("r+b") as file:
            file.truncate(at)
    elif form in ("link", "dangle"):
        target = elsewhere / f"{len(list(elsewhere.iterdir()))}"
        shutil.move(path, target)
        path.symlink_to(target if form == "link" else elsewhere / "nowhere")
    else:
        start = 0 if form == "zero" else at
        with path.open("r+b") as file:
            file.seek(start)
            file.write(bytes(size - start))
    return f"{form} {path.parent.name}/{path.name} at {at} of {size}"


def still_there(image: Image, root: Path) -> set[int]:
    """The physical offsets of records whose bytes are on the disk as they were."""
    log_size = next((image.root / "commitlog").iterdir()).stat().st_size
    found = set()
    for offset, size in image.spans.items():
        name = f"commitlog/{offset - offset % log_size:020d}"
        try:
            data = (root / name).read_bytes()
        except FileNotFoundError:
            continue
        at = offset % log_size
        if data[at : at + size] == (image.root / name).read_bytes()[at : at + size]:
            found.add(offset)
    return found


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(root)): one.read_bytes()
        for one in root.rglob("*")
        if one.is_file() and one.name != "lock"
    }


def got(store: Any, topic: str, queue_id: int) -> Iterator[tuple[int, int]]:
    """Go along a queue by ``get``, over what is damaged: queue and physical offsets."""
    at, stop = store.queue_bounds(topic, queue_id)
    while at < stop:
        try:
            result = store.get(topic, queue_id, at, 7)
        except rmqstore.StoreCorruptError:
            try:
                result = store.get(topic, queue_id, at, 1)
            except rmqstore.StoreCorruptError:
                at += 1
                continue
        yield from ((m.queue_offset, m.physical_offset) for m in result)
        if result.next_offset <= at:
            break
        at = result.next_offset


class Trial:
    def __init__(self, case: Case, image: Image, root: Path, done: str) -> None:
        self.case, self.image, self.root, self.done = case, image, root, done
        self.there = still_there(image, root)
        self.dangling = [one for one in root.rglob("*") if one.is_symlink() and not one.exists()]
        self.way = ""

    def wrong(self, kind: str, text: str) -> None:
        self.case.violation(kind, f"{self.image.name}: {self.done}: {self.way}: {text}")

    def look(self, store: Any, end: int) -> None:
        """Everything that is on the disk, along the log and along each queue.

        From ``end`` on are the messages that the trial put, and delayed ones that were delivered.
        """
        scanned = {m.physical_offset for m in store.scan(on_corruption="skip", on_removed="skip")}
        if missing := self.there - scanned:
            self.wrong("I1", f"a scan lacks {len(missing)}, such as {min(missing)}")
        if more := {offset for offset in scanned - set(self.image.spans) if offset < end}:
            self.wrong("I2", f"a scan has {sorted(more)[:3]}")
        wanted: dict[tuple[str, int], set[tuple[int, int]]] = {}
        for (topic, queue_id, at), offset in self.image.places.items():
            if offset in self.there:
                wanted.setdefault((topic, queue_id), set()).add((at, offset))
        for (topic, queue_id), places in wanted.items():
            light = topic.startswith("%LMQ%")
            one = set(got(store, topic, queue_id))
            if light:  # a message names its own queue
                one = {(at, offset) for at, offset in places if (offset in {o for _, o in one})}
            if lacking := places - one:
                self.wrong("I1", f"get of {topic}/{queue_id} lacks {len(lacking)}: {min(lacking)}")
            if light:
                continue
            along = {
                (m.queue_offset, m.physical_offset)
                for m in store.scan(topic, queue_id, on_corruption="skip", on_removed="skip")
            }
            if one != along:
                differ = sorted(one ^ along)[:3]
                self.wrong("I3", f"{topic}/{queue_id}: get and scan differ: {differ}")
            self.look_at_units(store, topic, queue_id, along)
            by_topic = {
                m.physical_offset
                for m in store.scan(topic, on_corruption="skip", on_removed="skip")
                if m.queue_id == queue_id
            }
            if lacking_too := {offset for _, offset in places} - by_topic:
                self.wrong("I3", f"scan of {topic} lacks {sorted(lacking_too)[:3]}")

    def look_at_units(self, store: Any, topic: str, queue_id: int, along: set[Any]) -> None:
        """Rows from units: each that a scan of records has, and none that the log has no bytes of.

        Bytes of a record that are damaged are no loss to units. Where these are in doubt, records
        are read, and may raise.
        """
        try:
            scan = store.scan(topic, queue_id, columns=PLACE, on_removed="skip").to_table()
        except rmqstore.StoreCorruptError:
            return
        units = set(zip(*(scan[name].to_pylist() for name in PLACE), strict=True))
        if scan.num_rows != len(units) or not along <= units:
            self.wrong("I3", f"{topic}/{queue_id}: units lack {sorted(along - units)[:3]}")
        lost = [place for place in units - along if not self.has_bytes(place[1])]
        if lost:
            self.wrong("I2", f"{topic}/{queue_id}: units have {len(lost)} lost: {min(lost)}")

    def has_bytes(self, offset: int) -> bool:
        """Whether the log has a record's bytes, whatever they are now."""
        log_size = next((self.image.root / "commitlog").iterdir()).stat().st_size
        path = self.root / "commitlog" / f"{offset - offset % log_size:020d}"
        return path.exists() and (
            path.stat().st_size >= offset % log_size + self.image.spans.get(offset, log_size)
        )

    def read(self) -> None:
        self.way = "r"
        before = contents(self.root)
        try:
            store = rmqstore.open(self.root, config=self.image.config)
        except rmqstore.StoreNotFoundError:
            return
        with store:
            self.look(store, store.recovery.log_end)
            lost = set(self.image.spans) - self.there
            recovery = store.recovery
            # A last record whose properties are zeroed still counts: no checksum covers them.
            ends_early = (
                lost
                and (not self.there or max(lost) > max(self.there))
                and max(lost) >= recovery.log_end
            )
            told = not ends_early or not self.image.closed or known_damage(store)
            if not told and self.names(max(lost)):
                self.wrong("I1", f"nothing tells that the log ends at {recovery.log_end}")
            store.lag()
            store.delayed()
        if contents(self.root) != before:
            self.wrong("refused", "files were changed")

    def names(self, offset: int) -> bool:
        """Whether a unit that is on the disk as it was names a record."""
        for (topic, queue_id, at), there in self.image.places.items():
            if there != offset:
                continue
            files = sorted((self.image.root / "consumequeue" / topic / str(queue_id)).iterdir())
            size = files[0].stat().st_size
            name = f"consumequeue/{topic}/{queue_id}/{at * 20 - at * 20 % size:020d}"
            try:
                data = (self.root / name).read_bytes()
            except FileNotFoundError:
                continue
            start = at * 20 % size
            was = (self.image.root / name).read_bytes()
            if data[start : start + 20] == was[start : start + 20] and len(data) == len(was):
                return True
        return False

    def write(self) -> None:
        before = contents(self.root)
        for corruption in ("raise", "fill"):
            self.way = f"r+ {corruption}"
            try:
                store = rmqstore.open(
                    self.root, "r+", config=self.image.config, on_corruption=corruption
                )
            except (rmqstore.StoreError, OSError) as error:
                after = contents(self.root)
                if after != before:
                    changed = [n for n in after | before if after.get(n) != before.get(n)]
                    self.wrong("refused", f"{error}, and {changed[:4]} changed")
                    return
                if self.dangling:
                    named = any(one.name in str(error) for one in self.dangling)
                    if not named and ";" not in self.done:
                        self.wrong("refused", f"{error}, and the link is not named")
                elif corruption == "fill":
                    reason = re.sub(r"\d+", "N", str(error).partition(": ")[2])
                    self.case.note(f"refused with fill: {reason}")
                    if "consumequeue" in self.done and "commitlog" not in self.done:
                        self.wrong("refused", str(error))
                continue
            if self.dangling:
                self.wrong("refused", f"opened, though {self.dangling[0].name} leads nowhere")
            new: set[Any] = set()
            end = store.recovery.log_end
            with store:
                self.look(store, end)
                for topic, queue_id in self.image.ends:
                    if topic.startswith("%") or topic.startswith(("SCHEDULE", "RMQ_SYS")):
                        continue
                    put = store.put(topic, b"new", queue_id=queue_id)
                    new.add((topic, queue_id, put.queue_offset, put.physical_offset))
                    self.check_offset(topic, queue_id, put.queue_offset)
                self.look(store, end)
            self.way += ", again"
            with rmqstore.open(self.root, config=self.image.config) as store:
                self.look(store, end)
                if damage := known_damage(store):
                    self.wrong("I5", f"damage is told once more: {damage[0]}")
                for topic, queue_id, at, offset in new:
                    [message] = store.get(topic, queue_id, at, 1).messages
                    if message.physical_offset != offset:
                        self.wrong("I1", f"{topic}/{queue_id} at {at} is not what was put")
            return

    def check_offset(self, topic: str, queue_id: int, offset: int) -> None:
        """A place whose message is lost and still named by its unit is not given away."""
        end = self.image.ends[topic, queue_id]
        last = self.image.places.get((topic, queue_id, end - 1))
        if (
            self.image.closed
            and last is not None
            and (last in self.there or self.names(last))
            and offset < end
        ):
            self.wrong("I3", f"{topic}/{queue_id}: {offset} was given again, the end was {end}")


@campaign("lost", cases=1200, slice=12, memory=True)
def lost(run: Run) -> None:
    chunks = [range(at, min(at + CHUNK, run.cases)) for at in range(0, run.cases, CHUNK)]
    run.fork(some, chunks, counts=False, seconds=600)


def some(case: Case, numbers: range) -> None:
    import logging

    logging.getLogger("rmqstore").setLevel(logging.CRITICAL)
    images: dict[str, Image] = {}
    for number in numbers:
        name = IMAGES[number % len(IMAGES)]
        if name not in images:
            images[name] = make(case.scratch, name)
        one(case, images[name])


def one(case: Case, image: Image) -> None:
    """Harm one file, or two, then read, then write."""
    root = case.scratch / "store"
    elsewhere = case.scratch / "elsewhere"
    for old in (root, elsewhere):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(image.root, root)
    elsewhere.mkdir()
    done = []
    for _ in range(case.draw.choice((1, 1, 2))):
        folder = case.draw.choice(FOLDERS)
        chosen = [one for one in victims(root) if folder in one.relative_to(root).parts]
        if chosen:
            path = case.draw.choice(chosen)
            text = harm(path, case.draw.choice(FORMS), case.draw, elsewhere)
            done.append(f"{path.relative_to(root).parent}: {text}")
    case.count()
    trial = Trial(case, image, root, "; ".join(done))
    trial.read()
    trial.write()
