"""``grep``, against :mod:`re` over the bodies."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import toolbox
from rmqstore.toolbox import search

pytestmark = pytest.mark.pure

BODIES = [
    b'{"uid": 42}',
    b'{"uid": 421}\nsecond line',
    "gr\u00fcn und GR\u00dcN".encode(),
    b"\xff\xfe binary",
    b"",
    b"a.b" * 2000,  # is deflated
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    config = rmqstore.StoreConfig(
        mapped_file_size_commit_log=1 << 20, compress_above=4096, max_index_num=4000,
        max_hash_slot_num=1000,
    )  # fmt: skip
    with rmqstore.open(tmp_path, "a", config=config) as store:
        for number, body in enumerate(BODIES):
            store.put("t", body, queue_id=0, properties={"region": f"eu-{number}"})
    return tmp_path


def rows(root: Path, pattern: str, **options: Any) -> list[int]:
    return [one.queue_offset for one in toolbox.grep(root, pattern, **options)]


@pytest.mark.parametrize(
    ("pattern", "options", "expected"),
    [
        (r'"uid": 42\b', {}, [0]),
        ('"uid": 42', {"fixed": True}, [0, 1]),
        ("^second", {}, [1]),
        ("a.b", {"fixed": True}, [5]),
        ("UID", {}, []),
        ("UID", {"ignore_case": True}, [0, 1]),
        ("gr\u00dcN", {"ignore_case": True}, [2]),
        ("gr\u00fcn", {}, [2]),
        ("gr\u00fcn", {"fixed": True}, [2]),
        (r"gr.n", {}, [2]),
        (r"gr\w+n", {}, [2]),
        ("\\u00fc", {}, [2]),
        (r"\xff\xfe", {}, [3]),
        ("region=eu-4", {"properties": True}, [4]),
        ("region=eu-4", {}, []),
        ("", {}, [0, 1, 2, 3, 4, 5]),
        ("(a+)+b{0,1}[.]b", {}, [5]),
        ("(?i)UID.: 42$|^SECOND", {}, [1]),
        ("UI", {"ignore_case": True, "fixed": True}, [0, 1]),
        ("=eu-4\nre", {"properties": True}, []),
        ("a.b" * 1000, {"fixed": True}, [5]),
        ("\ud800", {}, []),
        ("", {"topic": "other"}, []),
        ("", {"until": 0}, []),
    ],
)
def test_patterns(root: Path, pattern: str, options: dict[str, Any], expected: list[int]) -> None:
    assert rows(root, pattern, **options) == expected
    assert rows(root, pattern, jobs=2, **options) == expected


@pytest.mark.parametrize(
    ("pattern", "options", "body", "properties"),
    [
        ("i", {"ignore_case": True}, "\u0130", {}),
        ("I", {"ignore_case": True}, "\u0131", {}),
        ("(?i)s", {}, "\u017f", {}),
        ("K", {"ignore_case": True, "fixed": True}, "\u212a", {}),
        ("\u00c9", {"ignore_case": True}, "\u00e9", {}),
        ("\ufffd.$", {}, b"\xffa", {}),
        (r"\xff", {}, b"\xff", {}),
        ("a=b\nc", {"properties": True}, "", {"a": "b", "c": "d"}),
        ("a=b\nc", {"properties": True, "fixed": True}, "", {"a": "b", "c": "d"}),
        ("(?x) a b # c", {}, "ab", {}),
        ("ab{0}c|d", {}, "d", {}),
        ("x" * 99, {"fixed": True}, "x" * 99, {}),
        ("X" * 99, {"ignore_case": True}, "x" * 99, {}),
    ],
)
def test_texts_stored_as_other_bytes(
    tmp_path: Path,
    pattern: str,
    options: dict[str, Any],
    body: str | bytes,
    properties: dict[str, str],
) -> None:
    stored = body.encode() if isinstance(body, str) else body
    record = rmqstore.encode_record("t", stored, properties=properties)
    with rmqstore.CommitLog(tmp_path / "commitlog", file_size=1 << 20, mode="a") as log:
        log.append([record])
    assert rows(tmp_path, pattern, **options) == [0]


def test_without_queues_and_index(root: Path) -> None:
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    assert rows(root, "uid", topic="t") == [0, 1]


@pytest.mark.parametrize("pattern", ["a", r"\d{3}", "order-1[0-9]*"])
def test_stores_of_a_broker(broker_store: Callable[[str], Any], pattern: str) -> None:
    root = broker_store("broker-clean").root
    with rmqstore.open(root) as store:
        expected = [
            one.physical_offset
            for one in store.scan()
            if re.search(pattern.encode(), one.body, re.MULTILINE)
        ]
    found = [one.physical_offset for one in toolbox.grep(root, pattern, jobs=2)]
    assert found == expected


def test_damage(root: Path) -> None:
    (log,) = (root / "commitlog").iterdir()
    with rmqstore.open(root) as store:
        offset = store["t"][0][1].physical_offset
    with log.open("r+b") as file:
        file.seek(offset + 90)
        file.write(b"#")
    for jobs in (1, 2):
        with pytest.raises(rmqstore.StoreCorruptError):
            rows(root, "", jobs=jobs)
        assert rows(root, "", jobs=jobs, on_corruption="skip") == [0, 2, 3, 4, 5]


def test_matches_before_damage_come_first(root: Path) -> None:
    (log,) = (root / "commitlog").iterdir()
    with rmqstore.open(root) as store:
        offset = store["t"][0][3].physical_offset
    with log.open("r+b") as file:
        file.seek(offset + 90)
        file.write(b"#")
    for jobs in (1, 2):
        found = toolbox.grep(root, "", jobs=jobs)
        assert [next(found).queue_offset for _ in range(3)] == [0, 1, 2]
        with pytest.raises(rmqstore.StoreCorruptError):
            next(found)


def test_a_body_that_cannot_be_inflated_is_searched_as_stored(tmp_path: Path) -> None:
    with rmqstore.CommitLog(tmp_path / "commitlog", file_size=1 << 20, mode="a") as log:
        log.append([rmqstore.encode_record("t", b"no zlib", sys_flag=1)])
    for jobs in (1, 2):
        assert rows(tmp_path, "zlib", jobs=jobs) == [0]


def test_a_killed_process_is_an_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_PIECE_BYTES", 64)
    found = toolbox.grep(root, "", jobs=2)
    next(found)
    for process in active_children():
        process.kill()
    with pytest.raises(OSError, match="was killed"):
        list(found)


def test_a_pattern_that_explodes_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("t", b"a" * 64)
    with pytest.raises(TimeoutError, match=r"at offset 0 \(64 bytes\)"):
        rows(tmp_path, "(a+)+[bc]", jobs=2)


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "a{99999999999}"])
def test_bad_patterns(root: Path, pattern: str) -> None:
    with pytest.raises(ValueError, match="invalid regular expression"):
        toolbox.grep(root, pattern)
    assert rows(root, pattern, fixed=True) == []


@pytest.mark.parametrize("jobs", [0, -1, 257, True, 1.5, "2"])
def test_bad_jobs(root: Path, jobs: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="jobs must be"):
        toolbox.grep(root, "a", jobs=jobs)
