"""``offline.broker_start`` beside the real 4.9.3: each mutated copy is foretold, then started."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

import rmqstore
from interop.broker import Broker
from interop.driver import SMALL
from rmqstore import offline, toolbox
from support import oracle, oracle_store

pytestmark = pytest.mark.long

QUEUE = "consumequeue/orders/0"
FIRST = f"{0:020d}"
LAST_LOG = f"commitlog/{2 << 20:020d}"


def truncate(name: str, size: int) -> Callable[[Path], None]:
    return lambda root: os.truncate(root / name, size)


def write(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda root: (root / name).write_bytes(data) and None


def gone(*names: str) -> Callable[[Path], None]:
    def remove(root: Path) -> None:
        for name in names:
            path = root / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    return remove


def cut(name: str, *, backup: bool) -> Callable[[Path], None]:
    def halve(root: Path) -> None:
        path = root / "config" / name
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2])
        bak = path.with_name(name + ".bak")
        bak.unlink(missing_ok=True)
        if backup:
            bak.write_bytes(data[: len(data) // 3])

    return halve


def both(name: str, data: bytes) -> Callable[[Path], None]:
    return several(write(f"config/{name}", data), write(f"config/{name}.bak", data))


def make(name: str) -> Callable[[Path], None]:
    return lambda root: (root / name).mkdir(parents=True)


def several(*mutations: Callable[[Path], None]) -> Callable[[Path], None]:
    def run(root: Path) -> None:
        for one in mutations:
            one(root)

    return run


# name: (what is done to the copy, the verdict, its first kind)
CASES = {
    "nothing": (lambda root: None, "starts", None),
    "ds-store-in-log": (write("commitlog/.DS_Store", b"x"), "refuses", "foreign-file"),
    "bak-in-log": (write(f"commitlog/{FIRST}.bak", bytes(1 << 20)), "refuses", "foreign-file"),
    "lost-found-in-log": (make("commitlog/lost+found"), "refuses", "foreign-file"),
    "nfs-in-queue": (write(f"{QUEUE}/.nfs0001", b""), "refuses", "foreign-file"),
    "log-one-too-long": (truncate(f"commitlog/{FIRST}", (1 << 20) + 1), "refuses", "size"),
    "log-short": (truncate(f"commitlog/{FIRST}", 4096), "refuses", "short-file"),
    "queue-empty": (truncate(f"{QUEUE}/{FIRST}", 0), "refuses", "empty-file"),
    "queue-1234": (truncate(f"{QUEUE}/{FIRST}", 1234), "refuses", "short-file"),
    "checkpoint-directory": (
        several(gone("checkpoint"), make("checkpoint")), "refuses", "checkpoint"),
    "lock-directory": (several(gone("lock"), make("lock")), "refuses", "lock"),
    "offsets-and-bak-cut": (cut("consumerOffset.json", backup=True), "refuses", "json"),
    "groups-and-bak-cut": (cut("subscriptionGroup.json", backup=True), "refuses", "json"),
    "delays-and-bak-cut": (cut("delayOffset.json", backup=True), "refuses", "json"),
    "topics-and-bak-cut": (cut("topics.json", backup=True), "refuses", "json"),
    "topics-nul": (
        several(gone("config/topics.json.bak"), write("config/topics.json", bytes(400))),
        "loses", "topic-unknown"),
    "topics-name-none": (
        write("config/topics.json", b'{"topicConfigTable":{}}'), "loses", "topic-unknown"),
    "topics-null": (write("config/topics.json", b"null"), "loses", "topic-unknown"),
    "topics-and-bak-lists": (both("topics.json", b"[1]"), "refuses", "json"),
    "topics-table-null": (both("topics.json", b'{"topicConfigTable":null}'), "refuses", "json"),
    "offsets-and-bak-lists": (both("consumerOffset.json", b"[1]"), "refuses", "json"),
    "offsets-null": (write("config/consumerOffset.json", b"null"), "loses", "json"),
    "offsets-blank": (write("config/consumerOffset.json", b"\n"), "loses", "json"),
    "groups-and-bak-numbers": (both("subscriptionGroup.json", b"1"), "refuses", "json"),
    "groups-and-bak-blank": (both("subscriptionGroup.json", b"\n"), "refuses", "json"),
    "groups-null": (write("config/subscriptionGroup.json", b"null"), "loses", "json"),
    "delays-and-bak-true": (both("delayOffset.json", b"true"), "refuses", "json"),
    "topics-gone": (gone("config/topics.json", "config/topics.json.bak"), "loses", "topic-unknown"),
    "last-log-file-gone": (gone(LAST_LOG), "loses", "behind-log-end"),
    "last-log-file-empty": (truncate(LAST_LOG, 0), "refuses", "empty-file"),
    "last-log-file-zeroed": (write(LAST_LOG, bytes(1 << 20)), "loses", "behind-log-end"),
    "queue-gone": (gone(QUEUE), "loses", "queue-missing"),
    "ds-store-in-index": (write("index/.DS_Store", b"x"), "starts", "foreign-file"),
    "ds-store-in-topic": (write("consumequeue/orders/.DS_Store", b"x"), "starts", "foreign-file"),
    "file-as-topic": (write("consumequeue/.DS_Store", b"x"), "starts", None),
    "checkpoint-empty": (truncate("checkpoint", 0), "starts", None),
    "abort": (write("abort", b""), "starts", "abort"),
    "queues-gone": (gone("consumequeue"), "starts", None),
    "delays-gone": (
        gone("config/delayOffset.json", "config/delayOffset.json.bak"), "starts", "missing-file"),
    "swap-file-in-log": (write("commitlog/.x.swp", b"x"), "refuses", "foreign-file"),
    "log-empty": (truncate(f"commitlog/{1 << 20:020d}", 0), "refuses", "empty-file"),
    "log-long-last": (truncate(LAST_LOG, (1 << 20) + 4096), "refuses", "size"),
    "log-last-short": (truncate(LAST_LOG, 1000), "refuses", "short-file"),
    "queue-long": (truncate(f"{QUEUE}/{FIRST}", 6020), "refuses", "size"),
    "queue-bak": (write(f"{QUEUE}/{FIRST}.bak", bytes(6000)), "refuses", "foreign-file"),
    "queue-directory": (make(f"{QUEUE}/lost+found"), "refuses", "foreign-file"),
    "queue-named-x": (make("consumequeue/orders/x"), "starts", "foreign-file"),
    "topics-and-bak-true": (both("topics.json", b"true"), "refuses", "json"),
    "filters-and-bak-cut": (cut("consumerFilter.json", backup=True), "refuses", "json"),
    "offsets-cut-alone": (cut("consumerOffset.json", backup=False), "loses", "json"),
    "groups-cut-alone": (cut("subscriptionGroup.json", backup=False), "loses", "json"),
    "index-gone": (gone("index"), "starts", None),
    "checkpoint-gone": (gone("checkpoint"), "starts", None),
    "lock-gone": (gone("lock"), "starts", None),
    "config-gone": (gone("config"), "loses", "topic-unknown"),
    "killed-queue-gone": (several(gone(QUEUE), write("abort", b"")), "loses", "queue-missing"),
}  # fmt: skip


# A start and end of a whole broker each takes seconds: the others are for "make interop".
IN_SUITE = (
    "nothing", "bak-in-log", "log-one-too-long", "queue-1234", "lock-directory",
    "offsets-and-bak-cut", "topics-gone", "queue-gone",
)  # fmt: skip


@pytest.fixture(scope="module")
def real() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def stored(root: Path) -> dict[tuple[str, int], int]:
    with rmqstore.open(root) as store:
        return {
            (name, queue_id): queue.max_offset
            for name, topic in store.topics.items()
            for queue_id, queue in topic.items()
            if len(queue)
        }


@pytest.mark.parametrize(
    "name",
    [
        name if name in IN_SUITE else pytest.param(name, marks=pytest.mark.campaign)
        for name in CASES
    ],
)
def test_the_real_one_does_what_is_foretold(real, broker_copy, tmp_path, name):
    mutate, broker, kind = CASES[name]
    root = broker_copy("broker-clean", tmp_path).root
    wanted = stored(root)
    mutate(root)
    before = {path: path.lstat().st_mtime_ns for path in root.rglob("*")}
    verdict = offline.broker_start(root)
    assert {path: path.lstat().st_mtime_ns for path in root.rglob("*")} == before
    assert verdict.broker == broker, verdict
    kinds = [one.kind for one in verdict.findings]
    assert kind is None or kind in kinds
    told = len(real.log())
    started = real.call("start", dir=str(root.resolve()), config=SMALL, broker={}, timeout=120)[1]
    said = real.log()[told:]
    assert started["load"] is (broker != "refuses"), said
    if broker == "refuses" and verdict.line not in (None, "last shutdown abnormally"):
        assert verdict.line in said
    if not started["load"]:
        return
    try:
        shown = {key: end for key, (_, end) in real.minmax().items() if end}
    finally:
        real.shutdown()
    lost = sum(end - min(end, shown.get(key, 0)) for key, end in wanted.items())
    if kind == "topic-unknown":
        assert lost == 0  # they are there, and nobody is shown them
        assert verdict.messages_lost > 0
    else:
        assert lost == verdict.messages_lost


def poke(name: str, at: int, data: bytes) -> Callable[[Path], None]:
    def put(root: Path) -> None:
        with (root / name).open("r+b") as file:
            file.seek(at)
            file.write(data)

    return put


def record(number: int, at: int, data: bytes) -> Callable[[Path], None]:
    """Overwrite bytes of a record, by its number in the log."""

    def put(root: Path) -> None:
        one = list(oracle_store.walk_log(root / "commitlog"))[number]
        start = one.physical_offset - one.physical_offset % (1 << 20)
        poke(f"commitlog/{start:020d}", one.physical_offset - start + at, data)(root)

    return put


def twice(root: Path) -> None:
    units = (root / QUEUE / FIRST).read_bytes()
    poke(f"{QUEUE}/{FIRST}", 1000, units[980:1000])(root)


def exchanged(root: Path) -> None:
    one, other = (root / f"consumequeue/orders/{number}/{FIRST}" for number in (0, 1))
    units = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(units)


def index_file(at: int, data: bytes) -> Callable[[Path], None]:
    def put(root: Path) -> None:
        for path in (root / "index").iterdir():
            poke(f"index/{path.name}", at, data)(root)

    return put


KILL = write("abort", b"")
# Seen by reading everything; name: (what is done to the copy, the verdict, its first kind)
FULL = {
    "body-in-the-first-file": (record(100, 90, b"\xff"), "loses", "bad-record"),
    "body-in-a-middle-file": (record(2000, 200, b"\xff" * 9), "loses", "bad-record"),
    "body-of-the-last": (record(-2, 91, b"\xff" * 9), "loses", "bad-record"),
    "size": (record(2000, 0, bytes(4)), "loses", "bad-record"),
    "magic": (record(2500, 4, b"\xff" * 4), "loses", "bad-record"),
    "hole": (poke(f"commitlog/{1 << 20:020d}", 8192, bytes(4096)), "loses", "hole"),
    "killed-body": (several(record(2000, 200, b"\xff" * 9), KILL), "starts", "bad-record"),
    "killed-hole": (
        several(poke(f"commitlog/{1 << 20:020d}", 8192, bytes(4096)), KILL), "starts", "hole"),
    "killed-magic": (several(record(3300, 4, b"\xff" * 4), KILL), "loses", "bad-record"),
    "unit-of-another": (poke(f"{QUEUE}/{FIRST}", 1000, struct.pack(">qiq", 0, 100, 0)), "loses",
                        "unit-mismatch"),
    "unit-twice": (twice, "loses", "unit-duplicate"),
    "queue-zeroed": (write(f"{QUEUE}/{FIRST}", bytes(6000)), "loses", "unit-missing"),
    "unit-zero": (poke(f"{QUEUE}/{FIRST}", 1000, bytes(20)), "loses", "unit-missing"),
    "units-zero": (poke(f"{QUEUE}/{FIRST}", 0, bytes(400)), "loses", "unit-missing"),
    "queues-exchanged": (exchanged, "loses", "unit-mismatch"),
    "tags-code": (poke(f"{QUEUE}/{FIRST}", 1012, struct.pack(">q", 7)), "starts", "unit-mismatch"),
    "index-header": (index_file(0, bytes(40)), "starts", "index-header"),
    "index-slots": (index_file(40, b"\0\0\0\1" * 50), "starts", "index-chain"),
    "killed-index-gone": (several(gone("index"), KILL), "starts", "abort"),
    "killed-queues-gone": (several(gone("consumequeue"), KILL), "loses", "queue-missing"),
}  # fmt: skip


def whole_records(root: Path, offsets: Collection[int]) -> set[int]:
    """Return the offsets at which the log's files have a valid record."""
    files = {int(path.name): path.read_bytes() for path in (root / "commitlog").iterdir()}
    found = set()
    for offset in offsets:
        start = offset - offset % (1 << 20)
        try:
            oracle.decode_record(files[start], offset - start)
        except (KeyError, ValueError, struct.error):
            continue
        found.add(offset)
    return found


def unit_offset(root: Path, topic: str, queue_id: int, queue_offset: int) -> int:
    """Return the physical offset of a unit in the queue's files, -1 without one."""
    at = queue_offset * oracle.UNIT_SIZE
    path = root / f"consumequeue/{topic}/{queue_id}/{at - at % 6000:020d}"
    try:
        data = path.read_bytes()[at % 6000 :][: oracle.UNIT_SIZE]
    except OSError:
        return -1
    offset, size, _ = struct.unpack(">qiq", data)
    return offset if size > 0 else -1


@pytest.mark.campaign
@pytest.mark.parametrize("name", FULL)
def test_the_real_one_does_what_verify_foretells(real, broker_copy, tmp_path, name):
    mutate, broker, kind = FULL[name]
    root = broker_copy("broker-clean", tmp_path).root
    with rmqstore.open(root) as store:
        placed = {
            (topic, queue_id, offset): int(unit)
            for topic, queues in store.topics.items()
            for queue_id, queue in queues.items()
            for offset, unit in enumerate(queue.units()["physical_offset"], queue.min_offset)
        }
    mutate(root)
    whole = whole_records(root, placed.values())
    placed = {place: offset for place, offset in placed.items() if offset in whole}
    report = toolbox.verify(root, full=True, jobs=1)
    assert report.broker == broker, report
    assert kind in {one.kind for one in report.problems}
    started = real.call("start", dir=str(root.resolve()), config=SMALL, broker={}, timeout=120)[1]
    assert started["load"]
    try:
        shown = {key: end for key, (_, end) in real.minmax().items()}
    finally:
        real.shutdown()
    # A cut leaves the bytes of units and records where they are: the ends tell.
    lost = [
        (topic, queue_id, at)
        for (topic, queue_id, at), offset in placed.items()
        if at >= shown.get((topic, queue_id), 0) or unit_offset(root, topic, queue_id, at) != offset
    ]
    assert len(lost) == report.messages_lost
