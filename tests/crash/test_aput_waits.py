"""``aput`` while the syncs are held back, fail, or come too late."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os

import pytest

import rmqstore
from rmqstore import _core
from support.event_loops import config, eventfds, run, threads

pytestmark = [pytest.mark.crash, pytest.mark.needs_debug_build]


class Held:
    """A store whose flush thread waits before each sync until it is let go."""

    def __init__(self, store, gate):
        self.store = store
        self.gate = gate

    def let_go(self):
        if self.gate >= 0:
            os.close(self.gate)
        self.gate = -1

    async def pending(self, count):
        """Messages that are in the log and not on the disk."""
        puts = (self.store.aput("Topic1", b"%d" % n, queue_id=0) for n in range(count))
        tasks = [asyncio.create_task(put) for put in puts]
        while self.store.stats()["wrote_position"] == 0:
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in tasks)
        return tasks


@pytest.fixture
def held(tmp_path, monkeypatch, request):
    if not _core.FAULTS:
        pytest.fail("no failure injection in this build: build it with RMQSTORE_BUILD=faults")
    waiting, gate = os.pipe()
    monkeypatch.setenv("RMQ_HOLD_AT", f"before-log-sync:{waiting}")
    monkeypatch.setenv("RMQ_FAIL_AT", "sync:1000000000:5")
    opened = rmqstore.open(tmp_path / "store", "a", config=config(**getattr(request, "param", {})))
    holding = Held(opened, gate)
    try:
        opened.create_topic("Topic1", 4)
        yield holding
    finally:
        holding.let_go()
        with contextlib.suppress(rmqstore.StoreFailedError, OSError):  # as some tests want it
            opened.close()
        os.close(waiting)


def test_pending_ones_take_no_thread_and_block_no_loop(held):
    async def main():
        before, descriptors = threads(), eventfds()
        tasks = await held.pending(1000)
        assert threads() <= before
        assert eventfds() == descriptors + 1
        assert held.store.stats()["flushed_position"] == 0
        for _ in range(100):  # the loop goes round
            await asyncio.sleep(0.001)
        held.let_go()
        results = await asyncio.gather(*tasks)
        assert threads() <= before
        assert [done.queue_offset for done in results] == list(range(1000))
        assert held.store.stats()["commit_log_syncs"] <= 2

    run(main())


def test_a_failed_sync_is_told_to_all(held, monkeypatch):
    async def main():
        tasks = await held.pending(100)
        monkeypatch.setenv("RMQ_FAIL_AT", f"sync:1:{errno.EIO}+")
        held.let_go()
        failures = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(failure) for failure in failures} == {rmqstore.StoreFailedError}
        assert len({id(failure) for failure in failures}) == 100
        assert len({str(failure) for failure in failures}) == 1
        with pytest.raises(rmqstore.StoreFailedError) as later:
            await held.store.aput("Topic1", b"x")
        assert str(later.value) == str(failures[0])

    run(main())


@pytest.mark.parametrize("held", [{"sync_flush_timeout": 200}], indirect=True)
def test_the_time_is_up(held):
    async def main():
        tasks = await held.pending(50)
        await asyncio.sleep(0.05)
        tasks += [asyncio.create_task(held.store.aput("Topic1", b"late", queue_id=0))]
        failures = await asyncio.gather(*tasks, return_exceptions=True)
        for number, failure in enumerate(failures):
            assert type(failure) is rmqstore.PutError
            assert failure.status is rmqstore.PutStatus.FLUSH_DISK_TIMEOUT
            assert failure.result.status is rmqstore.PutStatus.FLUSH_DISK_TIMEOUT
            assert failure.result.queue_offset == number
            assert failure.stored == 1
            assert f"stored at {failure.result.physical_offset}, " in str(failure)
        with pytest.raises(rmqstore.PutError) as plain:
            held.store.put("Topic1", b"x", queue_id=0)
        assert type(plain.value.result) is type(failures[0].result)
        told = str(failures[0]).replace("at 0,", f"at {plain.value.result.physical_offset},")
        assert str(plain.value) == told
        held.let_go()
        assert (await held.store.aput("Topic1", b"x", queue_id=0)).queue_offset == 52

    run(main())


def test_closing_while_they_wait(held):
    async def main():
        tasks = await held.pending(100)
        closing = asyncio.create_task(asyncio.to_thread(held.store.close))
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in tasks)
        held.let_go()
        results = await asyncio.gather(*tasks)
        assert [done.queue_offset for done in results] == list(range(100))
        await closing

    run(main())


def test_closing_that_cannot_flush(held, monkeypatch):
    """A sync that fails is final whatever its errno is, and whoever waits is told so."""

    async def main():
        tasks = await held.pending(100)
        monkeypatch.setenv("RMQ_FAIL_AT", f"sync:1:{errno.EMFILE}+")
        closing = asyncio.create_task(asyncio.to_thread(held.store.close))
        await asyncio.sleep(0.05)
        held.let_go()
        failures = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(failure) for failure in failures} == {rmqstore.StoreFailedError}
        with pytest.raises(rmqstore.StoreFailedError, match="forced to the disk"):
            await closing

    run(main())
