"""The sink's memory: what it enters is there after a crash, and what is not its own is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rmqstore.errors import StoreCorruptError
from rmqstore.spark.sink.ledger import Intent, Job, Ledger, LedgerEntry
from rmqstore.spark.sink.staging import StagedFile

pytestmark = pytest.mark.spark

QUERY = Job("stream", "q-1", 7, "s-abc.7.none", True)
ONCE = Job("batch", "x", 0, "b.x", False)
FILES = (StagedFile("part-0.arrow", 0, 5, 100, "00ff", ("a", "b")),)


def stage(ledger: Ledger, directory: str, age: float = 0.0) -> Path:
    path = ledger.root / "staging" / directory
    path.mkdir(parents=True)
    (path / "part-0.arrow").touch()
    then = path.stat().st_mtime - age
    for found in (path / "part-0.arrow", path):
        os.utime(found, (then, then))
    return path


def test_the_ledger_knows_batches_up_to_the_last(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.entry(QUERY) is None
    assert not ledger.is_done(QUERY)
    ledger.seal(QUERY, 1234)
    assert Ledger(tmp_path).entry(QUERY) == LedgerEntry(7, 1234)
    for batch, done in ((0, True), (6, True), (7, True), (8, False)):
        assert ledger.is_done(Job("stream", "q-1", batch, "", True)) == done
    assert not ledger.is_done(Job("stream", "q-2", 7, "", True))
    assert not ledger.is_done(Job("batch", "q-1", 0, "", True))
    ledger.seal(ONCE, 1)
    assert not ledger.is_done(ONCE)


def test_an_intent_comes_back_as_it_was(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.intent() is None
    intent = Intent(QUERY, 99, 8, (*FILES, StagedFile("part-1.arrow", 1, 2, 9, "1", ("b",))))
    ledger.begin(intent)
    assert Ledger(tmp_path).intent() == intent
    assert (intent.rows, intent.topics) == (7, ["a", "b"])
    ledger.end()
    assert ledger.intent() is None
    ledger.end()


def test_keys_are_those_of_job_and_batch() -> None:
    other = Job("stream", "q-1", 7, "elsewhere", True)
    assert other.prefix == QUERY.prefix
    assert len(QUERY.prefix) == 16
    prefixes = {QUERY.prefix, ONCE.prefix}
    prefixes |= {Job("stream", "q-1", batch, "", True).prefix for batch in range(6)}
    assert len(prefixes) == 8


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "JSONDecodeError"),
        ("[]", "TypeError"),
        ('{"version": 2}', "version 2, this one reads 1"),
        ('{"version": 1}', "KeyError"),
        ('{"version": 1, "kind": "stream", "name": "q-2", "batch": 1, "end": 1}', "'q-2', not of"),
        ('{"version": 1, "kind": "stream", "name": "q-1", "batch": "x", "end": 1}', "ValueError"),
        ("[" * 100_000, "RecursionError"),
    ],
)
def test_a_ledger_that_is_not_ours(tmp_path: Path, text: str, reason: str) -> None:
    ledger = Ledger(tmp_path)
    ledger.seal(QUERY, 1)
    [path] = (tmp_path / ".spark" / "ledger").iterdir()
    path.write_text(text)
    with pytest.raises(StoreCorruptError, match=f"ledger/stream-.*{reason}.*put a copy back"):
        ledger.entry(QUERY)
    (tmp_path / ".spark" / "intent.json").write_text(text)
    with pytest.raises(StoreCorruptError, match=r"intent\.json, offset 0: not what the sink"):
        ledger.intent()


def test_an_intent_with_a_file_too_few(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.begin(Intent(QUERY, 99, None, FILES))
    path = tmp_path / ".spark" / "intent.json"
    data = json.loads(path.read_text())
    del data["files"][0]["rows"]
    path.write_text(json.dumps(data))
    with pytest.raises(StoreCorruptError, match="rows"):
        ledger.intent()


def test_staged_files_go_with_their_directories(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    stage(ledger, ONCE.directory)
    stage(ledger, "b.other")
    ledger.discard(ONCE)
    assert ledger.staged_jobs() == ["b.other"]
    ledger.discard(Job("batch", "o", 0, "b.other", False))
    assert list(tmp_path.iterdir()) == []
    ledger.discard(ONCE)
    ledger.mark_created()
    assert ledger.created
    ledger.discard(ONCE)
    assert ledger.created


def test_what_was_given_up_is_swept(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    day = 86400.0
    for directory, age in (
        ("s-abc.7.none", 0.0),
        ("s-abc.6.none", 0.0),
        ("s-abc.8.none", 0.0),
        ("s-abc.7.other", 0.0),
        ("s-def.6.none", 0.0),
        ("s-def.5.none", 2 * day),
        ("b.young", 0.9 * day),
        ("b.old", 1.1 * day),
        ("b.intended", 9 * day),
    ):
        stage(ledger, directory, age)
    ledger.begin(Intent(Job("batch", "i", 0, "b.intended", False), 0, None, FILES))
    ledger.sweep(QUERY)
    assert ledger.staged_jobs() == [
        "b.intended",
        "b.young",
        "s-abc.7.none",
        "s-abc.8.none",
        "s-def.6.none",
    ]


def test_entries_are_copied_with_a_store(tmp_path: Path) -> None:
    old, new = Ledger(tmp_path / "old"), Ledger(tmp_path / "new")
    new.copy_entries(old)
    old.seal(QUERY, 5)
    stage(new, "b.x")
    (tmp_path / "new" / "commitlog").mkdir()
    (tmp_path / "new" / "lock").touch()
    new.mark_created()
    new.keep_staging_only()
    assert [path.name for path in (tmp_path / "new").rglob("*") if path.is_file()] == [
        "part-0.arrow"
    ]
    new.copy_entries(old)
    assert new.entry(QUERY) == LedgerEntry(7, 5)
