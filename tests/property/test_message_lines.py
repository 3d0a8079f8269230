"""Messages as lines of JSON and CSV against Python's json and csv."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqstore import _core
from rmqstore import lines as message_lines
from rmqstore.base.times import format_millis
from rmqstore.lines import csv_heading, csv_lines, formatted, json_lines
from support.oracle import FLAG_COMPRESSED, Record, decode_record
from support.strategies import INT32, INT64, hosts, texts

pytestmark = pytest.mark.property

BODY_FORMS = ("auto", "utf8", "base64", "hex", "json", "none")
FIELDS = (
    "topic", "queue_id", "queue_offset", "physical_offset", "store_size", "msg_id", "uniq_key",
    "tags", "keys", "properties", "body", "flag", "sys_flag", "born_timestamp", "store_timestamp",
    "born_host", "store_host", "reconsume_times", "prepared_transaction_offset", "body_crc",
)  # fmt: skip
CELLS = {
    "auto": ["body", "body_base64"],
    "utf8": ["body"],
    "base64": ["body_base64"],
    "hex": ["body_hex"],
    "none": [],
}

# Characters that one of the two escapes, beside those that 8 bytes at a time go past.
marks = st.sampled_from(
    ['"', "\\", ",", "\n", "\r", "\r\n", "\t", "\b", "\f", "\0", "\x1f", "\x7f"]
)
wide = st.sampled_from(["\x80", "\u00e9", "\u0105", "\u2028", "\u8ba2", "\ufeff", "\U0001d11e"])
plain = st.sampled_from(["a", " ", "order-00017", "x" * 7, "x" * 8, "x" * 9, "/", "{}", "'"])
rich = st.lists(marks | wide | plain | texts(), max_size=12).map("".join)
malformed = st.lists(
    st.sampled_from(
        [
            b"\xff",
            b"\x80",
            b"\xc0\x80",
            b"\xe2\x82",
            b"\xed\xa0\x80",
            b"\xed\xa0",
            b"\xf4\x90\x80\x80",
        ]
    )
    | rich.map(str.encode)
    | st.binary(max_size=9),
    max_size=6,
).map(b"".join)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | rich,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(rich, inner, max_size=3),
    max_leaves=6,
)
written = st.sampled_from(
    [b"NaN", b"[Infinity]", b"1e999", b'"\\ud800"', b" {} ", b'{"a":1,"a":2}', b"[" * 5000]
)
bodies = (
    rich.map(str.encode)
    | malformed
    | written
    | values.map(lambda value: json.dumps(value, allow_nan=False).encode())
)
names = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"n", b'"', b"\xff", b"\xfe"]) | malformed
pairs = st.lists(st.tuples(names, malformed | rich.map(str.encode)), max_size=5)
zones = st.sampled_from(["", "CET-1CEST,M3.5.0,M10.5.0/3", "LMT-0:53:28", "NST3:30", "UTC0"])
times = st.integers(-INT64 - 1, INT64) | st.sampled_from(
    [0, -1, -62_135_596_800_000, -62_135_596_800_001, -62_167_219_200_000, -62_167_219_200_001,
     253_402_300_799_999, 253_402_300_800_000, 951_782_400_000, 4_107_542_399_999]
) | st.integers(0, 4_200_000_000_000)  # fmt: skip


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """A record as somebody may have stored it."""
    body = draw(bodies)
    packed = draw(st.booleans())
    topic = draw(st.binary(min_size=1, max_size=20) | texts(min_size=1, max_size=5).map(str.encode))
    properties = b"\2".join(name + b"\1" + value for name, value in draw(pairs))
    raw = bytearray(
        _core.encode_record(
            "t" * len(topic),
            zlib.compress(body) if packed else body,
            queue_id=draw(st.integers(0, INT32)),
            queue_offset=draw(st.integers(0, 1 << 62)),
            physical_offset=draw(st.integers(0, 1 << 62)),
            flag=draw(st.integers(-INT32 - 1, INT32)),
            sys_flag=draw(st.sampled_from([0, 2, 4, 8])) | (FLAG_COMPRESSED if packed else 0),
            born_timestamp=draw(times),
            store_timestamp=draw(times),
            born_host=draw(hosts),
            store_host=draw(hosts),
            reconsume_times=draw(st.integers(0, INT32)),
            prepared_transaction_offset=draw(st.integers(-INT64 - 1, INT64)),
            properties=properties,
        )
    )
    at = len(raw) - 2 - len(properties) - len(topic)
    raw[at : at + len(topic)] = topic
    return bytes(raw)


def row_of(message: Any, form: str, local: bool) -> dict[str, Any]:
    """Return the fields of a message as they go into a line, by plain Python."""
    row: dict[str, Any] = {}
    for name in FIELDS:
        value = getattr(message, name)
        if name == "body":
            row |= body_of(value, form)
        elif name.endswith("_timestamp"):
            row[name] = format_millis(value, local=local)
        else:
            row[name] = value
    return row


def body_of(body: bytes, form: str) -> dict[str, Any]:
    if form == "none":
        return {}
    if form == "base64":
        return {"body_base64": base64.b64encode(body).decode()}
    if form == "hex":
        return {"body_hex": body.hex()}
    if form == "utf8":
        return {"body": body.decode("utf-8", "replace")}
    if form == "json":
        try:
            value = json.loads(body)
            json.dumps(value, allow_nan=False)
        except (ValueError, RecursionError):
            return body_of(body, "auto")
        return {"body": value}
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return body_of(body, "base64")


@contextmanager
def local_zone(zone: str) -> Iterator[bool]:
    """Make it this machine's zone; gives whether times are to be shown in it."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = zone
    time.tzset()
    try:
        yield zone != ""
    finally:
        os.environ.pop("TZ")
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def csv_line(cells: list[Any]) -> bytes:
    """Return a line of Python's csv; with this end it quotes both kinds of line breaks."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n").encode() + b"\n"


def csv_columns(form: str) -> list[str]:
    at = FIELDS.index("body")
    return [*FIELDS[:at], *CELLS[form], *FIELDS[at + 1 :]]


def csv_cells(message: Any, form: str, local: bool) -> list[Any]:
    row = row_of(message, form, local)
    row["keys"] = " ".join(row["keys"])
    row["properties"] = compact(row["properties"])
    return [row.get(name) for name in csv_columns(form)]


many = st.lists(records(), max_size=4)


@given(raws=many, form=st.sampled_from(BODY_FORMS), zone=zones)
def test_json_lines(raws: list[bytes], form: str, zone: str) -> None:
    messages = [_core.decode_record(raw) for raw in raws]
    with local_zone(zone) as local:
        lines = json_lines(messages, form, local=local)
        expected = [compact(row_of(message, form, local)) for message in messages]
    assert lines.decode("utf-8", "surrogatepass").split("\n") == [*expected, ""]


@given(raws=many, form=st.sampled_from(BODY_FORMS))
def test_without_orjson(raws: list[bytes], form: str) -> None:
    messages = [_core.decode_record(raw) for raw in raws]
    lines = json_lines(messages, form)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message_lines, "_dumps", message_lines._stdlib_dumps)
        assert json_lines(messages, form) == lines


@given(raws=many, form=st.sampled_from(list(CELLS)), zone=zones)
def test_csv_lines(raws: list[bytes], form: str, zone: str) -> None:
    messages = [_core.decode_record(raw) for raw in raws]
    with local_zone(zone) as local:
        lines = csv_heading(form) + csv_lines(messages, form, local=local)
        expected = [csv_columns(form), *(csv_cells(one, form, local) for one in messages)]
    assert lines == b"".join(map(csv_line, expected))
    read = list(csv.reader(io.StringIO(lines.decode(), newline="")))
    assert read == [["" if one is None else str(one) for one in cells] for cells in expected]


def by_letter(message: Any, letter: str, form: str, local: bool) -> bytes:
    """Return what a letter of a format means, by plain Python."""
    if letter == "s":
        if form == "auto":
            return message.body
        [text] = body_of(message.body, "auto" if form == "json" else form).values() or [""]
        return text.encode()
    if letter == "J":
        return compact(row_of(message, form, local)).encode("utf-8", "surrogatepass")
    values = {
        "t": message.topic,
        "q": message.queue_id,
        "o": message.queue_offset,
        "p": message.physical_offset,
        "k": " ".join(message.keys),
        "g": message.tags or "",
        "S": len(message.body),
        "R": message.store_size,
        "T": format_millis(message.store_timestamp, local=local),
        "M": message.store_timestamp,
        "B": format_millis(message.born_timestamp, local=local),
        "i": message.msg_id,
        "u": message.uniq_key or "",
        "h": compact(message.properties),
    }
    return str(values[letter]).encode()


LETTERS = "tqopkgsSRTMBiuhJ"
formats = st.lists(st.sampled_from(LETTERS) | st.binary(max_size=3), max_size=9) | st.just(
    [*LETTERS]
)


@given(raws=many, pieces=formats, form=st.sampled_from(BODY_FORMS), zone=zones)
def test_formats(raws: list[bytes], pieces: list[str | bytes], form: str, zone: str) -> None:
    messages = [_core.decode_record(raw) for raw in raws]
    with local_zone(zone) as local:
        found = formatted(messages, pieces, form, local=local)
        expected = b"".join(
            one if isinstance(one, bytes) else by_letter(message, one, form, local)
            for message in messages
            for one in pieces
        )
    assert found == expected


@given(raw=records())
def test_fields_are_those_of_the_slow_codec(raw: bytes) -> None:
    record: Record = decode_record(raw)
    [row] = map(json.loads, json_lines([_core.decode_record(raw)], "hex").splitlines())
    assert row["topic"] == record.topic
    assert row["properties"] == record.properties
    assert row["keys"] == list(record.keys)
    assert (row["tags"], row["uniq_key"]) == (record.tags, record.uniq_key)


@given(text=rich, rest=st.integers(0, 9))
@example(text="\x1f" * 9, rest=0)
def test_texts_longer_than_a_piece(text: str, rest: int) -> None:
    body = ("x" * (4096 - rest) + text + '",\n' * 3000).encode()
    message = _core.decode_record(_core.encode_record("t", body))
    assert json.loads(json_lines([message], "auto"))["body"] == body.decode()
    [cells] = csv.reader(io.StringIO(csv_lines([message], "utf8").decode(), newline=""))
    assert cells[FIELDS.index("body")] == body.decode()


def test_arguments() -> None:
    message = _core.decode_record(_core.encode_record("t", b"x"))
    assert json_lines([], "auto") == csv_lines([], "auto") == b""
    with pytest.raises(
        ValueError, match=r"body must be one of 'auto', .*, 'json', 'none', got 'text'"
    ):
        json_lines([message], "text")
    with pytest.raises(
        ValueError, match="body must be one of 'auto', 'utf8', 'base64', 'hex', 'none', got"
    ):
        csv_lines([message], "json")
