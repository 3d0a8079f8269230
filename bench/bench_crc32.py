"""crc32: ours and zlib's."""

import zlib

import pytest

import rmqstore
import workloads

BYTES = 64 << 20  # a round


@pytest.mark.parametrize("whose", ["ours", "zlib"])
@pytest.mark.parametrize("size", [64, 1 << 10, 4 << 10, 1 << 20])
def bench_crc32(measure, size, whose):
    crc32 = {"ours": rmqstore.crc32, "zlib": zlib.crc32}[whose]
    (data,) = workloads.bodies(size, 1)
    calls = min(BYTES // size, 200_000)

    def work():
        for _ in range(calls):
            crc32(data)

    measure(work, calls)
