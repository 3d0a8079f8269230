"""open: a closed store of half a million messages, opened and closed."""

import pytest

import rmqstore

OPENED = 20


@pytest.mark.parametrize("mode", ["r", "r+"])
def bench_open(measure, written, mode):
    def work():
        for _ in range(OPENED):
            rmqstore.open(written, mode).close()

    measure(work, OPENED)
