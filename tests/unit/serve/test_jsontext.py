"""JSON of clients, with orjson and without it."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.serve.wire import jsontext

pytestmark = pytest.mark.pure


@pytest.fixture(params=["as installed", "standard library"])
def text(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    if request.param == "standard library":
        monkeypatch.setattr(jsontext, "_read", None)
        monkeypatch.setattr(jsontext, "_write", None)
    return jsontext


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -5,
        1 << 63,
        -(1 << 63),
        1.5,
        "",
        'a\\u4e2d"\n',
        [],
        {},
        {"a": [1, {"b": None}]},
    ],
)  # fmt: skip
def test_what_is_written_is_read_again(text, value) -> None:
    written = text.dumps(value)
    assert written == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    assert text.loads(written) == value
    assert text.loads(written.decode()) == value


@pytest.mark.parametrize(
    "bad",
    [b"", b"{", b"nul", b"NaN", b"[Infinity]", b"-Infinity", b"1e999", b"\xff\xff", b"{1:2}",
     b"'a'", b"1" * 5000],
)  # fmt: skip
def test_what_is_no_json_is_refused(text, bad: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        text.loads(bad)


@pytest.mark.parametrize("depth", [201, 1000, 100_000, 2_000_000])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_what_is_nested_too_deeply_is_refused(text, depth: int, opening: bytes) -> None:
    for closing in (b"", b"]" * depth):
        with pytest.raises(ValueError, match="nested"):
            text.loads(opening * depth + closing)


def test_brackets_in_texts_are_no_depth(text) -> None:
    value = {"a": "[{" * 1000 + '\\"' + "[" * 500, "b": [[]] * 1000}
    assert text.loads(json.dumps(value)) == value
    deepest: object = 1
    for _ in range(200):
        deepest = [deepest]
    assert text.loads(json.dumps(deepest)) == deepest


def depth_of(text: str) -> int:
    """How deep a text is, read letter by letter."""
    depth = most = 0
    in_text = escaped = False
    for letter in text:
        if escaped:
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter == '"':
            in_text = not in_text
        elif not in_text:
            depth += (letter in "[{") - (letter in "]}")
            most = max(most, depth)
    return most


@given(st.text('[]{}"a,', max_size=40) | st.text('[]{}"\\a', max_size=40).map(
    lambda text: '["' + text.replace('"', "") + '"]' if text[-1:] != "\\" else "[]"))  # fmt: skip
def test_the_depth_is_that_of_a_plain_reader(text: str) -> None:
    for most in (8, 9, 10, 12):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(jsontext, "_MAX_DEPTH", most)
            try:
                jsontext._check_depth("[" * 7 + text)
                assert depth_of("[" * 7 + text) <= most
            except ValueError:
                assert depth_of("[" * 7 + text) > most


def test_numbers_beyond_64_bits(text) -> None:
    assert text.loads(b"1" + b"0" * 30) == 1e30
    big = 1 << 80
    assert json.loads(text.dumps({"a": big})) == {"a": big}
    assert text.dumps([math.nan, math.inf, 1.5]) == b"[null,null,1.5]"
    assert text.dumps({1: 2}) == b'{"1":2}'
    text.dumps("\ud800")  # a lone surrogate is no reason to fail
