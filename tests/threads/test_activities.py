"""Group commit, how soon a put is seen, and what an idle store costs."""

from __future__ import annotations

import functools
import os
import statistics
import threading
import time

import pytest

import rmqstore
from rmqstore import _core
from support.serving import wait_until

pytestmark = [pytest.mark.threads]

SMALL = rmqstore.StoreConfig.small()
SYNC = SMALL.replace(flush_disk_type="SYNC_FLUSH")
THREADS = 64


def in_threads(count, work):
    """Run work(number) in threads; raise the first error; a hang is an error."""
    errors = []

    def run(number):
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 60
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def test_no_more_syncs_than_puts(tmp_path):
    puts = 40
    with rmqstore.open(tmp_path / "store", "a", config=SYNC) as store:
        before = store.stats()["commit_log_syncs"]
        barrier = threading.Barrier(THREADS)

        def work(number):
            barrier.wait()
            for i in range(puts):
                store.put("Topic1", b"x" * 100, queue_id=number % 4, keys=f"{number}-{i}")

        in_threads(THREADS, work)
        syncs = store.stats()["commit_log_syncs"] - before
    assert 1 <= syncs <= THREADS * puts


@pytest.mark.needs_debug_build
def test_one_sync_serves_many(tmp_path, monkeypatch):
    """However fast the disk is: the first sync is held until all others wait as well."""
    if not _core.FAULTS:
        pytest.fail("no hold points in this build: build it with RMQSTORE_BUILD=faults")
    config = SYNC.replace(sync_flush_timeout=600_000)
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        store.create_topic("Topic1", 4)
        put = functools.partial(store.put, "Topic1", b"x" * 100, queue_id=0, uniq_key=False)
        start = store.stats()["wrote_position"]
        put()
        stats = store.stats()
        size, syncs = stats["wrote_position"] - start, stats["commit_log_syncs"]
        all_wrote = stats["wrote_position"] + THREADS * size
        held, gate = os.pipe()
        monkeypatch.setenv("RMQ_HOLD_AT", f"before-log-sync:{held}")
        acknowledged = []

        def work(number):
            if number < THREADS:
                acknowledged.append(put())
                return
            try:
                wait_until(lambda: store.stats()["wrote_position"] == all_wrote)
                assert acknowledged == []
            finally:
                os.close(gate)

        in_threads(THREADS + 1, work)
        assert len(acknowledged) == THREADS
        assert 1 <= store.stats()["commit_log_syncs"] - syncs <= 2
        monkeypatch.delenv("RMQ_HOLD_AT")
        os.close(held)


def test_sync_flush_acknowledges_only_what_is_flushed(tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=SYNC) as store:

        def work(number):
            for _ in range(20):
                put = store.put("Topic1", b"x" * 50, queue_id=number % 4)
                assert store.stats()["flushed_position"] > put.physical_offset

        in_threads(8, work)
        late = [store.put("Topic1", b"x", queue_id=0, wait=False) for _ in range(10)]
        assert store.wait_durable(late[-1].physical_offset, timeout=60)
        assert store.stats()["flushed_position"] > late[-1].physical_offset


@pytest.mark.slow
def test_a_put_is_seen_well_within_a_millisecond(tmp_path):
    """By a reader that does not ask the writer to wait: units() is read as it lies there."""
    took = []
    with rmqstore.open(tmp_path / "store", "a", config=SMALL) as store:
        store.put("Topic1", b"warm", queue_id=0)
        store.flush()
        for number in range(500):
            if number % 10 == 0:
                time.sleep(0.005)  # let the dispatch fall asleep
            wrote = store.put("Topic1", b"x" * 100, queue_id=0).physical_offset
            began = time.perf_counter()
            while store.stats()["dispatched_position"] <= wrote:
                assert time.perf_counter() - began < 5
            took.append(time.perf_counter() - began)
    assert statistics.median(took) < 0.5e-3, statistics.quantiles(took, n=10)


@pytest.mark.long
@pytest.mark.slow
def test_an_idle_store_costs_nothing(tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=SMALL) as store:
        store.put_many("Topic1", [b"x" * 100] * 1000, keys=[f"k{i}" for i in range(1000)])
        store.flush()
        time.sleep(1.2)  # the last flush by interval is over
        busy, began = time.process_time(), time.monotonic()
        time.sleep(3)
        share = (time.process_time() - busy) / (time.monotonic() - began)
    assert share < 0.01, f"{share:.2%} of a core"


def test_put_many_threads_share_the_queue_offsets(tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=SMALL) as store:
        given = [[] for _ in range(8)]

        def work(number):
            for i in range(200):
                kind = (number + i) % 3
                if kind == 0:
                    done = store.put("Topic1", b"a", queue_id=0)
                    given[number].append(done.queue_offset)
                elif kind == 1:
                    done = store.put_batch("Topic1", [b"b"] * 5, queue_id=0)
                    given[number].extend(range(done.queue_offset, done.queue_offset + 5))
                else:
                    done = store.put_many("Topic1", [b"c"] * 7, queue_id=0)
                    given[number].extend(done.queue_offset.tolist())

        in_threads(8, work)
        every = sorted(offset for some in given for offset in some)
        assert every == list(range(len(every)))
        assert all(some == sorted(some) for some in given)
        assert store["Topic1"][0].max_offset == len(every)
