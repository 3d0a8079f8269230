"""Frames: the core's codec beside an independent one, over any cut and any change of bytes."""

from __future__ import annotations

import ctypes
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore._core import FrameReader, encode_frame
from rmqstore.serve.wire.frames import Request
from support import frame_oracle as oracle

TEXT = st.text(max_size=12) | st.sampled_from(
    ["", "a", "\x00\x01\x02", '"\\/', "\U0001f600\ud83d", "\ude00", "\u00e4\u20ac", "extFields"]
)
NUMBER = st.integers(-(1 << 31), (1 << 31) - 1)
PLAIN = TEXT | NUMBER | st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
NESTED = st.recursive(
    PLAIN, lambda inside: st.lists(inside, max_size=3) | st.dictionaries(TEXT, inside, max_size=3)
)
KNOWN = st.sampled_from(["code", "opaque", "flag", "version", "language", "remark", "extFields"])


def headers():
    """Return headers as clients send them, and some that no client sends."""
    return st.fixed_dictionaries(
        {"code": NUMBER, "opaque": NUMBER},
        optional={
            "flag": NUMBER | NUMBER.map(str) | st.none(),
            "version": st.integers(-1, 500),
            "language": st.sampled_from([*oracle.LANGUAGES, "RUST", 3, 99, None]),
            "remark": TEXT | st.none() | NUMBER,
            "extFields": st.dictionaries(TEXT, PLAIN | NESTED, max_size=5) | st.none(),
            "other": NESTED,
        },
    )


def received(data: bytes, cuts: list[int] = ()) -> tuple[list[Request], bool]:
    """Return the requests that the core takes from bytes that come in pieces, and whether all."""
    reader = FrameReader(Request)
    found = []
    for first, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        piece = data[first:end]
        while piece:
            room = reader.get_buffer()
            count = min(len(room), len(piece))
            room[:count] = piece[:count]
            reader.received(count)
            piece = piece[count:]
        try:
            while (request := reader.take()) is not None:
                found.append(request)
        except ValueError:
            return found, False
    return found, True


def expected(data: bytes) -> tuple[list[Request], bool]:
    try:
        return oracle.split(data), True
    except oracle.NotAFrame as error:
        return error.requests, False


@given(
    st.lists(st.tuples(headers(), st.booleans(), st.binary(max_size=9)), max_size=4),
    st.randoms(use_true_random=False),
)
def test_the_same_requests_as_the_oracle(made, draw):
    data = b"".join(
        oracle.framed(json.dumps(header, ensure_ascii=ascii).encode("utf-8", "surrogatepass"), b)
        for header, ascii, b in made
    )
    cuts = sorted(draw.randrange(len(data) + 1) for _ in range(draw.randrange(6)))
    assert received(data, cuts) == expected(data)


@given(
    st.builds(
        Request, code=st.integers(-(1 << 15), (1 << 15) - 1),
        fields=st.dictionaries(st.text(max_size=9), st.text(max_size=30), max_size=5),
        body=st.binary(max_size=20), opaque=NUMBER, flag=NUMBER,
        language=st.sampled_from(oracle.LANGUAGES), version=st.integers(0, 500),
        remark=st.none() | st.text(min_size=1, max_size=9),
    )
)  # fmt: skip
def test_binary_headers(request):
    data = oracle.encode_binary(request)
    assert received(data) == ([request], True)
    for cut in range(len(data)):
        assert received(data, [cut]) == ([request], True)


SEEDS = [
    oracle.framed(b'{"code":310,"extFields":{"a":"P","i":"k\\u0001v\\u0002","e":"2"},"flag":0,'
                  b'"language":"JAVA","opaque":3,"version":399} \n', b"body"),
    oracle.framed(b'{"code":11,"extFields":{"queueId":0,"ok":true,"n":null,"x":[1,{"a":[]}]},'
                  b'"opaque":-7.0e1,"remark":"\\ud83d\\ude00\\n"}'),
    oracle.framed(b'{"code":"34","opaque":"\\u0035","extFields":{},"extFields":{"\\u0061":"b"}}'),
    oracle.encode_binary(Request(10, {"topic": "T", "": ""}, b"xy", 5, 2, "GO", 317, "r")),
    oracle.encode_binary(Request(15, {}, b"", -1, 0, "JAVA", 399)),
]  # fmt: skip


def test_cuts_at_each_byte():
    data = b"".join(SEEDS[i] for i in (0, 2, 3, 4))
    whole = received(data)
    assert len(whole[0]) == 4
    for cut in range(len(data) + 1):
        assert received(data, [cut]) == whole
        assert received(data[:cut])[1]
    assert received(data, list(range(len(data)))) == whole


def test_mutations():
    draw = random.Random(14)
    refused = 0
    for _ in range(6000):
        data = bytearray(draw.choice(SEEDS))
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(data))
            kind = draw.randrange(4)
            if kind == 0:
                data[at] = draw.randrange(256)
            elif kind == 1:
                data[at] ^= 1 << draw.randrange(8)
            elif kind == 2:
                data[at] = draw.choice(b'"\\{}[],:0-9u\x00\xed\xa0\xff')
            else:
                other = draw.choice(SEEDS)
                data[at : at + 4] = other[at : at + 4]
        if draw.random() < 0.5:  # a length that is right, so that the header is read
            data[:4] = (len(data) - 4).to_bytes(4, "big")
        wanted = expected(bytes(data))
        assert received(bytes(data)) == wanted, bytes(data)
        refused += not wanted[1]
    assert 1000 < refused < 5000


@pytest.mark.parametrize("opening", ['{"a":', "["])
@pytest.mark.parametrize("depth", [56, 57, 58, 59, 60, 61, 100_000])
def test_depth_is_bounded(opening, depth):
    closing = "}" if opening[0] == "{" else "]"
    for place in ("other", "extFields"):
        text = opening * depth + "1" + closing * depth
        if place == "extFields":
            text = '{"x":' + text + "}"
        data = oracle.framed(b'{"code":1,"' + place.encode() + b'":' + text.encode() + b"}")
        if depth > 50_000:
            assert received(data) == ([], False)
        else:
            assert received(data) == expected(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff", b"\x00\x00\x00\x03", b"\x01\x00\x00\x01", b"\x80\x00\x00\x00",
        b"\x00\x00\x00\x10\x02\x00\x00\x04", b"\x00\x00\x00\x10\x00\x00\x00\x0d",
        b"\x00\xff\xff\xff\x00\x04\x00\x01", oracle.framed(b""), oracle.framed(b"[]"),
        oracle.framed(b"{} x"), oracle.framed(b"null"), oracle.framed(b"", b"", 1),
    ],
)  # fmt: skip
def test_what_is_no_frame(data):
    assert received(data) == ([], False)
    assert expected(data) == ([], False)


def test_limits_of_lengths():
    fields = '"k":"%s"' % ("x" * (200 << 10))
    assert received(oracle.framed(b'{"extFields":{%s}}' % fields.encode()))[0][0].fields["k"]
    many = ",".join(f'"k{i}":"v"' for i in range(1024))
    assert len(received(oracle.framed(b'{"extFields":{%s}}' % many.encode()))[0][0].fields) == 1024
    many += ',"z":""'
    assert received(oracle.framed(b'{"extFields":{%s}}' % many.encode())) == ([], False)
    largest = oracle.framed(b"{}", bytes(oracle.MAX_FRAME - 6))
    assert len(received(largest)[0][0].body) == oracle.MAX_FRAME - 6


def test_a_length_is_not_believed():
    reader = FrameReader(Request)
    room = reader.get_buffer()
    room[:8] = b"\x00\xff\xff\xff\x00\x00\x00\x10"
    reader.received(8)
    assert reader.take() is None
    assert len(reader.get_buffer()) <= 1 << 17
    with pytest.raises(ValueError, match="room"):
        reader.received(1 << 20)


def test_a_large_frame_is_copied_a_few_times_at_its_beginning():
    """And no read takes all that a client has sent by then."""
    reader = FrameReader(Request)
    frame = memoryview(oracle.framed(b'{"code":1,"opaque":1}', bytes(15 << 20)))
    sent, places = 0, {}
    while sent < len(frame):
        room = reader.get_buffer()
        assert len(room) <= 256 << 10
        place = ctypes.addressof(ctypes.c_char.from_buffer(room)) - sent
        places.setdefault(place, sent)  # where the frame begins in memory
        size = min(len(room), len(frame) - sent)
        room[:size] = frame[sent : sent + size]
        reader.received(size)
        sent += size
        request = reader.take()
    assert max(places.values()) <= 3 << 20
    assert request is not None
    assert request.body == bytes(15 << 20)


@given(
    NUMBER, st.none() | st.dictionaries(TEXT, TEXT, max_size=4), st.binary(max_size=9), NUMBER,
    st.integers(0, 3), st.none() | TEXT,
)  # fmt: skip
def test_frames_that_are_written(code, fields, body, opaque, flag, remark):
    frame = encode_frame(code, fields, body, opaque, flag, remark)
    (request,), whole = received(frame)
    (same,), _ = received(oracle.encode(code, fields, body, opaque, flag, remark))
    assert whole
    assert request == same
    assert (request.code, request.body, request.opaque, request.flag) == (
        code, body, opaque, flag,
    )  # fmt: skip
    header = json.loads(frame[8 : 8 + int.from_bytes(frame[4:8], "big")])
    assert list(header) == sorted(header)
    assert (header["version"], header.get("language")) == (399, "JAVA")
