"""Scans and walks look at records in place, which another process may write anew meanwhile."""

from __future__ import annotations

import itertools
import mmap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rmqstore
from rmqstore import _core

pa = pytest.importorskip("pyarrow")

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=4 << 20,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=100,
    max_index_num=400,
)
BODY = 60_000
STORED_AT = 56  # of the store time in a record, which ends its head here
HEAD = STORED_AT + 8
SECONDS = 1.5
PATIENCE = 60.0  # seconds until both versions were seen often enough
OFTEN = 10
COLUMNS = {
    "all": ("body", "tags", "keys", "properties", "store_timestamp", "topic"),
    "without body": ("tags", "keys", "properties", "store_timestamp"),
}


def made(root: Path, letter: str) -> bytes:
    """Make a store of three messages, of which the second is of a letter; the bytes of that."""
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.put("t", b"first", queue_id=0)
        # One letter has tags, the other has none, so that nulls come and go.
        text = {"tags": letter} if letter == "B" else {"properties": {"TAGX": letter}}
        done = store.put("t", letter.encode() * BODY, queue_id=0, keys=[letter * 9], **text)
        store.put("t", b"last", queue_id=0)
        at, size = done.physical_offset, store.at(done.physical_offset).store_size
    log = root / "commitlog" / f"{0:020d}"
    return log.read_bytes()[at : at + size]


@contextmanager
def rewritten(root: Path, versions: tuple[bytes, bytes]) -> Iterator[None]:
    """Have a thread write the second message anew, in turn with both versions.

    As an owner does that recovered: other bytes first become nothing, and no two records that are
    written one after the other have the same time.
    """
    stopped = threading.Event()
    stamps = itertools.count(int.from_bytes(versions[0][STORED_AT : STORED_AT + 8], "big"))
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        at = file.read().index(versions[0][:HEAD])
        with mmap.mmap(file.fileno(), 0) as mapped:

            def write() -> None:
                while not stopped.is_set():
                    for version in versions:
                        stamp = next(stamps).to_bytes(8, "big")
                        head = version[:STORED_AT] + stamp
                        mapped[at : at + HEAD] = bytes(HEAD)
                        mapped[at + HEAD : at + len(version)] = version[HEAD:]
                        mapped[at : at + HEAD] = head
                        time.sleep(0.00005)

            writer = threading.Thread(target=write)
            writer.start()
            try:
                yield
            finally:
                stopped.set()
                writer.join()


@pytest.fixture
def letters(tmp_path: Path) -> tuple[Path, tuple[bytes, bytes]]:
    """A store, and both versions of its second message."""
    first = made(tmp_path / "A", "A")
    second = made(tmp_path / "B", "B")
    assert len(first) == len(second)
    return tmp_path / "A", (first, second)


def goes_on(began: float, seen: dict[str, int]) -> bool:
    """For some seconds, and on a busy machine until each version was seen often."""
    took = time.monotonic() - began
    return took < SECONDS or (min(seen.values()) <= OFTEN and took < PATIENCE)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
def test_no_row_has_something_of_two_records(
    letters: tuple, columns: str, batch_bytes: int
) -> None:
    root, versions = letters
    seen = dict.fromkeys("AB", 0)
    times: dict[str, int] = {}
    names = COLUMNS[columns]
    with rewritten(root, versions), rmqstore.open(root, "r", config=CONFIG) as store:
        began = time.monotonic()
        while goes_on(began, seen):
            # A record that is half written is skipped, as any that is bad.
            scan = store.scan("t", columns=names, on_corruption="skip", batch_bytes=batch_bytes)
            table = scan.to_table()
            table.validate(full=True)
            rows = table.to_pylist()
            assert 2 <= len(rows) <= 3
            for row in rows[1:-1]:
                (key,) = row["keys"]
                parity = round(row["store_timestamp"].timestamp() * 1000) % 2
                letter = key[0]
                assert key == letter * 9
                assert row["tags"] == ("B" if letter == "B" else None)
                assert row.get("body", letter.encode() * BODY) == letter.encode() * BODY
                assert times.setdefault(letter, parity) == parity
                seen[letter] += 1
    assert min(seen.values()) > OFTEN, seen


def test_no_message_has_something_of_two_records(letters: tuple) -> None:
    root, versions = letters
    seen = dict.fromkeys("AB", 0)
    times: dict[str, int] = {}
    with rewritten(root, versions), rmqstore.open(root, "r", config=CONFIG) as store:
        began = time.monotonic()
        while goes_on(began, seen):
            messages = list(store.scan("t", on_corruption="skip"))
            assert 2 <= len(messages) <= 3
            for message in messages[1:-1]:
                letter = message.keys[0][0]
                assert times.setdefault(letter, message.store_timestamp % 2) == (
                    message.store_timestamp % 2
                )
                assert message.body == letter.encode() * BODY
                assert message.tags == ("B" if letter == "B" else None)
                seen[letter] += 1
    assert min(seen.values()) > OFTEN, seen


def walked(root: Path) -> tuple[int, dict[int, int], dict[int, list[tuple[int, int]]]]:
    """Records of the whole log; by their offsets tags codes, and key hashes with store times."""
    walk = _core.LogUnits(str(root), CONFIG, {}, 0, CONFIG.mapped_file_size_commit_log)
    codes: dict[int, int] = {}
    keys: dict[int, list[tuple[int, int]]] = {}
    while (found := walk.next(1 << 20)) is not None:
        runs, entries = found
        for _, (offset, _, code) in (one for run in runs for one in _core.used_units(run[5])):
            assert offset not in codes
            codes[offset] = code
        for key_hash, offset, stored in _core.loose_entries(entries):
            keys.setdefault(offset, []).append((key_hash, stored))
    return walk.totals()["records"], codes, keys


def test_no_unit_or_entry_has_something_of_two_records(letters: tuple) -> None:
    root, versions = letters
    expected = {}
    for letter in "AB":
        count, codes, keys = walked(root.parent / letter)
        at = sorted(codes)[1]
        expected[codes[at]] = letter, [one for one, _ in keys[at]]
        assert count == 3
    assert len(expected) == 2
    seen = dict.fromkeys("AB", 0)
    times: dict[str, int] = {}
    with rewritten(root, versions):
        began = time.monotonic()
        while goes_on(began, seen):
            count, codes, keys = walked(root)
            assert 2 <= count <= 3
            assert count == len(codes)
            if at in codes:
                letter, hashes = expected[codes[at]]
                assert [one for one, _ in keys[at]] == hashes
                for _, stored in keys[at]:
                    assert times.setdefault(letter, stored % 2) == stored % 2
                seen[letter] += 1
    assert min(seen.values()) > OFTEN, seen
