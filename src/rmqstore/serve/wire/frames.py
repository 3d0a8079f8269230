"""Requests and answers, and their frames on a connection.

    total   int32  length of all that follows
    mark    int32  top byte: 0 JSON header, 1 ROCKETMQ header; low 24 bits: length of the header
    header  and body, which may be empty

Source: ``remoting/protocol/RemotingCommand.java``, ``RocketMQSerializable.java``.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqstore._core import FrameReader, encode_frame
from rmqstore.base.foreign import cut
from rmqstore.serve.wire.codes import ResponseCode

__all__ = ["FAQ", "HEAD", "LARGE_HEADER", "MAX_FRAME", "Answer", "FrameError", "FrameReader",
           "Refusal", "Request", "encode_answer", "encode_answer_to", "encode_request",
           "leaves_memory", "parse_frame", "renewed", "with_code"]  # fmt: skip

MAX_FRAME = 16_777_216  # com.rocketmq.remoting.frameMaxLength, counted from the mark
FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."

_ANSWER = 1  # bits of the flag
_ONEWAY = 2
HEAD = struct.Struct(">ii")  # sizes of the frame, and of its header with the encoding
_HELD_BYTES = 2048  # of a request and its task, besides the received bytes
_VALUE_BYTES = 96  # approximate size of a parsed value
_LARGE_FRAME = 128 << 10  # smaller ones do not enlarge a read buffer by much
LARGE_HEADER = 16 << 10  # its texts may take three times as much
_READ_MAX = 256 << 10  # of the room for a read


class FrameError(Exception):
    """Invalid frame; the connection is closed, as by the real server."""


class Refusal(Exception):
    """A request that is answered with an error.

    ``remark`` is shown by clients, and is the real broker's in the same case; ``faq`` adds the line
    about the FAQ, as in errors of the client's own checks.
    """

    def __init__(
        self, code: int, remark: str, *, faq: bool = False, fields: dict[str, str] | None = None
    ) -> None:
        super().__init__(remark)
        self.answer = Answer(code, remark + FAQ if faq else remark, fields)


@dataclass(slots=True)
class Request:
    """Request, or the answer to one of ours."""

    code: int
    fields: dict[str, str] = field(default_factory=dict)  # ``extFields``; numbers as text
    body: bytes = b""
    opaque: int = 0  # number repeated in the answer
    flag: int = 0  # bit 0: an answer, bit 1: none is expected
    language: str = "OTHER"
    version: int = 0  # ordinal of ``MQVersion``
    remark: str | None = None
    parsed: Any = field(default=None, repr=False, compare=False)  # contents of the body
    parsed_values: int = field(default=0, repr=False, compare=False)  # of the body

    @property
    def oneway(self) -> bool:
        """Whether no answer is expected: not even an error is sent."""
        return self.flag & _ONEWAY != 0

    @property
    def held_bytes(self) -> int:
        """Approximate memory: a str has 1 to 4 bytes a character."""
        fields = self.fields
        return (
            _HELD_BYTES
            + len(self.body)
            + (0 if self.parsed is None else _VALUE_BYTES * self.parsed_values)
            + sys.getsizeof(fields)
            + sum(map(sys.getsizeof, fields))
            + sum(map(sys.getsizeof, fields.values()))
            + sys.getsizeof(self.remark)
        )

    @property
    def is_answer(self) -> bool:
        """Whether it answers a request of ours."""
        return self.flag & _ANSWER != 0


@dataclass(slots=True)
class Answer:
    """Outcome of a request."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    fields: Mapping[str, str] | None = None  # ``extFields``; ``None`` leaves them out
    body: bytes = b""


def encode_answer(answer: Answer, opaque: int) -> bytes:
    """Return the frame of an answer; its header is JSON, which every client reads.

    A long remark is cut, as it may repeat a client's text.
    """
    remark = None if answer.remark is None else cut(answer.remark)
    return encode_frame(int(answer.code), answer.fields, answer.body, opaque, _ANSWER, remark)


def encode_answer_to(request: Request, answer: Answer) -> bytes:
    """Return the frame of a request's answer, or of an error if it cannot be encoded."""
    try:
        return encode_answer(answer, request.opaque)
    except ValueError as error:
        return encode_answer(Answer(ResponseCode.SYSTEM_ERROR, str(error)), request.opaque)


def encode_request(
    code: int, fields: Mapping[str, str] | None, body: bytes, opaque: int, *, oneway: bool
) -> bytes:
    """Return the frame of a request to a client."""
    return encode_frame(int(code), fields, body, opaque, _ONEWAY if oneway else 0, None)


def with_code(frames: bytes, code: int) -> bytes:
    """Return frames of successful answers to sends, with another code."""
    changed = bytearray()
    at = 0
    while at < len(frames):
        total, length = HEAD.unpack_from(frames, at)
        header = frames[at + 8 : at + 8 + length]
        header = b'{"code":%d,' % code + header[len(b'{"code":0,') :]
        changed += HEAD.pack(4 + len(header), len(header)) + header
        at += 4 + total
    return bytes(changed)


def parse_frame(frame: bytes) -> Request:
    """Parse a frame without its first four bytes; ``FrameError`` if invalid."""
    reader = FrameReader(Request)
    _fill(reader, len(frame).to_bytes(4, "big") + frame)
    try:
        request: Request | None = reader.take()
    except ValueError as error:
        raise FrameError(str(error)) from None
    if request is None:
        raise FrameError(f"a frame that is cut after {len(frame)} bytes")
    return request


def _fill(reader: FrameReader, data: bytes) -> None:
    while data:
        room = reader.get_buffer()
        part = data[: len(room)]
        room[: len(part)] = part
        reader.received(len(part))
        data = data[len(part) :]


def leaves_memory(took: int, request: Request | None) -> bool:
    """Whether a reader keeps more memory after a read of so many bytes, and a request."""
    return took > _LARGE_FRAME or (request is not None and took - len(request.body) > LARGE_HEADER)


def renewed(reader: FrameReader) -> FrameReader:
    """Return a reader with another one's remaining bytes, and none of its memory.

    The other one keeps a large frame's buffer for any byte received after the frame, and room for
    the longest text.
    """
    made = FrameReader(Request)
    if reader.kept:
        room = reader.get_buffer()
        block = memoryview(room.obj)
        stop = len(block) - len(room)
        if len(room) == _READ_MAX:  # maybe more, after the first part of a large frame
            return reader
        _fill(made, bytes(block[stop - reader.kept : stop]))
    return made
