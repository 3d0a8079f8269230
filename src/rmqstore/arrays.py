"""NumPy views over memory of the core, and xxhash; each package comes with its first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqstore._core import Memory

__all__ = ["bytes_hash", "int32_array", "int64_array", "unit_array"]

UNIT_FIELDS = [("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")]


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


def bytes_hash(data: bytes) -> int:
    """Return the xxh3_64 of ``data``, 0 to 2**64 - 1."""
    import xxhash

    return int(xxhash.xxh3_64_intdigest(data))
