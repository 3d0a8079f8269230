"""Compression of bodies, and decompression within a limit.

Output comes in pieces, so that too large a body is refused before it takes memory: at most one
piece beyond the limit is made, for ZSTD a quarter of the limit.

Source: ``common/UtilAll.java`` compress, uncompress; of RocketMQ 5
``common/compression/CompressionType.java``, ``Lz4Compressor.java``,
``ZstdCompressor.java``, ``common/message/MessageDecoder.java``.
"""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING, Any, Protocol

from rmqstore.errors import StoreCorruptError, StoreError
from rmqstore.files.logfiles import NO_FILE

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["BODY_MARK", "Deflated", "deflate", "inflate", "inflate_start"]

BODY_MARK = "[not inflated] "
"""Prefix of a body shown as stored, if no field has the reason."""

_TYPE_SHIFT = 8
_TYPE_MASK = 7
_LZ4, _ZSTD, _ZLIB = 1, 2, 3
_NAMES = {_LZ4: "LZ4", _ZSTD: "ZSTD"}
_PIECE_BYTES = 1 << 18
_FED_BYTES = 1 << 12  # per call: the rest after a frame is copied at its end
_ZSTD_INPUT_BYTES, _ZSTD_INPUT_MOST = 64, 1 << 14
_LEVEL = 5  # as a Java client's


class Deflated(bytes):
    """A body that :func:`deflate` has compressed, in another thread."""

    __slots__ = ()


def deflate(body: Buffer) -> Deflated:
    """Return the zlib stream that a Java client stores for a body, even if that is longer.

    Source: ``common/UtilAll.java compress``.
    """
    return Deflated(zlib.compress(body, _LEVEL))


class _Frame(Protocol):
    """Decompressor of one frame: an object of lz4.frame, of compression.zstd, or ours."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    @property
    def needs_input(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def inflate(stored: bytes, sys_flag: int, limit: int) -> bytes:
    """Return the body of a record whose SYSFLAG marks it as compressed, of ``limit`` bytes at most.

    An empty one is no stream, as in RocketMQ; bits 8 to 10 of SYSFLAG are RocketMQ 5's kind of
    compression. Invalid or longer streams and unknown kinds raise ``StoreCorruptError``, a kind
    whose package is not installed ``StoreError``.
    """
    body, is_whole = inflate_start(stored, sys_flag, limit)
    if not is_whole:
        reason = (
            f"the body inflates to more than max_body_size, {limit}: raise it, or take raw_body"
        )
        raise StoreCorruptError(NO_FILE, -1, reason)
    return body


def inflate_start(
    stored: bytes, sys_flag: int, most: int, frames: int = sys.maxsize
) -> tuple[bytes, bool]:
    """Return the start of a compressed body, and whether it is complete.

    Inflates at most a piece beyond ``most`` bytes, and ``frames`` frames: a body may have many
    empty ones. Raises the errors of :func:`inflate`; ignores bytes after the start.
    """
    kind = sys_flag >> _TYPE_SHIFT & _TYPE_MASK
    if not stored:
        return b"", True
    try:
        if kind in (0, _ZLIB):
            return _inflate_zlib(stored, most)
        if kind == _LZ4:
            import lz4.frame

            return _inflate_frames(lz4.frame.LZ4FrameDecompressor, stored, most, frames)
        if kind == _ZSTD:
            frame_type, zstd_error = _zstd(most)
            try:
                return _inflate_frames(frame_type, stored, most, frames)
            except zstd_error as error:
                raise EOFError(str(error)) from None
    except ImportError as error:
        raise StoreError(
            f"the body is compressed with {_NAMES[kind]}, for which a package is missing: "
            f"pip install {(error.name or _NAMES[kind]).partition('.')[0]}"
        ) from error
    except (zlib.error, RuntimeError, EOFError) as error:
        reason = f"the compressed body cannot be inflated: {error}; raw_body has it as stored"
        raise StoreCorruptError(NO_FILE, -1, reason) from None
    raise StoreCorruptError(
        NO_FILE, -1, f"the body is compressed in the unknown way {kind}; raw_body has it as stored"
    )


def _inflate_zlib(stored: bytes, most: int) -> tuple[bytes, bool]:
    stream = zlib.decompressobj()
    body = stream.decompress(stored, most + 1)
    is_whole = len(body) <= most
    if is_whole and not stream.eof:
        raise zlib.error("the stream is cut")
    return body[:most], is_whole


def _inflate_frames(frame_type: Any, stored: bytes, most: int, frames: int) -> tuple[bytes, bool]:
    """Return the start of the contents of one or more consecutive frames."""
    pieces: list[bytes] = []
    length = at = 0
    data: bytes | None = b""
    while data or at < len(stored):
        frames -= 1
        if frames < 0:
            return b"".join(pieces), False
        frame: _Frame = frame_type()
        while not frame.eof:
            if not data and frame.needs_input:
                data = stored[at : at + _FED_BYTES]
                at += len(data)
                if not data:
                    raise EOFError("the frame is cut")
            piece = frame.decompress(data or b"", min(_PIECE_BYTES, most + 1 - length))
            data = b""
            length += len(piece)
            pieces.append(piece)
            if length > most:
                return b"".join(pieces)[:most], False
        data = frame.unused_data
    return b"".join(pieces), True


def _zstd(limit: int) -> tuple[Any, type[Exception]]:
    """Return the factory of single-frame decompressors, and their error."""
    if sys.version_info >= (3, 14):  # has its own, unless it was built without
        try:
            from compression import zstd
        except ImportError:
            pass
        else:
            return zstd.ZstdDecompressor, zstd.ZstdError
    import zstandard

    # A block takes 4 bytes or more, and holds at most 128 KiB: a quarter of the limit per call.
    together = max(_ZSTD_INPUT_BYTES, min(limit >> 17, _ZSTD_INPUT_MOST))

    class InSmallParts:
        """Decompressor of the package, which cannot limit its output: fed in small parts."""

        def __init__(self) -> None:
            self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._data = memoryview(b"")
            self._at = 0
            self.eof = False
            self.needs_input = True
            self.unused_data = b""

        def decompress(self, data: bytes, max_length: int = -1) -> bytes:
            if data:
                self._data, self._at = memoryview(data), 0
            piece: bytes = self._frame.decompress(self._data[self._at : self._at + together])
            self._at += together
            self.needs_input = self._at >= len(self._data)
            self.eof = self._frame.eof
            if self.eof:
                self.unused_data = self._frame.unused_data + bytes(self._data[self._at :])
            return piece

    return InSmallParts, zstandard.ZstdError
