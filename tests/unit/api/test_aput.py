"""``aput``: the results and errors of ``put``, and neither a thread nor a blocked loop for it."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import subprocess
import sys
import textwrap
import threading

import pytest

import rmqstore
from crash.checks import environment
from rmqstore.aio import wait as asyncwait
from support import oracle_store
from support.event_loops import LIMIT, config, eventfds, run, threads
from support.gates import Gate


@pytest.fixture
def store(tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=config()) as opened:
        opened.create_topic("Topic1", 4)
        yield opened


@pytest.fixture(autouse=True)
def _nothing_is_left():
    gc.collect()  # what other tests left
    before = eventfds()
    yield
    gc.collect()
    assert eventfds() == before
    assert not asyncwait._waits
    assert not asyncwait._making


def is_flushed(store, done):
    return store.stats()["flushed_position"] > done.physical_offset


MESSAGES = [
    {},
    {"queue_id": 3},
    {"queue_key": "order-1", "tags": "paid"},
    {"keys": ["a", "b"], "properties": {"x": "1"}, "flag": -7},
    {"delay_level": 3, "queue_id": 0},
    {"born_timestamp": 1_600_000_000_000, "born_host": "10.0.0.1:1", "uniq_key": "mine"},
    {"uniq_key": False, "wait": False},
]
FIELDS = ("topic", "queue_id", "queue_offset", "body", "tags", "keys", "flag", "born_host")


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_it_stores_what_put_stores(tmp_path, flush):
    async def both(plain, waited):
        for arguments in MESSAGES:
            one = plain.put("Topic1", b"body", **arguments)
            two = await waited.aput("Topic1", b"body", **arguments)
            assert type(two) is rmqstore.PutResult
            for name in ("queue_id", "queue_offset", "physical_offset", "msg_id", "count"):
                assert getattr(two, name) == getattr(one, name), arguments
            assert two.status is rmqstore.PutStatus.PUT_OK
            if arguments.get("uniq_key", True) is not True:
                assert two.uniq_key == one.uniq_key
            if flush == "SYNC_FLUSH" and arguments.get("wait", True):
                assert is_flushed(waited, two)
            waited.wait_durable()
            plain.wait_durable()
            a, b = plain.at(one.physical_offset), waited.at(two.physical_offset)
            assert [getattr(a, name) for name in FIELDS] == [getattr(b, name) for name in FIELDS]
            assert a.properties.keys() == b.properties.keys()

    with (
        rmqstore.open(tmp_path / "a", "a", config=config(flush)) as plain,
        rmqstore.open(tmp_path / "b", "a", config=config(flush)) as waited,
    ):
        run(both(plain, waited))
    oracle_store.check_store(tmp_path / "b")


WRONG = [
    (("Topic1", "text"), {}),
    (("Topic1", 7), {}),
    ((7, b"x"), {}),
    (("no such:topic", b"x"), {}),
    (("Topic1", b"x"), {"queue_id": -1}),
    (("Topic1", b"x"), {"queue_id": 0, "queue_key": "k"}),
    (("Topic1", b"x"), {"properties": {"KEYS": "x"}}),
    (("Topic1", b"x"), {"delay_level": -1}),
    (("Topic1", bytes(2 << 20)), {}),
    (("NewTopic", b"x"), {"tags": 7}),
    (("NewTopic", b"x"), {"uniq_key": ""}),
]


@pytest.mark.long
@pytest.mark.parametrize(("positional", "named"), WRONG)
def test_it_raises_what_put_raises(store, positional, named):
    with pytest.raises((TypeError, ValueError)) as plain:
        store.put(*positional, **named)
    with pytest.raises((TypeError, ValueError)) as waited:
        run(store.aput(*positional, **named))
    assert (type(waited.value), str(waited.value)) == (type(plain.value), str(plain.value))
    assert "NewTopic" not in store
    assert store.stats()["wrote_position"] == 0


def test_where_nothing_may_be_written(tmp_path):
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=config()) as store:
        run(store.aput("Topic1", b"x"))
    with pytest.raises(rmqstore.StoreClosedError):
        run(store.aput("Topic1", b"x"))
    with rmqstore.open(root, config=config()) as store, pytest.raises(rmqstore.ReadOnlyStoreError):
        run(store.aput("Topic1", b"x"))


def test_a_thousand_at_once(store):
    """They share the syncs, keep their order, and no thread is there for them."""

    async def main():
        await store.aput("Topic1", b"", queue_id=1)
        before = threads()
        syncs = store.stats()["commit_log_syncs"]
        tasks = [
            asyncio.create_task(store.aput("Topic1", b"%d" % n, queue_id=0)) for n in range(1000)
        ]
        await asyncio.sleep(0)  # each has had its first step, and the loop has not polled since
        assert sum(not task.done() for task in tasks) > 500
        assert threads() <= before
        results = await asyncio.gather(*tasks)
        assert threads() <= before
        assert all(is_flushed(store, done) for done in results)
        assert [done.queue_offset for done in results] == list(range(1000))
        assert store.stats()["commit_log_syncs"] - syncs < len(tasks)

    run(main())
    assert [message.body for message in store["Topic1"][0]] == [b"%d" % n for n in range(1000)]


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_thousand_to_a_topic_that_is_not_there(tmp_path, flush):
    async def main(store):
        before = threads()
        puts = [store.aput("New", b"%d" % n, queue_id=0) for n in range(1000)]
        results = await asyncio.gather(*puts)
        assert len(threads() - before) <= 1  # one of the executor's made it
        assert [done.queue_offset for done in results] == list(range(1000))

    with rmqstore.open(tmp_path / "store", "a", config=config(flush)) as store:
        run(main(store))
        assert store["New"].write_queue_nums == 4


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_others_do_not_wait_for_a_topic_that_is_made(tmp_path, flush, monkeypatch):
    gate = Gate(monkeypatch)

    async def main(store):
        gate.close()
        first = asyncio.create_task(store.aput("New", b"0", queue_id=0))
        await asyncio.to_thread(gate.reached.wait, LIMIT)
        later = [
            asyncio.create_task(store.aput(topic, b"%d" % n, queue_id=0))
            for n in range(1, 5)
            for topic in ("New", "Newer")
        ]
        for n in range(5):
            assert (await store.aput("Topic1", b"x", queue_id=0)).queue_offset == n
        assert not any(task.done() for task in (first, *later))
        assert store.topics.keys() == {"Topic1"}
        gate.open.set()
        await asyncio.gather(first, *later)

    with rmqstore.open(tmp_path / "store", "a", config=config(flush)) as store:
        store.create_topic("Topic1", 1)
        run(main(store))
        assert [message.body for message in store["New"][0]] == [b"%d" % n for n in range(5)]
        assert [message.body for message in store["Newer"][0]] == [b"%d" % n for n in range(1, 5)]


def test_a_topic_that_cannot_be_made_fails_alone(store, monkeypatch):
    gate = Gate(monkeypatch)
    gate.error = OSError(errno.ENOSPC, "No space left on device", "topics.json")

    async def main():
        puts = [store.aput(topic, b"x", queue_id=0) for topic in ("New", "New", "Topic1", "Newer")]
        failed = await asyncio.gather(*puts, return_exceptions=True)
        assert [isinstance(one, rmqstore.PutError) for one in failed] == [True, True, False, True]
        gate.error = None
        assert (await store.aput("New", b"x", queue_id=0)).queue_offset == 0

    run(main())
    assert sorted(store) == ["New", "Topic1"]


@pytest.mark.long
@pytest.mark.parametrize("topic", [7, None, [], b"Topic1", "", "no such:topic", "\ud800"])
def test_topics_that_are_none(store, topic):
    with pytest.raises((TypeError, ValueError)) as plain:
        store.put(topic, b"x")
    with pytest.raises((TypeError, ValueError)) as waited:
        run(store.aput(topic, b"x"))
    assert (type(waited.value), str(waited.value)) == (type(plain.value), str(plain.value))


def test_it_does_not_suspend_where_nothing_is_waited_for(tmp_path, store):
    def finished_at_once(coroutine):
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value
        coroutine.close()
        return None

    async def main(other):
        done = finished_at_once(store.aput("Topic1", b"x", wait=False, queue_id=0))
        assert done.queue_offset == 0
        assert finished_at_once(other.aput("Topic1", b"x")).queue_offset == 0

    with rmqstore.open(tmp_path / "other", "a", config=config("ASYNC_FLUSH")) as other:
        other.create_topic("Topic1", 1)
        run(main(other))


def test_what_was_cancelled_stays_in_the_log(store):
    async def main():
        before = eventfds()
        tasks = [
            asyncio.create_task(store.aput("Topic1", b"%d" % n, queue_id=0)) for n in range(100)
        ]
        await asyncio.sleep(0)
        pending = [task for task in tasks[::2] if not task.done()]
        for task in pending:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for task, result in zip(tasks, results, strict=True):
            if task in pending:
                assert isinstance(result, asyncio.CancelledError)
            else:
                assert is_flushed(store, result)
        last = asyncio.create_task(store.aput("Topic1", b"100", queue_id=0))
        await asyncio.sleep(0)
        last.cancel()  # the only one: everything is let go of with it
        await asyncio.wait([last])
        assert eventfds() == before

    run(main())
    store.wait_durable()
    assert [message.body for message in store["Topic1"][0]] == [b"%d" % n for n in range(101)]


def test_closing_ends_the_waits(store):
    async def main():
        tasks = [asyncio.create_task(store.aput("Topic1", b"x", queue_id=0)) for _ in range(100)]
        await asyncio.sleep(0)
        store.close()  # flushes
        results = await asyncio.gather(*tasks)
        assert [done.queue_offset for done in results] == list(range(100))
        with pytest.raises(rmqstore.StoreClosedError):
            await store.aput("Topic1", b"x")

    run(main())


@pytest.mark.threads
def test_loops_and_threads_together(store):
    failed = []

    def looping(queue_id):
        async def worker():
            for _ in range(10):
                done = await store.aput("Topic1", b"x" * 500, queue_id=queue_id)
                assert done.queue_id == queue_id
                assert is_flushed(store, done)

        async def main():
            await asyncio.gather(*(worker() for _ in range(30)))

        for _ in range(2):  # a second loop in the same thread
            run(main())

    def plain(queue_id):
        for _ in range(600):
            assert is_flushed(store, store.put("Topic1", b"y" * 500, queue_id=queue_id))

    def guarded(work, queue_id):
        try:
            work(queue_id)
        except BaseException as error:
            failed.append(error)

    works = [(looping, 0), (looping, 1), (looping, 2), (plain, 3)]
    running = [threading.Thread(target=guarded, args=work) for work in works]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(LIMIT)
    assert not failed
    assert not any(thread.is_alive() for thread in running)
    assert [len(store["Topic1"][n]) for n in range(4)] == [600] * 4


def test_a_loop_that_is_closed_early(store, caplog):
    before = eventfds()
    loop = asyncio.new_event_loop()
    tasks = [loop.create_task(store.aput("Topic1", b"x", queue_id=0)) for _ in range(10)]
    loop.call_soon(loop.stop)  # behind the first step of each
    loop.run_forever()
    left = sum(not task.done() for task in tasks)
    assert eventfds() == before + (left > 0)
    loop.close()
    del tasks, loop
    gc.collect()
    assert len([r for r in caplog.records if "destroyed" in r.getMessage()]) == left
    run(store.aput("Topic1", b"y", queue_id=0))
    assert len(store["Topic1"][0]) == 11


def test_a_store_that_nobody_closes(tmp_path):
    store = rmqstore.open(tmp_path / "store", "a", config=config())
    run(store.aput("Topic1", b"x"))
    del store
    gc.collect()
    with rmqstore.open(tmp_path / "store", "r+", config=config(), timeout=LIMIT) as store:
        assert len(store["Topic1"][0]) == 1


def test_a_forked_child_may_not_use_it(store):
    """Nor does it take away what its parent waits for."""

    async def main():
        tasks = [asyncio.create_task(store.aput("Topic1", b"x", queue_id=0)) for _ in range(100)]
        await asyncio.sleep(0)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for task in tasks:
                    task.get_coro().close()
                asyncio.new_event_loop().run_until_complete(store.aput("Topic1", b"child"))
            except rmqstore.ForkedStoreError:
                status = 7
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        for done in await asyncio.gather(*tasks):
            assert is_flushed(store, done)

    run(main())
    assert len(store["Topic1"][0]) == 100


def test_no_descriptor_is_left(store):
    async def main():
        await store.aput("Topic1", b"x")
        store.flush()  # so that nobody else wants a descriptor
        wrote = store.stats()["wrote_position"]
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = os.dup(0)
        os.close(taken)
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken, limits[1]))
        try:
            with pytest.raises(rmqstore.PutError) as caught:
                await store.aput("Topic1", b"y")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert caught.value.errno == errno.EMFILE
        assert caught.value.result is None
        assert (await store.aput("Topic1", b"z")).physical_offset == wrote

    run(main())


@pytest.mark.long
def test_a_program_that_ends_meanwhile(tmp_path):
    code = """
        import asyncio, sys, rmqstore
        store = rmqstore.open(sys.argv[1], "a", config=rmqstore.StoreConfig(
            mapped_file_size_commit_log=1 << 20, flush_disk_type="SYNC_FLUSH"))
        store.create_topic("Topic1", 1)
        loop = asyncio.new_event_loop()
        tasks = [loop.create_task(store.aput("Topic1", b"x")) for _ in range(100)]
        loop.call_soon(loop.stop)
        loop.run_forever()
        kept = loop.run_until_complete(store.aput("Topic1", b"y"))
        if sys.argv[2] == "daemon":
            import threading
            threading.Thread(target=loop.run_forever, daemon=True).start()
        print(kept.queue_offset)
    """
    for how in ("stopped", "daemon"):
        root = tmp_path / how
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code), str(root), how],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT,
        )
        assert (done.returncode, done.stdout) == (0, "100\n"), done.stderr
        with rmqstore.open(root, "r+") as store:
            assert len(store["Topic1"][0]) == 101
