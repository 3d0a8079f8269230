"""NumPy views of the core's memory, and xxhash; each package is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqstore.base.layout import UNIT_BLANK_SIZE, UNIT_FIELDS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqstore._core import Memory

__all__ = [
    "array_rows",
    "bytes_hash",
    "ext_unit_array",
    "int32_array",
    "int64_array",
    "integers",
    "sizes_of",
    "unit_array",
]

EXT_FIELDS = [("tags_code", "i8"), ("store_timestamp", "i8"), ("bitmap_size", "i8")]


def int64_array(memory: Memory, count: int) -> NDArray[np.int64]:
    """Return ``count`` native int64 as an array, shape ``(count,)``, without a copy."""
    import numpy as np

    return np.frombuffer(memoryview(memory), dtype=np.int64, count=count)


def int32_array(memory: Memory, count: int) -> NDArray[np.int32]:
    """Return ``count`` native int32 as an array, shape ``(count,)``, without a copy."""
    import numpy as np

    return np.frombuffer(memoryview(memory), dtype=np.int32, count=count)


def unit_array(memory: Memory) -> NDArray[Any]:
    """Return consume queue units as a structured array, shape ``(n,)``, as stored."""
    import numpy as np

    return np.frombuffer(memoryview(memory), dtype=UNIT_FIELDS)


def sizes_of(units: NDArray[Any]) -> NDArray[np.int64]:
    """Return the record sizes of units, 0 for a blank unit."""
    import numpy as np

    sizes = units["size"].astype(np.int64)
    sizes[(sizes < 0) | (sizes == UNIT_BLANK_SIZE)] = 0
    return sizes


def ext_unit_array(fields: Memory, bitmaps: Memory, width: int) -> NDArray[Any]:
    """Return units of ``consumequeue_ext`` as a structured array, shape ``(n,)``."""
    import numpy as np

    plain = np.frombuffer(memoryview(fields), dtype=EXT_FIELDS)
    array = np.empty(len(plain), dtype=[*EXT_FIELDS, ("bitmap", "u1", (width,))])
    for name, _ in EXT_FIELDS:
        array[name] = plain[name]
    if width:
        array["bitmap"] = np.frombuffer(memoryview(bitmaps), dtype="u1").reshape(-1, width)
    return array


def bytes_hash(data: bytes) -> int:
    """Return the xxh3_64 of ``data``, 0 to 2**64 - 1."""
    import xxhash

    return int(xxhash.xxh3_64_intdigest(data))


def array_rows(value: Any) -> list[Any] | None:
    """Return the rows of an array of bytes, str or objects, None for anything else.

    Drops trailing zeros of ``S`` rows; rows of single bytes are bytes as well.
    """
    import numpy as np

    array = np.asarray(value)
    if array.ndim == 2 and array.dtype.kind in "uiS" and array.itemsize == 1:
        return [row.tobytes() for row in array]
    if array.ndim == 1 and array.dtype.kind in "SUO" and memoryview(value).format != "c":
        rows: list[Any] = array.tolist()
        return rows
    return None


def integers(value: Any) -> memoryview | None:
    """Return a contiguous view of an integer array, in native byte order; None for others."""
    import numpy as np

    array = np.asarray(value)
    if array.ndim != 1 or array.dtype.kind not in "ui":
        return None
    native: Any = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    return memoryview(native)
