"""The activities need no GIL: they go on while somebody holds it."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import threading
import time

import pytest

import rmqstore
from crash.checks import environment

pytestmark = [pytest.mark.threads]

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=8 << 20,
    mapped_file_size_consume_queue=20_000,
    max_hash_slot_num=5000,
    max_index_num=20_000,
    flush_interval_commit_log=20,
    flush_interval_consume_queue=50,
)
ROWS = 200_000
HELD = 2.0
LONGER = (0, 3, 6)  # each is four times as long: for a busy machine, or a sanitizer

READER = """
import sys, time, rmqstore
root, count = sys.argv[1], int(sys.argv[2])
sys.stdout.write("ready\\n"); sys.stdout.flush()
sys.stdin.readline()
until = time.monotonic() + 60
seen = 0
while time.monotonic() < until and seen < count:
    try:
        with rmqstore.open(root, "r") as store:
            seen = sum(queue.max_offset for queue in store["Topic1"].values())
    except (KeyError, rmqstore.StoreError):
        pass
    time.sleep(0.01)
print(time.monotonic(), seen)
"""


def evil_match(length):
    """A match that takes exponential time, in one C call that never lets go of the GIL."""
    return re.compile("(a|aa)+$").match, "a" * length + "b"


def time_of(match, text):
    """Seconds of this thread: not the time of others on the machine."""
    began = time.thread_time()
    match(text)
    return time.thread_time() - began


@pytest.fixture(scope="module")
def hold():
    """A function that holds the GIL for about two seconds or longer, and says how long it did."""
    length = 20
    while True:
        match, text = evil_match(length)
        took = min(time_of(match, text) for _ in range(3))
        if took > 0.2:
            break
        length += 1
    while took < HELD:
        length += 1
        took *= 1.6

    def hold(longer=0):
        match, text = evil_match(length + longer)
        began = time.monotonic()
        match(text)
        return began, time.monotonic(), time.process_time()

    return hold


def test_the_hold_is_one(hold):
    """Nothing else runs in Python meanwhile, where there is a GIL: the other tests need that."""
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.005)

    thread = threading.Thread(target=tick)
    thread.start()
    began, ended, _ = hold()
    stop.set()
    thread.join()
    assert ended - began > HELD / 2
    ticks = [began, *(at for at in ticks if began < at < ended), ended]
    longest = max(after - before for before, after in itertools.pairwise(ticks))
    stopped = longest > (ended - began) / 2
    assert stopped == getattr(sys, "_is_gil_enabled", lambda: True)()


@pytest.mark.long
def test_dispatch_and_flush_go_on(tmp_path, hold):
    root = tmp_path / "store"
    store = rmqstore.open(root, "a", config=CONFIG)
    store.put_many("Topic1", [b"x" * 100] * 1000)  # so that there are files
    keys = [f"k{i}" for i in range(ROWS)]
    for longer in LONGER:
        store.put_many("Topic1", [b"x" * 100] * ROWS, keys=keys, wait=False)
        began, ended, used = hold(longer)
        stats = store.stats()  # at once: nobody had the time to catch up after the hold
        late = time.process_time() - used  # of all threads, on a processor
        assert ended - began > HELD / 2
        if stats["dispatch_behind_bytes"] == 0 and late < 0.05:
            break
    assert late < 0.05
    assert stats["dispatch_behind_bytes"] == 0
    assert stats["dispatched_position"] == stats["wrote_position"]
    assert stats["flushed_position"] == stats["wrote_position"]
    assert stats["consume_queue_syncs"] > 0
    store.close()


@pytest.mark.long
def test_another_process_sees_it_meanwhile(tmp_path, hold):
    root = tmp_path / "store"
    store = rmqstore.open(root, "a", config=CONFIG)
    store.put_many("Topic1", [b"x" * 100] * 1000)
    count = 1000
    for longer in LONGER:
        count += ROWS
        command = [sys.executable, "-c", READER, str(root), str(count)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True
        ) as reader:
            assert reader.stdout.readline() == "ready\n"
            store.put_many("Topic1", [b"x" * 100] * ROWS, keys=[f"k{i}" for i in range(ROWS)])
            reader.stdin.write("go\n")
            reader.stdin.flush()
            began, ended, _ = hold(longer)
            at, seen = reader.stdout.readline().split()
        if int(seen) == count and began < float(at) < ended:
            break
    assert int(seen) == count
    assert began < float(at) < ended, "the reader had to wait for the GIL's holder"
    store.close()
