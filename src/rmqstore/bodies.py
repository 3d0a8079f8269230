"""Compressed bodies, inflated within a limit.

Source: ``common/UtilAll.java`` uncompress; RocketMQ 5's ``CompressionType.java``.
"""

from __future__ import annotations

import zlib
from typing import Any

from rmqstore.errors import StoreCorruptError, StoreError

__all__ = ["inflate"]

_TYPE_SHIFT = 8
_TYPE_MASK = 7
_LZ4, _ZSTD, _ZLIB = 1, 2, 3


def inflate(stored: bytes, sys_flag: int, limit: int) -> bytes:
    """Return the body of a record whose SYSFLAG says that it is compressed.

    Parameters
    ----------
    stored : bytes
        The body as stored.
    sys_flag : int
        SYSFLAG of the record; bits 8 to 10 are RocketMQ 5's kind of compression.
    limit : int
        Bytes that the body may take.

    Raises
    ------
    StoreCorruptError
        The bytes are not a valid stream, or inflate to more than ``limit``.
    StoreError
        The kind of compression needs a package that is not installed, or is unknown.
    """
    kind = sys_flag >> _TYPE_SHIFT & _TYPE_MASK
    try:
        if kind in (0, _ZLIB):
            return _inflate_zlib(stored, limit)
        if kind == _LZ4:
            import lz4.frame

            frame = lz4.frame.LZ4FrameDecompressor()
            body = _within(frame.decompress(stored, limit + 1), limit)
            if not frame.eof:
                raise EOFError("the frame is cut")
            return body
        if kind == _ZSTD:
            import zstandard

            return _inflate_zstd(zstandard, stored, limit)
    except ImportError as error:
        raise StoreError(f"the body is compressed and needs the package {error.name!r}") from error
    except (zlib.error, RuntimeError, EOFError) as error:
        reason = f"the compressed body cannot be inflated: {error}"
        raise StoreCorruptError("", -1, reason) from None
    raise StoreError(f"the body is compressed in the unknown way {kind}")


def _inflate_zlib(stored: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj()
    body = stream.decompress(stored, limit + 1)
    if not stream.eof and len(body) <= limit:
        raise zlib.error("the stream is cut")
    return _within(body, limit)


def _inflate_zstd(zstandard: Any, stored: bytes, limit: int) -> bytes:
    try:
        with zstandard.ZstdDecompressor().stream_reader(stored) as reader:
            return _within(reader.read(limit + 1), limit)
    except zstandard.ZstdError as error:
        raise EOFError(str(error)) from None


def _within(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise StoreCorruptError("", -1, f"the body inflates to more than max_body_size, {limit}")
    return body
