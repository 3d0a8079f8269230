"""Lists and tuples of str: short texts are copied, long ones kept, everything else is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rmqstore

# All about as long as the longest that is copied, and longer together than one block of copies.
LETTERS = ["a", "\u00e9", "\u4e2d", "\U0001f600"]
TEXTS = [
    f"{number}{letter * length}"
    for number in range(30)
    for letter in LETTERS
    for length in (1, 15, 16, 17, 253, 254, 255, 256, 300)
]


class Text(str):
    """A subclass, whose contents count and not its methods."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        raise AssertionError


FORMS: dict[str, Callable[[list[str]], Any]] = {
    "list": list,
    "tuple": tuple,
    "subclass": lambda rows: [Text(row) for row in rows],
    "mixed": lambda rows: [Text(row) if len(row) % 3 else row for row in rows],
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with rmqstore.open(tmp_path / "store", "a", config=rmqstore.StoreConfig.small()) as opened:
        yield opened


@pytest.fixture
def index(tmp_path: Path) -> Iterator[rmqstore.IndexFile]:
    path = tmp_path / "20260131080000000"
    with rmqstore.IndexFile(path, hash_slot_num=5000, index_num=20_000, mode="a") as opened:
        yield opened


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_text_are_stored(store: Any, form: str) -> None:
    result = store.put_many(
        "Topic1", [b"x"] * len(TEXTS), keys=FORMS[form](TEXTS), tags=FORMS[form](TEXTS[::-1])
    )
    messages = [store.at(int(offset)) for offset in result.physical_offset]
    assert [message.keys for message in messages] == [(text,) for text in TEXTS]
    assert [message.tags for message in messages] == TEXTS[::-1]
    found = store.query_many("Topic1", FORMS[form](TEXTS))
    assert [[m.physical_offset for m in one] for one in found] == [
        [offset] for offset in result.physical_offset
    ]
    offsets, starts = store.locate_many("Topic1", FORMS[form](TEXTS))
    assert (offsets == result.physical_offset).all()
    assert list(starts) == list(range(len(TEXTS) + 1))


@pytest.mark.parametrize("form", FORMS)
def test_rows_without_a_value(store: Any, form: str) -> None:
    rows = [None, *FORMS[form](TEXTS[:3]), None]
    result = store.put_many("Topic1", [b"x"] * 5, keys=rows, tags=tuple(rows))
    messages = [store.at(int(offset)) for offset in result.physical_offset]
    assert [message.tags for message in messages] == [None, *TEXTS[:3], None]
    assert [message.keys for message in messages] == [(), *((text,) for text in TEXTS[:3]), ()]


def test_texts_beside_rows_of_several_keys(store: Any) -> None:
    rows = ["a b", None, ["c", TEXTS[-1]], Text("k")]
    for keys in (rows, tuple(rows)):
        result = store.put_many("Topic1", [b"x"] * 4, keys=keys)
        messages = [store.at(int(offset)) for offset in result.physical_offset]
        assert [m.keys for m in messages] == [("a", "b"), (), ("c", TEXTS[-1]), ("k",)]


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_text_are_hashed_as_arrow_columns_are(index: rmqstore.IndexFile, form: str) -> None:
    texts = ["", *TEXTS, "last"]
    offsets = list(range(len(texts)))
    assert index.put_keys(FORMS[form](texts), offsets, 0) == len(texts)
    found, starts = index.select_many(pa.array(texts))
    assert list(found) == offsets
    again, starts_again = index.select_many(FORMS[form](texts))
    assert list(again) == offsets
    assert list(starts_again) == list(starts)


@pytest.mark.parametrize(
    ("bad", "error", "named"),
    [
        (None, TypeError, "not NoneType"),
        (5, TypeError, r"not int \(5\)"),
        (b"k", TypeError, "not bytes"),
        (["k"], TypeError, "not list"),
        ("k\udc00", ValueError, "a surrogate without its pair"),
        (Text("\ud800"), ValueError, "a surrogate without its pair"),
    ],
    ids=["none", "number", "bytes", "list", "surrogate", "subclass"],
)
@pytest.mark.parametrize("form", [list, tuple])
def test_a_row_that_is_no_text_is_named(
    store: Any, index: rmqstore.IndexFile, form: Callable[[Any], Any], bad: Any, error: Any,
    named: str,
) -> None:  # fmt: skip
    rows = form([*TEXTS, bad, "k", 7])
    match = f"^keys, row {len(TEXTS)}: .*{named}"
    with pytest.raises(error, match=match):
        index.put_keys(rows, 0, 0)
    assert index.index_count == 1
    for call in (
        index.select_many,
        lambda keys: store.query_many("Topic1", keys),
        lambda keys: store.locate_many("Topic1", keys),
    ):
        with pytest.raises(error, match=match):
            call(rows)


def test_no_text_stays_behind(store: Any, index: rmqstore.IndexFile) -> None:
    rows = TEXTS[:40]
    references = [sys.getrefcount(row) for row in rows]
    for keys in (rows, tuple(rows), [*rows, 5], (*rows, "\ud800")):
        bad = len(keys) > len(rows)
        for call in (
            index.select_many,
            lambda keys: index.put_keys(keys, 0, 0),
            lambda keys: store.query_many("Topic1", keys),
            lambda keys: store.put_many("Topic1", [b"x"] * len(keys), tags=keys),
        ):
            try:
                call(keys)
            except (TypeError, ValueError):
                assert bad
            else:
                assert not bad
    del keys
    assert [sys.getrefcount(row) for row in rows] == references
