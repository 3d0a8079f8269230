"""Ways to damage a store's files, and what of the log each of them hits."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from faults.model import Place
from faults.tiny import SECTOR, Files, Image
from support import oracle

PAGE = 4096
BYTE_FORMS = ("bit", "zero", "ones", "top", "more")  # top: its highest bit; more: one more
SECTOR_FORMS = ("sector", "foreign")  # zeros, or bytes of another place in the log
EVERYWHERE = (*BYTE_FORMS, *SECTOR_FORMS, "cut")  # at every byte
USED = 24  # bytes of the checkpoint that 4.9.3 has a use for; from WATERMARK on are ours
WATERMARK, WATERMARK_END = 2048, 2048 + 128
FILE_FORMS = ("delete", "swap", "duplicate")

FIELDS = [
    ("total size", 4),
    ("magic", 4),
    ("body CRC", 4),
    ("queue id", 4),
    ("flag", 4),
    ("queue offset", 8),
    ("physical offset", 8),
    ("system flag", 4),
    ("born time", 8),
    ("born host", 8),
    ("store time", 8),
    ("store host", 8),
    ("reconsume times", 4),
    ("prepared offset", 8),
    ("body length", 4),
]


@dataclass(frozen=True)
class Damage:
    form: str
    name: str  # the file
    at: int = 0  # byte of it; of a cut the new length
    other: str = ""  # the second file of a swap, the new name of a duplicate
    bit: int = 0

    def __str__(self) -> str:
        return f"{self.form} {self.name} {self.at}{' ' + self.other if self.other else ''}"

    @property
    def length(self) -> int:
        return PAGE if self.form == "page" else SECTOR

    def apply(self, files: Files) -> Files | None:
        """The files afterwards; None if nothing is different then."""
        after = dict(files)
        data = files[self.name]
        if self.form in BYTE_FORMS:
            old = data[self.at]
            flipped = {"bit": old ^ 1 << self.bit, "top": old ^ 0x80, "more": old + 1 & 0xFF}
            new = (flipped | {"zero": 0, "ones": 0xFF})[self.form]
            after[self.name] = data[: self.at] + bytes([new]) + data[self.at + 1 :]
        elif self.form in {*SECTOR_FORMS, "page"}:
            stop = min(self.at + self.length, len(data))
            log = b"".join(files[name] for name in sorted(files) if name.startswith("commitlog/"))
            other = log[self.at % SECTOR + 1 :] if self.form == "foreign" else bytes(PAGE)
            after[self.name] = data[: self.at] + other[: stop - self.at] + data[stop:]
        elif self.form == "cut":
            after[self.name] = data[: self.at]
        elif self.form == "extend":
            after[self.name] = data + b"\x01"
        elif self.form == "delete":
            del after[self.name]
        elif self.form == "swap":
            after[self.name], after[self.other] = files[self.other], data
        else:
            after[self.other] = data
        return after if after != files else None

    def hits(self, image: Image) -> list[tuple[int, int]]:
        """The (start, stop) of the log's bytes that are not as they were."""
        found = []
        for name in {self.name, self.other} if self.form == "swap" else {self.name}:
            if not name.startswith("commitlog/") or self.form in {"duplicate", "extend"}:
                continue
            start, size = int(name[-20:]), len(image.files[name])
            first, last = 0, size
            if self.form in BYTE_FORMS:
                first, last = self.at, self.at + 1
            elif self.form in {*SECTOR_FORMS, "page"}:
                first, last = self.at, self.at + self.length
            elif self.form == "cut":
                first = self.at
            found.append((start + first, start + min(last, size)))
        return found

    def units(self, image: Image) -> set[Place]:
        """The places whose units in the queue's files are not as they were."""
        found = set()
        for name in {self.name, self.other} if self.form == "swap" else {self.name}:
            if not name.startswith("consumequeue/") or self.form in {"duplicate", "extend"}:
                continue
            _, topic, queue_id, file = name.split("/")
            first, last = 0, len(image.files[name])
            if self.form in BYTE_FORMS:
                first, last = self.at, self.at + 1
            elif self.form == "cut":
                first = self.at
            base = int(file)
            found.update(
                (topic, int(queue_id), at)
                for at in range((base + first) // 20, (base + last + 19) // 20)
            )
        return found


def byte_damages(image: Image) -> Iterator[Damage]:
    """Each byte of each file in eight ways; of the bits of a byte one is drawn.

    Of what nobody has a use for in a checkpoint's page, every sixteenth byte.
    """
    draw = random.Random(image.name)
    for name in sorted(image.files):
        for at in range(len(image.files[name])):
            unused = not (at < USED or WATERMARK <= at < WATERMARK_END)
            if name == "checkpoint" and unused and at % 16:
                continue
            bit = draw.randrange(8)
            for form in EVERYWHERE:
                yield Damage(form, name, at, bit=bit)


def range_damages(image: Image) -> Iterator[Damage]:
    for name, data in sorted(image.files.items()):
        for at in range(0, len(data), PAGE):
            yield Damage("page", name, at)
        yield Damage("extend", name)


def file_damages(image: Image) -> Iterator[Damage]:
    names = sorted(image.files)
    for name in names:
        yield Damage("delete", name)
        yield Damage("duplicate", name, other=name + ".copy")
        digits = re.search(r"/([0-9]{17,20})$", name)
        if digits:
            width = len(digits.group(1))
            beyond = int(digits.group(1)) + (len(image.files[name]) if width == 20 else 500)
            while (other := name[:-width] + f"{beyond:0{width}d}") in image.files:
                beyond += len(image.files[name])
            yield Damage("duplicate", name, other=other)
        for other in names:
            same = other.rpartition("/")[0].partition("/")[0] == name.partition("/")[0]
            if name < other and "/" in name and same:
                yield Damage("swap", name, other=other)
    yield Damage("swap", "lock", other="checkpoint")


@functools.cache
def _layout(data: bytes) -> list[tuple[int, int, str]]:
    """The (start, stop, field) of the parts of a log file."""
    parts = []
    at = 0
    while at + 8 <= len(data):
        try:
            record = oracle.decode_record(data, at, check_crc=False)
        except oracle.OracleError:
            break
        start = at
        variable = [
            ("body", len(record.raw_body)),
            ("topic length", 1),
            ("topic", len(record.topic.encode())),
            ("properties length", 2),
            ("properties", len(record.raw_properties)),
        ]
        for field, size in FIELDS + variable:
            parts.append((at, at + size, field))
            at += size
        assert at == start + record.store_size
    if int.from_bytes(data[at + 4 : at + 8], "big", signed=True) == oracle.MAGIC_BLANK:
        parts.append((at, at + 8, "filler"))
        at += 8
    parts.append((at, len(data), "behind the end"))
    return parts


def field_of(image: Image, damage: Damage) -> str:
    """What the byte is part of."""
    name = damage.name
    if name.startswith("commitlog/"):
        for start, stop, field in _layout(image.files[name]):
            if start <= damage.at < stop:
                return f"record, {field}"
    if name.startswith("consumequeue/"):
        at = damage.at % 20
        return "unit, " + ("physical offset" if at < 8 else "size" if at < 12 else "tags code")
    return name.partition("/")[0]


def weight(image: Image, damage: Damage) -> int:
    """How much oftener than others it is taken: where one byte has brought down more than itself.

    That is one byte too many of a log file, and the one that makes a record name another's place.
    """
    if not damage.name.startswith("commitlog/"):
        return 1
    if damage.form == "extend":
        return 100
    parts = _layout(image.files[damage.name])
    last = any(field == "queue offset" and damage.at == stop - 1 for _, stop, field in parts)
    return 20 if last and damage.form in BYTE_FORMS else 1
