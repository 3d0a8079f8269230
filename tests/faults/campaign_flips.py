"""Damage to every byte of small stores, and to their files: nothing but what is hit is lost."""

from __future__ import annotations

import logging
import random
import shutil
import signal
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rmqstore
from faults import damage, shut, tiny
from faults.damage import BYTE_FORMS, FILE_FORMS, Damage
from faults.framework import WAITING, Case, Run, campaign
from faults.model import Place
from faults.tiny import Files, Image

LIMIT = 10  # seconds of a case
MEMORY = 4 << 30  # bytes that a child may map
CHUNK = 150  # cases of a child
THEIR_PARTS = 8  # stores of theirs that share their cases


@dataclass
class Seen:
    """What one opening showed."""

    refused: Exception | None = None
    good: set[Place] = field(default_factory=set)
    other: dict[Place, tuple[Any, ...]] = field(default_factory=dict)  # not what was put there
    errors: list[Exception] = field(default_factory=list)
    keyless: list[tuple[Place, str]] = field(default_factory=list)  # good, and not found by key


def look(store: Any, image: Image, damaged: set[str]) -> Seen:
    """Read every queue and ask for every key; ``damaged`` are keys of torn records that are hit."""
    seen = Seen()
    places = set(image.messages)
    for name, topic in store.topics.items():
        for queue_id, queue in topic.items():
            places.update((name, queue_id, at) for at in range(queue.min_offset, queue.max_offset))
    for place in sorted(places):
        topic, queue_id, queue_offset = place
        try:
            found = store.get(topic, queue_id, queue_offset, 1).messages
        except rmqstore.StoreCorruptError as error:
            seen.errors.append(error)
            continue
        for message in found:
            fields = tiny.all_of(message)
            if fields == image.messages.get(place):
                seen.good.add(place)
            elif message.queue_offset == queue_offset:  # else the place was passed over
                seen.other[place] = fields
    shared = {key for place in places - seen.good for key in image.keys.get(place, ())} | damaged
    for place in seen.good:
        offset = image.spans[place][0]
        for key in image.keys[place]:
            try:
                hits = [hit.physical_offset for hit in store.query(place[0], key)]
            except rmqstore.StoreCorruptError as error:
                if key in shared:  # another record that has it is damaged: it is told
                    seen.errors.append(error)
                else:
                    seen.keyless.append((place, key))
                continue
            if offset not in hits or len(set(hits)) != len(hits):
                seen.keyless.append((place, key))
    return seen


def opened(
    root: Path, image: Image, mode: str, damaged: set[str], *, configured: bool, **options: Any
) -> Seen:
    settings = image.config if configured else None
    try:
        store = rmqstore.open(root, mode, config=settings, **options)
    except (rmqstore.StoreError, OSError) as error:
        return Seen(refused=error)
    with store:
        return look(store, image, damaged)


def overlap(span: tuple[int, int], ranges: list[tuple[int, int]]) -> bool:
    start, stop = span
    return any(start < last and first < stop for first, last in ranges)


class Trial:
    """One damage, looked at in each mode of opening."""

    def __init__(self, case: Case, image: Image, damage: Damage, number: int, there: Files) -> None:
        self.there = there  # what the trial before left, and this one leaves
        self.case = case
        self.image = image
        self.damage = damage
        self.root = case.scratch / "store"
        self.number = number
        self.mode = ""
        self.files: Files = {}
        self.broken = False

    def wrong(self, kind: str, text: str) -> None:
        if not self.broken:  # the first tells; what follows from it does not
            self.case.violation(
                kind, f"{self.image.name}, {self.damage}, case {self.number}: {self.mode}: {text}"
            )
        self.broken = True

    def run(self) -> None:
        """Open it to read, or to write; with or without sizes: each form of damage in all ways."""
        number = self.number
        configured = number % 2 == 0
        reads = (number // 2 + number // len(damage.EVERYWHERE)) % 2 == 0
        files = self.damage.apply(self.image.files)
        if files is None:
            return
        self.files = files
        self.case.count()
        if self.damage.form in FILE_FORMS:  # what there was before is not there any more
            self.remove()
        spelled = "" if configured else ", no config"
        ways = [("r", "raise")] if reads else [("r+", "raise"), ("r+", "fill")]
        for mode, corruption in ways:
            self.mode = f"{mode} {corruption}{spelled}"
            tiny.write_files(self.root, files, self.image.directories, self.there)
            options = {"on_corruption": corruption} if corruption == "fill" else {}
            seen = self.opened(mode, configured=configured, **options)
            after = self.left()
            self.check(seen, mode, corruption)
            self.check_files(seen, mode, files, after)
            if seen.refused is None and mode == "r+" and self.number % 7 == 0:
                self.check_again(after, configured=configured)
            if set(self.there) != set(files):
                self.remove()
            if mode == "r+" and seen.refused is None and corruption == "raise":
                break  # there was nothing to fill
        if self.damage.form in FILE_FORMS:  # nor is there afterwards what it made
            self.remove()

    def left(self) -> Files:
        """What is in the directory now."""
        found = tiny.read_files(self.root)
        self.there.clear()
        self.there.update(found)
        return found

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        self.there.clear()

    def opened(self, mode: str, **options: Any) -> Seen:
        hits = self.damage.hits(self.image)
        # Damage in what a power cut left, or next to it, makes damage of all that it took there;
        # and so does what looks like a clean exit.
        spared = not hits and self.damage.name != "abort"
        damaged = set() if spared else {key for _, keys in self.image.torn for key in keys}
        damaged |= self.keys_taken_on(hits)
        return opened(self.root, self.image, mode, damaged, **options)

    def keys_taken_on(self, hits: list[tuple[int, int]]) -> set[str]:
        """Keys of others that a record has now, as a bit makes k8 of k0."""
        log = self.log()
        spans = [span for span in self.image.spans.values() if overlap(span, hits)]
        keys = {key for some in self.image.keys.values() for key in some} if spans else set()
        return {key for key in keys if any(key.encode() in log[a:b] for a, b in spans)}

    def allowed(self) -> set[Place]:
        """What may be lost: records that are hit, and those whose units are."""
        hits = self.damage.hits(self.image)
        spans = self.image.spans.items()
        places = {place for place, span in spans if overlap(span, hits)}
        if self.image.name.startswith("cut"):  # where no unit tells which of two has a place
            places |= {self.named_by(self.image.spans[place]) for place in places}
        return places | self.damage.units(self.image)

    def named_by(self, span: tuple[int, int]) -> Place:
        """The place that the record in a range of the log names now."""
        data = self.log()[span[0] : span[1]]
        queue_id, queue_offset = struct.unpack_from(">i4xq", data.ljust(28, b"\0"), 12)
        return tiny.TOPIC, queue_id, queue_offset

    def log(self) -> bytes:
        return b"".join(
            data for name, data in sorted(self.files.items()) if name.startswith("commitlog/")
        )

    def check(self, seen: Seen, mode: str, corruption: str) -> None:
        if seen.refused is not None:
            if not self.may_refuse(seen.refused, mode, corruption):
                self.wrong("refused", f"{type(seen.refused).__name__}: {seen.refused}")
            return
        allowed = self.allowed()
        lost = self.image.messages.keys() - seen.good
        if not lost <= allowed:
            some = sorted(lost - allowed)
            self.wrong("I1", f"lost beside what is hit: {some}; {seen.errors[:1]}")
        strange = seen.other.keys() - allowed
        if strange and not (len(strange) == 1 and allowed and len(seen.other) == 1):
            # A record that is hit may turn up somewhere else; nothing more may.
            self.wrong("I2", f"{len(strange)} come out of nowhere: {sorted(strange)[:3]}")
        if seen.keyless:
            self.wrong("I4", f"not found by key: {seen.keyless[:3]}")
        if self.damage.form in BYTE_FORMS and mode == "r":
            where = damage.field_of(self.image, self.damage)
            if where.startswith("record, ") and allowed:
                self.case.note(f"one byte of {where}: changed", 1)
                self.case.note(f"one byte of {where}: unnoticed", len(seen.other))
                if seen.other and self.image.config.record_checksum:
                    self.wrong("I2", f"a wrong byte goes unnoticed: {seen.other}")

    def may_refuse(self, error: Exception, mode: str, corruption: str) -> bool:
        """Whether this may keep the store from being opened."""
        form, name = self.damage.form, self.damage.name
        if isinstance(error, rmqstore.StoreNotFoundError):
            return False
        if mode == "r" or not isinstance(
            error, (rmqstore.StoreCorruptError, rmqstore.IncompatibleStoreError)
        ):
            return False
        if name.startswith("config/"):
            return True  # no list of topics, no new messages
        if name == "abort" and self.image.name.startswith("cut"):
            # Without it the store was closed in order, so its log was all on the disk: what a power
            # cut left there is damage, which is filled only where that is asked for.
            return form == "delete" and corruption == "raise"
        if form in {"cut", "extend", "delete", "swap", "duplicate"}:
            return not name.startswith(("index/", "checkpoint", "abort", "lock"))
        return name.startswith("commitlog/") and corruption == "raise"

    def check_files(self, seen: Seen, mode: str, before: Files, after: Files) -> None:
        if mode == "r" or seen.refused is not None:
            changed = {n for n in before.keys() | after.keys() if before.get(n) != after.get(n)}
            if changed := changed - {"lock"}:
                self.wrong("I7", f"changed by what was only to be read: {sorted(changed)}")
            return
        gone = before.keys() - after.keys() - {"abort"}
        if gone := {n for n in gone if not self.holds_nothing(n, before[n])}:
            self.wrong("I7", f"files are gone: {sorted(gone)}")
        shorter = {
            name for name in before.keys() & after.keys() if len(after[name]) < len(before[name])
        }
        if shorter := {n for n in shorter if n.startswith("commitlog/")} - {self.damage.name}:
            self.wrong("I7", f"files are cut: {sorted(shorter)}")

    def holds_nothing(self, name: str, data: bytes) -> bool:
        """Whether a file may go: derived, made ahead, or of units beyond the end of the log."""
        if name.startswith("consumequeue/"):
            starts = {start for start, _ in self.image.spans.values()}
            units = struct.iter_unpack(">qiq", data[: len(data) // 20 * 20])
            return not any(size and start in starts for start, size, _ in units)
        if name.startswith("commitlog/"):
            return self.damage.name < name and not any(data)
        return name.startswith("index/")

    def check_again(self, after: Files, *, configured: bool) -> None:
        """What was opened and closed stays as it is when that is done once more."""
        self.mode += ", again"
        seen = self.opened("r+", configured=configured)
        if seen.refused is not None:
            self.wrong("I5", f"refused: {seen.refused}")
        else:
            self.check(seen, "again", "raise")
        again = self.left()
        changed = {n for n in again.keys() | after.keys() if again.get(n) != after.get(n)}
        if changed:
            self.wrong("I5", f"opening once more changed {sorted(changed)}")


IMAGES: dict[str, Image] = {}
DAMAGES: dict[str, list[Damage]] = {}  # by the image's name


@campaign("flips", cases=400_000, slice=1200, theirs=True, memory=True)
def flips(run: Run) -> None:
    """Every byte of small stores in eight ways, their pages, lengths and files.

    Ours and a broker's, closed, killed and cut; a sample of them at a smaller scale.
    """
    logging.disable(logging.CRITICAL)
    images, checksummed = run.fork(make_images, ["images"], counts=False, chosen=False)[0]
    if run.wants("theirs"):
        image = next(image for image in images if image.name == "closed-broker")
        parts = 1 if run.slice else THEIR_PARTS
        count = max(1, run.number(240, 8) // parts)
        run.fork(
            lambda case, part: their_cases(case, image, part, count),
            range(parts),
            column="theirs",
            counts=False,
            seconds=1200,
            jobs=WAITING * run.jobs,
        )
    if not run.wants("ours"):
        return
    if not checksummed:
        run.not_run("records with a checksum of their own")
    for image in images:
        everything = damages(image)
        draw = random.Random(f"{run.seed} {image.name}")
        share = run.cases / len(images) / len(everything)
        IMAGES[image.name] = image
        DAMAGES[image.name] = [
            one for one in everything if draw.random() < share * damage.weight(image, one)
        ]
    closed = [
        f"{image.name}:shut {number}"
        for image in images
        for number in range(len(shut.names_of(image)))
    ]
    run.fork(shut_one, closed, seconds=LIMIT)
    chunks = [
        f"{name}:{start}" for name, them in DAMAGES.items() for start in range(0, len(them), CHUNK)
    ]
    if run.only_case and run.only_case not in {*chunks, *closed}:
        run.fork(single, [run.only_case], counts=False, seconds=LIMIT, memory=MEMORY)
        return
    chunks = [name for name in chunks if run.only_case in {"", name}]
    # A thread that ends is waited for: with one more the processors are never idle.
    jobs = run.jobs + 1
    whole = run.fork(chunk, chunks, counts=False, seconds=LIMIT, memory=MEMORY, jobs=jobs)
    for name, done in zip(chunks, whole, strict=True):
        if done is None:  # ended by a signal: which of them was it?
            image, start = name.split(":")
            singles = [f"{image}:{int(start) + at}" for at in range(CHUNK)]
            run.fork(single, singles, counts=False, seconds=LIMIT, memory=MEMORY)


def damages(image: Image) -> list[Damage]:
    return [
        *damage.range_damages(image),
        *damage.file_damages(image),
        *damage.byte_damages(image),
    ]


def their_cases(case: Case, image: Image, part: int, count: int) -> None:
    """A sample over the files: a checkpoint of 4 KiB is not most of what there is."""
    from faults.their_flips import TheirTrials

    by_file: dict[str, list[Damage]] = {}
    for one in damages(image):
        by_file.setdefault(one.name, []).append(one)
    trials = TheirTrials(case, image)
    try:
        for number in range(part * count, (part + 1) * count):
            signal.setitimer(signal.ITIMER_REAL, 60)
            files = sorted(by_file)
            trials.run(case.draw.choice(by_file[files[number % len(files)]]))
    finally:
        trials.close()


def make_images(case: Case, _: str) -> tuple[list[Image], bool]:
    seed = "1" if case.run.slice else case.run.seed  # what a power cut left of them
    made = [tiny.make(case.scratch, state, seed=seed) for state in tiny.STATES]
    made += [tiny.brokers(case.scratch, state, seed=seed) for state in tiny.STATES]
    image = tiny.make(case.scratch, "closed", checksum=True)
    if checksummed := b"__CRC32#" in image.files["commitlog/00000000000000000000"]:
        made.append(image)
    return made, checksummed


def shut_one(case: Case, item: str) -> None:
    name, _, number = item.partition(":shut ")
    image = IMAGES[name]
    configured = case.draw.random() < 0.5
    shut.one_shut(case, image, shut.names_of(image)[int(number)], configured=configured)


def chunk(case: Case, item: str) -> bool:
    name, start = item.split(":")
    there: Files = {}
    for number in range(int(start), min(int(start) + CHUNK, len(DAMAGES[name]))):
        signal.setitimer(signal.ITIMER_REAL, LIMIT)
        Trial(case, IMAGES[name], DAMAGES[name][number], number, there).run()
    return True


def single(case: Case, item: str) -> None:
    name, number = item.split(":")
    if int(number) < len(DAMAGES[name]):
        Trial(case, IMAGES[name], DAMAGES[name][int(number)], int(number), {}).run()
