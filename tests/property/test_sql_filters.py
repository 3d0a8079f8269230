"""Random SQL92 filters over random properties, against the slow evaluator."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from rmqstore import FilterError, StoreConfig, _core
from rmqstore._core import PullFilter
from support import sql_oracle
from support.sql_texts import Texts


def outcome(text: str, stored: bytes) -> bool | None:
    """What the core says: None if it refuses the text."""
    try:
        return _core._sql_matches(text, stored)
    except FilterError as error:
        refused = error
    assert 0 <= refused.position <= len(text)
    assert refused.message
    return None


def expected(text: str, stored: bytes) -> bool | None:
    """What it should say."""
    try:
        expression = sql_oracle.compiled(text)
    except sql_oracle.Refused:
        return None
    return sql_oracle.matches(expression, sql_oracle.properties(stored))


def good_utf8(stored: bytes) -> bytes:
    """As Java decodes it, which the evaluator cannot."""
    return stored.decode(errors="replace").encode()


@given(st.randoms(use_true_random=False), st.integers(1, 6))
def test_filters(source: random.Random, depth: int) -> None:
    texts = Texts(source, depth)
    text = texts.expression()
    for _ in range(4):
        stored = good_utf8(texts.stored())
        assert outcome(text, stored) == expected(text, stored)


@given(st.randoms(use_true_random=False))
def test_broken_texts(source: random.Random) -> None:
    texts = Texts(source)
    text = texts.broken()
    stored = good_utf8(texts.stored())
    assert outcome(text, stored) == expected(text, stored)


@given(
    st.text(alphabet="ab 5'\"().,<>=-+/*\n\t\x00\u00e9eELl0_$iIsSnNoOtTuUrR", max_size=40),
    st.binary(max_size=30),
)
def test_any_text(text: str, stored: bytes) -> None:
    stored = good_utf8(stored)
    assert outcome(text, stored) == expected(text, stored)


def test_many_filters() -> None:
    """More than hypothesis draws, and each kind often."""
    counts = {True: 0, False: 0, None: 0}
    for seed in range(1500):
        texts = Texts(random.Random(seed))
        text = texts.broken() if seed % 3 == 0 else texts.expression()
        stored = good_utf8(texts.stored())
        found = outcome(text, stored)
        assert found == expected(text, stored), (text, stored)
        counts[found] += 1
    assert min(counts.values()) > 150


def as_properties(stored: bytes) -> dict[str, str]:
    return {
        name: value
        for name, value in sql_oracle.properties(stored).items()
        if "\x01" not in value and not name.isupper()
    }


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_filters_whose_work_takes_many_looks(seed: int, tmp_path: Path) -> None:
    """Each message ends a look: what is found in all of them is what the evaluator finds."""
    source = random.Random(seed)
    texts = Texts(source)
    costly = " AND TRUE" * 350_000
    kept = []
    with rmqstore.open(tmp_path / "store", "a", config=StoreConfig.small()) as store:
        while len(kept) < 30:
            properties = as_properties(good_utf8(texts.stored()))
            try:
                store.put("t", b"x", queue_id=0, uniq_key=False, properties=properties)
            except ValueError:  # a name or a value that no message may have
                continue
            kept.append(properties)
        tried = 0
        while tried < 4:
            sql = f"({texts.expression()})"
            try:
                expression = sql_oracle.compiled(sql)
            except sql_oracle.Refused:
                continue
            wanted = [
                n for n, properties in enumerate(kept) if sql_oracle.matches(expression, properties)
            ]
            sql += costly
            got = store.get("t", 0, 0, 1000, sql=sql)
            assert [message.queue_offset for message in got.messages] == wanted, sql[:200]
            assert got.next_offset == len(kept)
            scan = store.scan("t", columns=["queue_offset"], sql=sql)
            assert scan.to_table()["queue_offset"].to_pylist() == wanted
            made, found = PullFilter(None, sql), []
            for offset in range(len(kept)):
                _, following, _, _, count, _ = store.core.pull("t", 0, offset, 32, 1 << 18, made)
                assert following == offset + 1
                found += [offset] * count
            assert found == wanted
            tried += bool(wanted) or source.random() < 0.1
