"""``toolbox.verify``: each kind of damage named with its file, nothing written, no false alarm."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore import StoreConfig, toolbox
from support import damaged_store, queue_ext
from support.sparse_store import SparseStore

LOG = "commitlog/{:020}".format
QUEUE = "consumequeue/Topic1/0"
FIRST = f"{QUEUE}/{0:020}"
MIDDLE = 5 * damaged_store.LOG_SIZE
OFFSETS = "config/consumerOffset.json"
TOPICS = "config/topics.json"

Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return damaged_store.with_group(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "store")


def snapshot(root: Path) -> dict[str, tuple[int, ...]]:
    found = {}
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        found[str(path)] = (status.st_ino, status.st_size, status.st_mode, status.st_mtime_ns)
    return found


def check(root: Path, *, full: bool = False, config: StoreConfig | None = None) -> toolbox.Report:
    """Verify in one process, and see that nothing changes."""
    before = snapshot(root)
    report = toolbox.verify(root, full=full, jobs=1, config=config)
    assert snapshot(root) == before
    order = [("stop", "lost", "warn").index(one.severity) for one in report.problems]
    assert order == sorted(order)
    return report


def poke(name: str, at: int, data: bytes) -> Damage:
    def write(root: Path) -> None:
        with (root / name).open("r+b") as file:
            file.seek(at)
            file.write(data)

    return write


def index(number: int, at: int, data: bytes) -> Damage:
    def write(root: Path) -> None:
        files = sorted((root / "index").iterdir())
        poke(f"index/{files[number].name}", at, data)(root)

    return write


def remove(name: str) -> Damage:
    def unlink(root: Path) -> None:
        path = root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()

    return unlink


def write(name: str, data: bytes) -> Damage:
    def put(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)

    return put


def replaced(name: str, make: Callable[[Path], object]) -> Damage:
    def replace(root: Path) -> None:
        if os.path.lexists(root / name):
            remove(name)(root)
        make(root / name)

    return replace


def cut(name: str, size: int) -> Damage:
    return lambda root: os.truncate(root / name, size)


def edited(name: str, edit: Callable[[str], str]) -> Damage:
    def rewrite(root: Path) -> None:
        (root / name).write_text(edit((root / name).read_text()))
        (root / f"{name}.bak").unlink(missing_ok=True)

    return rewrite


def duplicate_unit(root: Path) -> None:
    units = (root / FIRST).read_bytes()
    poke(FIRST, 100, units[80:100])(root)


def first_entries(root: Path) -> bytes:
    (first, *_) = sorted((root / "index").iterdir())
    return first.read_bytes()[240:]


def repeated_entry(root: Path) -> None:
    entries = first_entries(root)
    entry = entries[20:40]
    index(0, 240 + 60, entry[:16] + entries[76:80])(root)


def future_checkpoint(root: Path) -> None:
    poke("checkpoint", 8, struct.pack(">q", (int(time.time()) + 9 * 86400) * 1000))(root)


# name: (damage, kind, severity, file, whether the default check sees it)
CASES: dict[str, tuple[Damage, str, str, str, bool]] = {
    "record": (poke(LOG(MIDDLE), 5000, b"\xff" * 3), "bad-record", "lost", LOG(MIDDLE), False),
    "first record": (poke(LOG(MIDDLE), 150, b"\xff"), "bad-record", "lost", LOG(MIDDLE), False),
    "first of a file": (poke(LOG(0), 4, b"\xff"), "bad-record", "lost", LOG(0), True),
    "hole": (poke(LOG(MIDDLE), 4096, bytes(2048)), "hole", "lost", LOG(MIDDLE), False),
    "remains": (poke(LOG(163840), 7000, b"hello"), "torn-tail", "warn", LOG(163840), True),
    "log foreign": (write("commitlog/.DS_Store", b"x"), "foreign-file", "stop",
                    "commitlog/.DS_Store", True),
    "log long": (cut(LOG(0), 16385), "size", "stop", LOG(0), True),
    "log empty": (cut(LOG(MIDDLE), 0), "empty-file", "stop", LOG(MIDDLE), True),
    "log short": (cut(LOG(MIDDLE), 100), "short-file", "stop", LOG(MIDDLE), True),
    "log gone": (remove("commitlog"), "missing-file", "lost", "commitlog", True),
    "gap": (remove(LOG(MIDDLE)), "gap", "lost", LOG(MIDDLE), True),
    "last gone": (remove(LOG(163840)), "behind-log-end", "lost", LOG(163840), True),
    "unit at the end": (poke(FIRST, 0, b"\1" * 20), "unit-mismatch", "lost", FIRST, True),
    "unit": (poke(FIRST, 100, b"\1" * 20), "unit-mismatch", "lost", FIRST, False),
    "tags code": (poke(FIRST, 112, struct.pack(">q", 7)), "unit-mismatch", "warn", FIRST, False),
    "zeros": (poke(FIRST, 100, bytes(20)), "unit-missing", "lost", QUEUE, False),
    "unit twice": (duplicate_unit, "unit-duplicate", "lost", FIRST, False),
    "queue gone": (remove(QUEUE), "queue-missing", "lost", QUEUE, True),
    "queues gone": (remove("consumequeue"), "queue-missing", "warn", QUEUE, True),
    "more units": (poke(f"{QUEUE}/{800:020}", 16 * 20 + 340 - 320, b""), "", "", "", True),
    "header": (index(0, 20, b"\7"), "index-header", "warn", "index/", True),
    "slots": (index(0, 35, b"\7"), "index-header", "warn", "index/", False),
    "chain": (index(0, 240 + 20 * 9 + 16, struct.pack(">i", 5)), "index-chain", "warn", "index/",
              True),
    "repeated": (repeated_entry, "index-duplicate", "warn", "index/", False),
    "index gone": (remove("index"), "index-missing", "warn", "index", True),
    "checkpoint": (future_checkpoint, "checkpoint", "warn", "checkpoint", True),
    "checkpoint short": (cut("checkpoint", 10), "checkpoint", "warn", "checkpoint", True),
    "checkpoint gone": (remove("checkpoint"), "checkpoint", "warn", "checkpoint", True),
    "checkpoint a directory": (replaced("checkpoint", Path.mkdir), "checkpoint", "stop",
                               "checkpoint", True),
    "lock": (replaced("lock", Path.mkdir), "lock", "stop", "lock", True),
    "abort": (write("abort", b""), "abort", "warn", "abort", True),
    "json": (edited(OFFSETS, lambda text: text[:9]), "json", "lost", OFFSETS, True),
    "backup": (lambda root: (edited(OFFSETS, lambda text: text[:9])(root),
                             write(f"{OFFSETS}.bak", b'{"offsetTable":{}}')(root)),
               "json-backup-used", "warn", OFFSETS, True),
    "torn backup": (write(f"{OFFSETS}.bak", b"{"), "json", "warn", f"{OFFSETS}.bak", True),
    "deleted topics": (write("rmqstore-deleted.json", b"{"), "json", "lost",
                       "rmqstore-deleted.json", True),
    "beyond": (edited(OFFSETS, lambda text: text.replace("0:", "0:9")), "offset-beyond-end", "warn",
               OFFSETS, True),
    "unknown topic": (remove(TOPICS), "topic-unknown", "lost", TOPICS, True),
    "group of nothing": (edited(OFFSETS, lambda text: text.replace("Topic1@", "Gone@")),
                         "topic-unknown", "warn", OFFSETS, True),
    "queue count": (edited(TOPICS, lambda text: re.sub('"readQueueNums":[0-9]+',
                                                      '"readQueueNums":1', text)),
                    "queue-count", "warn", TOPICS, True),
    "link": (replaced("config/delayOffset.json", lambda path: path.symlink_to("nowhere")), "link",
             "lost", "config/delayOffset.json", True),
    "linked queue": (replaced(QUEUE, lambda path: path.symlink_to("nowhere")), "link", "lost",
                     QUEUE, True),
    "mode": (lambda root: (root / LOG(0)).chmod(0o444), "permission", "warn", LOG(0), True),
    "file as a topic": (write("consumequeue/.DS_Store", b"x"), "foreign-file", "warn",
                        "consumequeue/.DS_Store", True),
    "file as queues": (replaced("consumequeue", Path.touch), "foreign-file", "stop",
                       "consumequeue", True),
    "file as a queue": (replaced(QUEUE, Path.touch), "foreign-file", "stop", QUEUE, True),
    "file as config": (replaced("config", Path.touch), "foreign-file", "stop", "config", True),
    "saved": (write("rmqstore-quarantine/00000000000000000000-1", b"x"), "quarantine", "warn",
              "rmqstore-quarantine", True),
    "newer": (write("timerlog/00000000000000000000", b"\1" * 52), "newer-format", "warn",
              "timerlog", True),
}  # fmt: skip
del CASES["more units"]


@pytest.mark.parametrize("name", CASES)
def test_each_kind(root: Path, name: str) -> None:
    damage, kind, severity, file, seen = CASES[name]
    damage(root)
    for full in (False, True):
        report = check(root, full=full)
        found = [
            one
            for one in report.problems
            if one.kind == kind and (one.file.startswith(file) if file else True)
        ]
        if not full and not seen:
            continue
        assert found, report.problems
        assert found[0].severity == severity
        note = severity == "warn" and (
            kind in ("abort", "quarantine", "topic-unknown") or name == "torn backup"
        )
        assert report.clean is note
        assert (report.broker == "refuses") is any(
            one.severity == "stop" for one in report.problems
        )


def test_a_good_store(root: Path) -> None:
    for full in (False, True):
        report = check(root, full=full)
        assert (report.broker, report.line, report.messages_lost) == ("starts", None, 0)
        assert (report.problems, report.fix, report.clean) == ((), None, True)
    checked = report.checked
    assert (checked.records, checked.units, checked.queues) == (120, 120, 2)
    files = [path for path in root.rglob("*") if path.is_file()]
    assert (checked.index_files, checked.files) == (2, len(files))


def test_the_way_on(root: Path) -> None:
    duplicate_unit(root)
    assert check(root, full=True).fix == f"rmqstore rebuild {root} --queues"
    index(0, 35, b"\7")(root)
    assert check(root, full=True).fix == f"rmqstore rebuild {root} --queues --index"
    poke(LOG(MIDDLE), 5000, b"\xff")(root)
    assert check(root, full=True).fix == f"rmqstore repair {root}"
    remove("commitlog")(root)
    assert check(root).fix is None
    with pytest.raises(rmqstore.StoreNotFoundError):
        toolbox.verify(root / "config")


def test_a_small_store_is_read_whole(root: Path) -> None:
    (root / "abort").touch()
    records = damaged_store.records(root)
    number = next(at for at, one in enumerate(records) if one.physical_offset >= MIDDLE) + 3
    damaged_store.poke(root, records[number].physical_offset + 100, b"\xff")
    report = check(root)
    assert report.full
    assert report == check(root, full=True)
    assert (report.broker, report.problems[0].kind) == ("loses", "bad-record")


def test_a_huge_sparse_queue_file(root: Path) -> None:
    (extra := root / "consumequeue/Topic1/77").mkdir()
    units = (root / FIRST).read_bytes()
    with (extra / f"{0:020}").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(units[:20] * 2)
    report = check(root, full=True)
    (one,) = (one for one in report.problems if one.kind == "queue-extra")
    assert one.file.startswith("consumequeue/Topic1/77")
    assert one.offset == (1 << 39) // 20 * 20


def test_the_log_read_whole_decides_what_a_start_loses(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["rmqstore.toolbox.checks.verify"], "_SMALL", -1)
    (root / "abort").touch()
    records = damaged_store.records(root)
    number = next(at for at, one in enumerate(records) if one.physical_offset >= MIDDLE) + 3
    hit, behind = records[number], records[number + 1 :]
    damaged_store.poke(root, hit.physical_offset + 100, b"\xff")
    assert check(root).broker == "starts"  # not seen
    report = check(root, full=True)
    assert (report.broker, report.messages_lost) == ("loses", len(behind))
    assert report.line is not None
    assert report.line.startswith("recover physics file end, ")
    assert report.line.endswith(f" pos={hit.physical_offset - MIDDLE}")


def test_the_number_of_units_that_a_start_loses(root: Path) -> None:
    units = bytearray((root / FIRST).read_bytes())
    units[40:100] = units[100:160]  # three units of other records
    (root / FIRST).write_bytes(units)
    report = check(root, full=True)
    assert (report.broker, report.messages_lost) == ("loses", 3)


@pytest.mark.parametrize("full", [False, True])
def test_a_torn_tail_of_a_killed_store(root: Path, full: bool) -> None:
    damaged_store.killed(root)
    last = damaged_store.records(root)[-1]
    damaged_store.poke(root, last.physical_offset + 100, b"\xff")
    report = check(root, full=full)
    (one,) = (one for one in report.problems if one.kind == "torn-tail")
    assert (one.severity, one.offset) == ("warn", last.physical_offset)
    assert report.broker == "starts"


def test_ext_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["rmqstore.toolbox.checks.verify"], "_SMALL", -1)
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=queue_ext.config()) as store:
        queue_ext.fill(store, 0, 40)
    assert check(root, full=True).clean  # though one file alone shows the log's size
    poke(f"consumequeue_ext/T/0/{0:020}", 22, b"\1" * 8)(root)  # the tags code of the second
    assert check(root).clean
    report = check(root, full=True)
    assert [(one.file, one.offset) for one in report.problems if one.kind == "ext-mismatch"] == [
        ("consumequeue_ext/T/0", 20)
    ]
    remove("consumequeue_ext/T/0")(root)
    found = [one.file for one in check(root).problems if one.kind == "ext-mismatch"]
    assert set(found) == {"consumequeue_ext/T/0"}


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=damaged_store.CONFIG) as store:
        store.put("T", b"x", queue_id=0)
        store.clock.advance(86_400_000)
        for number in range(30):
            store.put("T", b"%03d" % number * 300, queue_id=0)
    report = check(root)
    assert "clock" in {one.kind for one in report.problems}
    assert report.clean


def test_sizes_of_a_configuration(root: Path) -> None:
    config = damaged_store.CONFIG.replace(mapped_file_size_commit_log=32768)
    report = check(root, config=config)
    assert (report.broker, report.problems[0].kind) == ("refuses", "config-size")


def test_offsets_that_retention_passed(root: Path) -> None:
    with rmqstore.open(root, "r+") as store:
        newest = store["Topic1"][0][-1].store_timestamp
        assert store.delete_expired(before=newest + 1).files
    text = (root / OFFSETS).read_text().replace("0:", "0:0,9:")
    (root / OFFSETS).write_text(text)
    report = check(root)
    assert {one.kind for one in report.problems} >= {"offset-below-start"}


def test_a_log_elsewhere(tmp_path: Path) -> None:
    config = damaged_store.CONFIG.replace(store_path_commit_log=str(tmp_path / "log"))
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=config) as store:
        for number in range(60):
            store.put("T", b"%03d" % number * 200, queue_id=0)
        offset = store["T"][0][30].physical_offset
    assert toolbox.verify(root, config=config, full=True, jobs=1).problems == ()
    start = offset - offset % damaged_store.LOG_SIZE
    with (tmp_path / f"log/{start:020}").open("r+b") as file:
        file.seek(offset - start + 100)
        file.write(b"\xff")
    report = toolbox.verify(root, config=config, full=True, jobs=1)
    assert report.problems[0].kind == "bad-record"
    assert report.problems[0].offset == offset


@pytest.mark.parametrize("jobs", [0, 257, -1])
def test_jobs_out_of_range(root: Path, jobs: int) -> None:
    with pytest.raises(ValueError, match="jobs must be 1 to 256"):
        toolbox.verify(root, jobs=jobs)


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[tuple[Path, rmqstore.MessageStore]]:
    """A store into which a thread writes."""
    root = tmp_path / "live"
    config = damaged_store.CONFIG.replace(
        mapped_file_size_commit_log=1 << 17, max_hash_slot_num=200, max_index_num=800
    )
    stop = threading.Event()
    with rmqstore.open(root, "a", config=config) as store:

        def put() -> None:
            number = 0
            while not stop.is_set():
                store.put(f"T{number % 3}", b"x" * 300, queue_id=number % 2, keys=f"k{number}")
                number += 1
                if number % 20 == 0:
                    time.sleep(0.001)

        thread = threading.Thread(target=put)
        thread.start()
        try:
            yield root, store
        finally:
            stop.set()
            thread.join()


def test_beside_a_live_owner(owner: tuple[Path, rmqstore.MessageStore]) -> None:
    root, _ = owner
    for number in range(6):
        time.sleep(0.1)
        report = toolbox.verify(root, full=number % 2 == 1, jobs=1)
        assert {one.kind for one in report.problems} == {"lock"}
        assert (report.clean, report.broker) == (True, "starts")
    assert report.checked.records > 0
    poke(LOG(0), 150, b"\xff")(root)
    report = toolbox.verify(root, jobs=1)
    assert "bad-record" in {one.kind for one in report.problems}


def test_an_index_file_that_grows(tmp_path: Path) -> None:
    root = tmp_path / "store"
    config = StoreConfig(max_hash_slot_num=200_000, max_index_num=800_000)
    stop = threading.Event()
    with rmqstore.open(root, "a", config=config) as store:

        def put() -> None:
            while not stop.is_set():
                store.put_many("T", bodies=[b"x" * 200] * 50)
                time.sleep(0.002)

        store.put_many("T", bodies=[b"x"] * 3000)
        thread = threading.Thread(target=put)
        thread.start()
        try:
            for _ in range(4):
                report = toolbox.verify(root, full=True, jobs=1)
                assert {one.kind for one in report.problems} == {"lock"}
                assert (report.clean, report.fix) == (True, None)
        finally:
            stop.set()
            thread.join()


def test_processes(root: Path) -> None:
    poke(LOG(MIDDLE), 5000, b"\xff")(root)
    one, two = check(root, full=True), toolbox.verify(root, full=True, jobs=2)
    assert one == two


def test_a_large_store_takes_less_than_a_second(tmp_path: Path) -> None:
    root = tmp_path / "large"
    SparseStore(100, 1 << 30, topics=20, queues=8, records=20, indexed=20).write(root)
    begin = time.process_time()
    report = toolbox.verify(root)
    assert time.process_time() - begin < 1.5  # of a busy machine; 0.2 alone
    assert report.problems == ()


def test_many_problems_are_counted(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=StoreConfig.small()) as store:
        for number in range(2000):
            store.put("T", b"x" * 50, queue_id=0, keys=f"k{number}")
        records = [one.physical_offset for one in store.scan()]
    path = root / LOG(0)
    data = bytearray(path.read_bytes())
    for offset in records[1:-1:2]:
        data[offset + 90] ^= 0xFF
    path.write_bytes(data)
    report = check(root, full=True)
    assert sum(one.kind in ("bad-record", "hole") for one in report.problems) == 999
    assert report.checked.records == 1001


def test_json_of_problems(root: Path) -> None:
    write("commitlog/.DS_Store", b"x")(root)
    (one, *_) = check(root).problems
    assert json.loads(json.dumps(one.to_json())) == {
        "severity": "stop",
        "kind": "foreign-file",
        "file": "commitlog/.DS_Store",
        "offset": None,
        "message": one.message,
    }
