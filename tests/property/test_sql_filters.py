"""Random SQL92 filters over random properties, against the slow evaluator."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from rmqstore import FilterError, _core
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
