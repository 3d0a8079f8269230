"""The broker's dialect of JSON: read, written in its exact form, refused where it is neither."""

import ast
import contextlib
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.brokerfiles.fastjson import JsonError, JsonLimitError, dumps, loads

pytestmark = pytest.mark.pure

CONFIG = Path(__file__).parents[2] / "data" / "config"
FILES = sorted(CONFIG.glob("*/*.json"))

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
FINITE = SCALARS.filter(lambda value: value not in (float("inf"), float("-inf")))
VALUES = st.recursive(
    FINITE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
INT_MAPS = st.dictionaries(st.integers(-(1 << 63), (1 << 63) - 1), st.integers())


def without_nulls(value: Any) -> Any:
    """What is left once it has been written: fastjson leaves null values of maps out."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.name}")
def test_a_real_file_comes_back_byte_for_byte(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert dumps(loads(text)) == text


def test_real_files_are_there() -> None:
    assert len(FILES) == 9


@pytest.mark.parametrize("name", ["topics", "subscriptionGroup", "consumerFilter"])
def test_as_the_standard_reader_where_it_is_standard(name: str) -> None:
    text = (CONFIG / "broker" / f"{name}.json").read_text(encoding="utf-8")
    assert loads(text) == json.loads(text)


@pytest.mark.parametrize("name", ["consumerOffset", "delayOffset"])
def test_unquoted_keys_are_integers(name: str) -> None:
    text = (CONFIG / "broker" / f"{name}.json").read_text(encoding="utf-8")
    assert loads(text) == ast.literal_eval(text)
    with pytest.raises(ValueError, match="property name"):
        json.loads(text)


@given(VALUES)
def test_reads_standard_json(value: Any) -> None:
    assert loads(json.dumps(value)) == value
    assert loads(json.dumps(value, ensure_ascii=False, indent=2)) == value


@given(VALUES)
def test_reads_what_it_writes(value: Any) -> None:
    written = dumps(value)
    assert loads(written) == without_nulls(value)
    assert json.loads(written) == without_nulls(value)


@given(st.dictionaries(st.text(), INT_MAPS, max_size=4))
def test_integer_keys_come_back(value: dict[str, dict[int, int]]) -> None:
    written = dumps(value)
    assert loads(written) == value
    assert ast.literal_eval(written) == value


@given(st.text(alphabet='{}[]:,"\\0123456789.eE+-truefalsn u\n\t', max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        expected = json.loads(text)
    except (ValueError, RecursionError):
        with contextlib.suppress(JsonError):  # an unquoted key is no standard JSON
            loads(text)
        return
    assert loads(text) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}"),
        ([], "[]"),
        ({"a": {}}, '{\n\t"a":{}\n}'),
        ({"a": {0: 1, 12: -3}}, '{\n\t"a":{0:1,12:-3\n\t}\n}'),
        ({"a": [72, 9, 59]}, '{\n\t"a":[72,9,59]\n}'),
        ({"a": ["x", "y"]}, '{\n\t"a":[\n\t\t"x",\n\t\t"y"\n\t]\n}'),
        ({"a": [{"k": 1}, 2]}, '{\n\t"a":[\n\t\t{\n\t\t\t"k":1\n\t\t},\n\t\t2\n\t]\n}'),
        ({1: {"q": 2}, 7: "s"}, '{1:{\n\t\t"q":2\n\t},7:"s"\n}'),
        ({"x": None, "y": 1.5, "z": True}, '{\n\t"y":1.5,\n\t"z":true\n}'),
        ('"\\/\b\t\n\f\r', '"\\"\\\\/\\b\\t\\n\\f\\r"'),
        ("\0\x0b\x1f\x7f\x80\x9f\xa0\u2028\u2029\xe9", '"\\u0000\\u000B\\u001F\\u007F\\u0080\\u009F'
         '\xa0\\u2028\\u2029\xe9"'),
        ("\U0001f600", '"\U0001f600"'),
    ],
)  # fmt: skip
def test_written_as_fastjson_writes(value: Any, text: str) -> None:
    assert dumps(value) == text


@pytest.mark.parametrize(
    ("text", "position", "line"),
    [
        ("", 0, 1),
        ("   ", 3, 1),
        ('{"a":1', 6, 1),
        ('{"a":1}x', 7, 1),
        ('{\n"a" 1}', 6, 2),
        ('{"a":}', 5, 1),
        ('{"a":1,}', 7, 1),
        ("{a:1}", 1, 1),
        ("{'a':1}", 1, 1),
        ("{1.5:2}", 1, 1),
        ("[1,,2]", 3, 1),
        ("[1 2]", 3, 1),
        ("[01]", 2, 1),
        ("[NaN]", 1, 1),
        ('["\n"]', 1, 1),
        ('["\\x"]', 2, 1),
        ('["\\u12"]', 2, 1),
        ("]", 0, 1),
        ("{]", 1, 1),
        ("[}", 1, 1),
    ],
)
def test_refused_where_it_goes_wrong(text: str, position: int, line: int) -> None:
    with pytest.raises(JsonError) as caught:
        loads(text)
    assert (caught.value.position, caught.value.line) == (position, line)
    assert f"line {line}, character {position}" in str(caught.value)


@pytest.mark.parametrize("cut", range(0, 338, 7))
def test_a_torn_file_is_refused(cut: int) -> None:
    text = (CONFIG / "broker" / "consumerOffset.json").read_text(encoding="utf-8")
    with pytest.raises(JsonError):
        loads(text[:cut])


def test_depth_is_bounded() -> None:
    assert loads("[" * 64 + "]" * 64)
    with pytest.raises(JsonError, match="more than 64 levels"):
        loads("[" * 65 + "]" * 65)
    with pytest.raises(JsonError, match="more than 64 levels"):
        loads('{"a":' * 1_000_000)
    deep: list[Any] = []
    for _ in range(70):
        deep = [deep]
    with pytest.raises(ValueError, match="more than 64 levels"):
        dumps(deep)


def test_size_is_bounded() -> None:
    with pytest.raises(JsonError, match="11 characters, at most 10"):
        loads("[1,2,3,4,5]", max_chars=10)
    with pytest.raises(JsonError, match="a number of 100000 characters"):
        loads("9" * 100_000)


@pytest.mark.parametrize(
    "piece",
    [
        *("[],", "{},", '{"a":0},', '"a":{},', "1:[],"),
        "[" * 50 + "]" * 50 + ",",
        '{"a":' * 60 + "0" + "}" * 60 + ",",
    ],
)
def test_memory_is_bounded_by_the_length(piece: str) -> None:
    """An empty list takes 80 bytes for 3 of text."""
    start, end = ("{", '"b":0}') if piece.startswith(('"', "1")) else ("[", "0]")
    text = start + piece * ((4 << 20) // len(piece)) + end
    tracemalloc.start()
    try:
        with pytest.raises(
            JsonLimitError, match=r"objects and lists in [0-9,]+ characters \(line 1"
        ):
            loads(text)
        assert tracemalloc.get_traced_memory()[1] < 8 * len(text)
    finally:
        tracemalloc.stop()
    some = start + piece * 600 + end
    assert loads(some) is not None


def test_as_many_objects_as_a_broker_writes() -> None:
    """Offsets of groups with the shortest names, more than the free ones."""
    table = {f"{topic:03}@{group:03}": {0: 1} for topic in range(300) for group in range(300)}
    text = dumps({"offsetTable": table})
    assert loads(text)["offsetTable"] == table


def test_long_strings_cost_their_length() -> None:
    text = "\\\\" * 500_000
    assert len(loads(f'"{text}"')) == 500_000
    with pytest.raises(JsonError):
        loads(f'"{text}')


def test_surrogates() -> None:
    assert loads('"\\ud83d\\ude00"') == "\U0001f600"
    assert loads('"\\ud83d"') == "\ud83d"
    assert dumps("\ud83d") == '"\\uD83D"'


@pytest.mark.parametrize("value", [b"x", {1.5: 1}, {True: 1}, {"a": object()}, {1, 2}])
def test_what_is_no_json(value: Any) -> None:
    with pytest.raises(TypeError, match="no JSON"):
        dumps(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number(value: float) -> None:
    with pytest.raises(ValueError, match="no JSON number"):
        dumps([value])


def test_last_of_equal_keys_stays() -> None:
    assert loads('{"a":1,"a":2}') == {"a": 2}
