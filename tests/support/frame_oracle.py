"""An independent codec of frames, in plain Python, to compare the core's with.

Source: ``remoting/protocol/RemotingCommand.java``, ``RocketMQSerializable.java``;
``com.alibaba.fastjson`` for values of other types.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from typing import Any

from rmqstore.serve.wire.frames import Request

MAX_FRAME = 16_777_216
MAX_HEADER = 256 << 10
MAX_FIELDS = 1024
MAX_DEPTH = 60
LANGUAGES = ("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP",
             "GO", "PHP", "OMS")  # fmt: skip
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_INT = re.compile(r"[+-]?[0-9]{1,19}")


class NotAFrame(Exception):
    """Invalid frame."""


class Number(str):
    """A JSON number, as it is written."""


class Members(list[Any]):
    """The members of a JSON object, in their order."""


def encode(
    code: int,
    fields: Mapping[str, str] | None,
    body: bytes,
    opaque: int,
    flag: int,
    remark: str | None,
) -> bytes:
    """Return the frame of an answer or of a request, with the header in JSON."""
    header: dict[str, object] = {"code": code}
    if fields is not None:
        header["extFields"] = dict(fields)
    header.update(flag=flag, language="JAVA", opaque=opaque)
    if remark is not None:
        header["remark"] = remark
    header.update(serializeTypeCurrentRPC="JSON", version=399)
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"))
    return framed(text.encode("utf-8", "replace"), body)


def encode_binary(request: Request) -> bytes:
    """Return the frame of a request with a ROCKETMQ header."""
    remark = (request.remark or "").encode()
    fields = b"".join(
        struct.pack(">h", len(k.encode())) + k.encode()
        + struct.pack(">i", len(v.encode())) + v.encode()
        for k, v in request.fields.items()
    )  # fmt: skip
    header = struct.pack(
        ">hBhiii", request.code, LANGUAGES.index(request.language), request.version,
        request.opaque, request.flag, len(remark),
    )  # fmt: skip
    return framed(header + remark + struct.pack(">i", len(fields)) + fields, request.body, 1)


def framed(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    """Return a header and a body as a frame."""
    return struct.pack(">ii", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def split(data: bytes) -> list[Request]:
    """Return the requests of all complete frames, up to an invalid one: ``NotAFrame``.

    The exception has those before it as ``requests``.
    """
    found: list[Request] = []
    at = 0
    try:
        while len(data) - at >= 4:
            (total,) = struct.unpack_from(">i", data, at)
            if not 4 <= total <= MAX_FRAME:
                raise NotAFrame(f"a frame of {total}")
            if len(data) - at >= 8:
                (mark,) = struct.unpack_from(">I", data, at + 4)
                length = mark & 0xFFFFFF
                if mark >> 24 > 1 or length > min(total - 4, MAX_HEADER):
                    raise NotAFrame(f"a header of {length}")
            if len(data) - at < 4 + total:
                break
            header = data[at + 8 : at + 8 + length]
            body = data[at + 8 + length : at + 4 + total]
            found.append(_binary(header, body) if mark >> 24 else _json(header, body))
            at += 4 + total
    except NotAFrame as error:
        error.requests = found  # type: ignore[attr-defined]
        raise
    return found


def java_text(data: bytes) -> str:
    """Decode UTF-8 as Java does: an encoded surrogate is one replacement, not three."""
    data = re.sub(rb"\xed[\xa0-\xbf][\x80-\xbf]?", b"\xef\xbf\xbd", data)
    return data.decode("utf-8", "replace")


def _json(data: bytes, body: bytes) -> Request:
    text = java_text(data)
    depth = deepest = 0
    for c in _STRING.sub("", text):
        depth += (c in "[{") - (c in "]}")
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH:
        raise NotAFrame("too deep")
    try:
        members = json.loads(text, strict=False, parse_int=Number, parse_float=Number,
                             parse_constant=_refuse, object_pairs_hook=Members)  # fmt: skip
    except (ValueError, RecursionError) as error:
        raise NotAFrame(str(error)) from None
    if not isinstance(members, Members):
        raise NotAFrame("no object")
    request = Request(0)
    for name, value in members:
        if name in ("code", "opaque", "flag", "version"):
            setattr(request, name, _number(value))
        elif name == "remark":
            if isinstance(value, list):
                raise NotAFrame("remark")
            request.remark = None if value is None else _plain(value)
        elif name == "language":
            if isinstance(value, list):
                raise NotAFrame("language")
            request.language = "OTHER"
            if isinstance(value, Number):
                if _INT.fullmatch(value) and 0 <= int(value) < len(LANGUAGES):
                    request.language = LANGUAGES[int(value)]
            elif isinstance(value, str):
                request.language = _plain(value)
        elif name == "extFields":
            if value is not None and not isinstance(value, Members):
                raise NotAFrame("extFields")
            if len(value or ()) > MAX_FIELDS:
                raise NotAFrame("fields")
            request.fields = {
                _plain(k): _plain(v)
                for k, v in {_plain(k): v for k, v in value or ()}.items()
                if v is not None and not isinstance(v, list)
            }
    request.body = body
    return request


def _refuse(word: str) -> None:
    raise ValueError(word)


def _number(value: Any) -> int:
    if value is None:
        return 0
    if not isinstance(value, str) or not _INT.fullmatch(value):
        raise NotAFrame(f"number {value!r}")
    if not -(1 << 31) <= int(value) < 1 << 31:
        raise NotAFrame(f"number {value}")
    return int(value)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "".join("?" if "\ud800" <= c <= "\udfff" else c for c in value)


def _binary(header: bytes, body: bytes) -> Request:
    try:
        code, language, version, opaque, flag, length = struct.unpack_from(">hBhiii", header)
        at = 17
        remark = _piece(header, at, length, len(header) - 4) if length > 0 else None
        at += max(0, length)
        (rest,) = struct.unpack_from(">i", header, at)
    except struct.error as error:
        raise NotAFrame(str(error)) from None
    at += 4
    stop = at + max(0, rest)
    if stop > len(header):
        raise NotAFrame("fields")
    fields: dict[str, str] = {}
    count = 0
    while at < stop:
        count += 1
        texts = []
        for form, size in ((">h", 2), (">i", 4)):
            if stop - at < size:
                raise NotAFrame("field")
            (length,) = struct.unpack_from(form, header, at)
            texts.append(_piece(header, at + size, length, stop))
            at += size + length
        fields[texts[0]] = texts[1]
    if count > MAX_FIELDS:
        raise NotAFrame("fields")
    name = LANGUAGES[language] if language < len(LANGUAGES) else "OTHER"
    return Request(code, fields, body, opaque, flag, name, version, remark)


def _piece(data: bytes, at: int, length: int, stop: int) -> str:
    if not 0 <= length <= stop - at:
        raise NotAFrame("text")
    return java_text(data[at : at + length])
