"""Forks, and programs that end without closing: no crash, no hang, the next opening recovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import rmqstore
from crash.checks import SHORT, environment
from support import oracle_store
from support.forked_child import in_child

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=50,
    max_index_num=200,
    flush_interval_commit_log=5,
    flush_interval_consume_queue=5,
)
PATIENCE = 60


@pytest.fixture
def store(tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as opened:
        opened.put("Topic1", b"first", keys="first", queue_id=0)
        yield opened


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.put("Topic1", b"child"),
        lambda store: store.put_batch("Topic1", [b"child"]),
        lambda store: store.put_many("Topic1", [b"child"]),
        lambda store: store.get("Topic1", 0, 0),
        lambda store: store.query("Topic1", "first"),
        lambda store: store.at(0),
        lambda store: store.topics,
        lambda store: store["Topic1"],
        lambda store: store.create_topic("new"),
        lambda store: store.delete_topic("Topic1"),
        lambda store: store.flush(),
        lambda store: store.wait_durable(),
        lambda store: store.stats(),
        lambda store: store.close(),
    ],
)
def test_a_forked_child_may_not_use_it(store, call):
    queue = store["Topic1"][0]
    assert in_child(lambda: call(store)).startswith("ForkedStoreError: ")
    assert in_child(lambda: queue[0]).startswith("ForkedStoreError: ")
    assert store.put("Topic1", b"parent", queue_id=0).queue_offset == 1
    assert [m.body for m in store["Topic1"][0]] == [b"first", b"parent"]


def test_a_forked_child_waits_for_no_lock_that_a_thread_held(store):
    """What takes a lock says so before it does; closing a consumer does nothing."""
    for number in range(3):
        store.put("Topic1", b"%d" % number, queue_id=0)
    consumer = store.consumer("Topic1", group="G")
    messages = iter(consumer)
    assert next(messages).body == b"first"
    followed = consumer.follow()
    assert next(followed).body == b"0"
    locks = [
        consumer._lock,
        consumer._retries._lock,
        store.consumer_state.sharing.lock,
        store.consumer_state.joining,
        store.transactions.lock,
        store.schedule._lock,
        store.retention._deleting,
    ]
    held, done = threading.Event(), threading.Event()

    def hold():
        for lock in locks:
            lock.acquire()
        held.set()
        done.wait(PATIENCE)
        for lock in reversed(locks):
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(PATIENCE)
        for call in (
            lambda: next(messages),
            lambda: next(followed),
            lambda: list(consumer),
            lambda: consumer.queues,
            consumer.commit,
            store.in_doubt,
            store.delayed,
            lambda: store.delete_expired(before=0, dry_run=True),
            lambda: store.clean_unused_topics(dry_run=True),
            lambda: store.consumer("Topic1", group="G"),
        ):
            assert in_child(call).startswith("ForkedStoreError: ")
        assert in_child(consumer.close) == "None"
    finally:
        done.set()
        thread.join(PATIENCE)
    assert [next(messages).body, next(followed).body] == [b"1", b"2"]
    consumer.commit()
    consumer.close()
    assert store.offsets["Topic1", "G"] == {0: 4}


def test_the_parent_goes_on(tmp_path, store):
    """`abort` stays, the lock is held, and what the parent puts meanwhile is all there."""
    root = tmp_path / "store"
    for number in range(10):
        store.put("Topic1", b"%d" % number, queue_id=0)
        assert in_child(lambda: None) == "None"
        assert (root / "abort").exists()
        with pytest.raises(rmqstore.StoreLockedError):
            rmqstore.open(root, "r+")
    code = f"import rmqstore; rmqstore.open({str(root)!r}, 'r+')"
    other = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, check=False
    )
    assert b"StoreLockedError" in other.stderr
    store.close()
    assert not (root / "abort").exists()
    oracle_store.check_store(root)


def test_a_child_opens_its_own(tmp_path, store):
    root = tmp_path / "store"

    def read_and_write():
        with rmqstore.open(root, "r") as reader:
            read = reader.get("Topic1", 0, 0).messages[0].body
        with rmqstore.open(tmp_path / "other", "a", config=CONFIG) as other:
            other.put("T", b"own", queue_id=0)
            return read + other["T"][0][0].body

    assert in_child(read_and_write) == "b'firstown'"


def test_a_child_outlives_its_parent_store(tmp_path):
    """A child that only sleeps holds no lock of its parent's."""
    root = tmp_path / "store"
    store = rmqstore.open(root, "a", config=CONFIG)
    child = os.fork()
    if child == 0:
        time.sleep(PATIENCE)
        os._exit(0)
    try:
        store.put("Topic1", b"x")
        store.close()
        with rmqstore.open(root, "r+") as again:
            assert again.recovery.clean
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_child_that_ends_like_a_program(tmp_path):
    """Its atexit functions and destructors run: neither flushes, closes, nor removes `abort`."""
    code = """
        import os, sys, rmqstore, gc
        config = rmqstore.StoreConfig.small()
        store = rmqstore.open(sys.argv[1], "a", config=config)
        store.put("Topic1", b"before", queue_id=0)
        if os.fork() == 0:
            if sys.argv[2] == "del":
                del store
                gc.collect()
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
        assert os.path.exists(sys.argv[1] + "/abort")
        assert store.put("Topic1", b"after", queue_id=0).queue_offset == 1
        assert [m.body for m in store["Topic1"][0]] == [b"before", b"after"]
        store.close()
        assert not os.path.exists(sys.argv[1] + "/abort")
        print("fine")
    """
    for how in ["del", "keep"]:
        done = run(code, tmp_path / how, how)
        assert (done.returncode, done.stdout) == (0, b"fine\n"), done.stderr.decode()


def test_a_fork_while_threads_write(tmp_path):
    """The child may inherit any lock in any state: it must not touch one."""
    code = """
        import os, signal, sys, threading, rmqstore
        config = rmqstore.StoreConfig.small()
        store = rmqstore.open(sys.argv[1], "a", config=config)
        stop = threading.Event()
        def write(number):
            while not stop.is_set():
                store.put_many("Topic1", [b"x" * 100] * 50, queue_id=number)
        threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
        for thread in threads: thread.start()
        for _ in range(30):
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                try:
                    store.put("Topic1", b"child")
                except rmqstore.ForkedStoreError:
                    os._exit(7)
                os._exit(8)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        stop.set()
        for thread in threads: thread.join()
        store.close()
        print("fine")
    """
    done = run(code, tmp_path / "store")
    assert (done.returncode, done.stdout) == (0, b"fine\n"), done.stderr.decode()


def run(code, *arguments):
    return subprocess.run(
        [
            sys.executable,
            "-X",
            "faulthandler",
            "-W",
            "error",
            "-c",
            textwrap.dedent(code),
            *map(str, arguments),
        ],
        env=environment(),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )


LOAD = """
    import atexit, os, random, sys, threading, time
    import rmqstore
    root, draw = sys.argv[1], random.Random(sys.argv[2])
    config = rmqstore.StoreConfig(
        mapped_file_size_commit_log=64 << 10, mapped_file_size_consume_queue=400,
        max_hash_slot_num=50, max_index_num=200, flush_interval_commit_log=5,
        flush_interval_consume_queue=5, flush_disk_type=draw.choice(["ASYNC_FLUSH", "SYNC_FLUSH"]))
    store = rmqstore.open(root, "a", config=config)
    acks = os.open(root + ".acks", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    first = store.put("Topic1", b"first", keys="first", queue_id=9)
    view = store.at(first.physical_offset).raw_body
    def write(number):
        name = 0
        while True:
            body = b"%d-%d" % (number, name)
            put = store.put("Topic1", body, queue_id=number, keys=body.decode())
            os.write(acks, b"%d %d %s\\n" % (number, put.queue_offset, body))
            name += 1
    def read():
        while True:
            store.get("Topic1", 0, 0, 10)
            store.query("Topic1", "first")
    for work, arguments in [(write, (0,)), (write, (1,)), (read, ())]:
        threading.Thread(target=work, args=arguments, daemon=True).start()
    time.sleep(draw.uniform(0.01, 0.1))
"""
# Where these ends take the store from threads that go on, each would print a traceback while the
# interpreter shuts down: CPython aborts where a daemon thread then holds standard error's lock.
QUIET = "threading.excepthook = lambda arguments: None; "
ENDS = {
    "plain exit": (0, ""),
    "exception": (1, "raise RuntimeError('the end')"),
    "sys.exit": (3, "sys.exit(3)"),
    "sys.exit in a thread": (
        0,
        "t = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()",
    ),
    "os._exit": (4, "os._exit(4)"),
    "os._exit in a thread": (
        4,
        "t = threading.Thread(target=os._exit, args=(4,)); t.start(); t.join(); time.sleep(9)",
    ),
    "in a reference cycle": (
        0,
        QUIET + "cycle = [store]; cycle.append(cycle); del store, cycle",
    ),
    "used at exit": (0, "atexit.register(lambda: store.get('Topic1', 9, 0))"),
    "closed at exit": (0, QUIET + "atexit.register(store.close)"),
    "SIGTERM": (-15, "os.kill(os.getpid(), 15); time.sleep(9)"),
}


@pytest.mark.long
@pytest.mark.parametrize("end", ENDS)
def test_a_program_that_ends_without_closing(tmp_path, end):
    """Twenty times over: under load, now with one kind of flush and now with the other."""
    status, code = ENDS[end]
    for number in range(20 if end == "plain exit" and not SHORT else 4):
        root = tmp_path / str(number)
        done = run(textwrap.dedent(LOAD) + code + "\n", root, number)
        assert done.returncode == status, (number, done.returncode, done.stderr.decode())
        assert b"Fatal" not in done.stderr, done.stderr.decode()
        assert_recovers(root, clean=end == "closed at exit")


def assert_recovers(root, *, clean):
    acks = root.with_name(root.name + ".acks").read_bytes()
    lines = acks[: acks.rfind(b"\n") + 1].splitlines()
    assert oracle_store.is_clean(root) == clean
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert store.recovery.clean == clean
        bodies = {
            (queue_id, m.queue_offset): m.body
            for queue_id, queue in store["Topic1"].items()
            for m in queue
        }
        for line in lines:
            queue_id, queue_offset, body = line.split(b" ")
            assert bodies[int(queue_id), int(queue_offset)] == body
        for line in lines[:: max(1, len(lines) // 50)]:
            assert len(store.query("Topic1", line.split(b" ")[2].decode())) == 1
        assert store.put("Topic1", b"x", queue_id=9).queue_offset == 1
    assert oracle_store.is_clean(root)
    assert run(f"import rmqstore; rmqstore.open({str(root)!r}, 'r+').close()").returncode == 0


def test_an_exception_at_import(tmp_path):
    """A module that opens a store and then fails: the program ends, the store recovers."""
    (tmp_path / "broken.py").write_text(
        "import rmqstore, sys\n"
        "store = rmqstore.open(sys.argv[1], 'a', config=rmqstore.StoreConfig.small())\n"
        "store.put('Topic1', b'x', queue_id=0)\n"
        "raise ImportError('broken')\n"
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import broken"
    done = run(code, tmp_path / "store")
    assert done.returncode == 1
    assert b"broken" in done.stderr
    with rmqstore.open(tmp_path / "store", "r+") as store:
        assert [m.body for m in store["Topic1"][0]] == [b"x"]


@pytest.mark.parametrize("refused", [False, True])
def test_the_lock_is_given_back_though_a_child_still_has_its_descriptor(tmp_path, refused):
    """As between a fork and what the child does first, or the program that it becomes."""
    root = tmp_path / "store"
    store = rmqstore.open(root, "a", config=CONFIG)
    [lock] = [
        int(name)
        for name in os.listdir("/proc/self/fd")  # noqa: PTH208
        if os.path.realpath(f"/proc/self/fd/{name}") == str(root / "lock")
    ]
    inherited = os.dup(lock)
    try:
        if refused:  # whoever does not get the lock takes it from nobody
            for _ in range(2):
                with pytest.raises(rmqstore.StoreLockedError):
                    rmqstore.open(root, "r+", config=CONFIG)
        store.close()
        rmqstore.open(root, "r+", config=CONFIG).close()
    finally:
        os.close(inherited)


def test_a_store_that_another_process_closed_is_not_walked(tmp_path):
    """What the watermark holds of the queues does not depend on the process."""
    code = """
        import sys, rmqstore
        with rmqstore.open(sys.argv[1], "a", config=rmqstore.StoreConfig.small()) as store:
            for n in range(40):
                store.put(f"Topic{n % 7}", b"x", queue_id=n % 3)
    """
    root = tmp_path / "store"
    done = run(code, root)
    assert done.returncode == 0, done.stderr.decode()
    for mode in ("r", "r+"):
        with rmqstore.open(root, mode) as store:
            assert (store.recovery.records_checked, store.recovery.notes) == (0, ())
