"""Mapped files that somebody cuts: an error to the caller and no death, whoever handles SIGBUS.

Each case runs in a process of its own, as what is tested for is that it does not die.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from crash.checks import environment

PATIENCE = 60
HEAD = """
    import faulthandler, json, mmap, os, signal, subprocess, sys, threading
    from pathlib import Path
    import rmqstore

    SMALL = rmqstore.StoreConfig.small()
    told = {}

    def cut(path, length):
        code = f"import os; os.truncate({str(path)!r}, {length})"
        subprocess.run([sys.executable, "-S", "-c", code], check=True)

    def tell(name, call):
        try:
            told[name] = str(call())
        except Exception as error:
            told[name] = f"{type(error).__name__}: {error}"

    def filled(root, config=SMALL, count=3000):
        store = rmqstore.open(root, "a", config=config)
        store.put_many("T", [b"%04d" % n * 250 for n in range(count)], queue_id=0,
                       keys=[f"k{n}" for n in range(count)])
        store.get("T", 0, count, max_messages=1)
        store.flush()
        return store

    def bus_error():
        with open("foreign", "w+b") as file:
            file.truncate(8192)
            with mmap.mmap(file.fileno(), 8192) as mapped:
                os.truncate("foreign", 0)
                return mapped[4096]

    root = Path("store")
    log = root / "commitlog" / ("0" * 20)
    queue = root / "consumequeue" / "T" / "0" / ("0" * 20)
"""


def run(directory: Path, body: str) -> subprocess.CompletedProcess[str]:
    program = textwrap.dedent(HEAD) + textwrap.dedent(body) + "\nprint(json.dumps(told))\n"
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def survivor(directory: Path, body: str) -> dict[str, str]:
    """What a program told that lived to its end."""
    done = run(directory, body)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    told: dict[str, str] = json.loads(done.stdout)
    return told


def lost(text: str, name: str) -> None:
    """An error of one call that names the file and the place."""
    assert text.startswith("OSError: [Errno 5] mapped bytes are gone"), text
    assert name in text
    assert "at offset " in text


def failed(text: str, name: str) -> None:
    """The store takes nothing more, and says because of what."""
    assert text.startswith("StoreFailedError: "), text
    assert name in text
    assert "at offset " in text


HANDLERS = {
    "none": ("", ""),
    "faulthandler before": ("faulthandler.enable()", ""),
    "faulthandler after": ("", "faulthandler.enable()"),
    "faulthandler after, and a mapping": (
        "",
        "faulthandler.enable(); rmqstore.open('third', 'a', config=SMALL)",
    ),
    "another after": ("", "signal.signal(signal.SIGBUS, print); filled('third', count=1)"),
}


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_log_that_is_cut_is_an_error_to_each_caller(tmp_path, handler):
    before, after = HANDLERS[handler]
    told = survivor(
        tmp_path,
        f"""
        {before}
        other = rmqstore.open("other", "a", config=SMALL)
        store = filled(root)
        early = store.get("T", 0, 0, max_messages=1)[0]
        late, later = store.get("T", 0, 2500, max_messages=2)
        {after}
        cut(log, 1_000_000)
        tell("early", lambda: early.body[:4])
        tell("tags", lambda: late.tags)
        tell("body", lambda: late.body)
        tell("detach", lambda: later.detach())
        tell("first", lambda: store.get("T", 0, 0, max_messages=1)[0].body[:4])
        tell("get", lambda: store.get("T", 0, 2000, max_messages=1))
        tell("at", lambda: store.at(late.physical_offset))
        tell("query", lambda: store.query("T", "k2900"))
        tell("found", lambda: store.query("T", "k9")[0].body[:4])
        tell("scan", lambda: len(list(store.scan())))
        tell("count", lambda: store.scan(columns=["body"]).to_table().num_rows)
        tell("put", lambda: store.put("T", b"x" * 100_000))
        tell("again", lambda: store.put("T", b"x"))
        tell("flush", lambda: store.flush())
        tell("close", lambda: store.close())
        tell("other", lambda: other.put("T", b"fine", queue_id=0).queue_offset)
        tell("read", lambda: other.get("T", 0, 0)[0].body)
        tell("other close", lambda: other.close())
        """,
    )
    assert told["early"] == told["first"] == "b'0000'"
    assert told["found"] == "b'0009'"
    name = f"{tmp_path}/store/commitlog/{0:020d}"
    for read in ("tags", "body", "detach", "get", "at", "query", "scan", "count"):
        lost(told[read], name)
    for write in ("put", "again", "flush", "close"):
        failed(told[write], name)
    assert (told["other"], told["read"], told["other close"]) == ("0", "b'fine'", "None")


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_nothing_is_acknowledged_behind_the_end_of_a_cut_log(tmp_path, flush):
    """Also what goes into the last page that the file still has: no fault tells of that."""
    told = survivor(
        tmp_path,
        f"""
        store = filled(root, SMALL.replace(flush_disk_type={flush!r}), count=1000)
        cut(log, store.put("T", b"last").physical_offset)
        tell("put", lambda: store.put("T", b"y"))
        tell("flush", lambda: store.flush())
        tell("after", lambda: store.put("T", b"y"))
        """,
    )
    if flush == "SYNC_FLUSH":
        assert told["put"].startswith("StoreFailedError"), told
    for call in ("flush", "after"):
        failed(told[call], "commitlog")


@pytest.mark.parametrize("what", ["queue", "next(iter((root / 'index').iterdir()))"])
def test_a_queue_or_an_index_that_is_cut_ends_the_service(tmp_path, what):
    told = survivor(
        tmp_path,
        f"""
        import time
        store = filled(root)
        name = {what}
        cut(name, 0)
        tell("name", lambda: name.name)
        tell("read", lambda: store.get("T", 0, 0)[0].body[:4])
        tell("find", lambda: store.query("T", "k1")[0].body[:4])
        tell("put", lambda: store.put("T", b"x", queue_id=0, keys="new").queue_offset)
        until = time.monotonic() + 60
        while time.monotonic() < until and not told.get("end", "").startswith("Store"):
            tell("end", lambda: store.put("T", b"x", queue_id=0))
        tell("close", lambda: store.close())
        """,
    )
    failed(told["end"], told["name"])
    assert told["close"].startswith("StoreFailedError"), told
    if what == "queue":
        lost(told["read"], told["name"])
        assert told["find"] == "b'0001'"
    else:
        assert told["read"] == "b'0000'"
        lost(told["find"], told["name"])


def test_the_parts_by_themselves(tmp_path):
    told = survivor(
        tmp_path,
        """
        record = rmqstore.encode_record("T", b"x" * 1000)
        log = rmqstore.CommitLog("log", file_size=1 << 20, mode="a")
        log.append([record] * 100)
        cut("log/" + "0" * 20, 0)
        tell("append", lambda: log.append([record] * 100))
        tell("again", lambda: log.append([record]))
        tell("records", lambda: list(log.records()))
        tell("flush", lambda: log.flush())
        queue = rmqstore.ConsumeQueue("queue", mode="a")
        queue.put_unit(0, 100, 7, 0)
        cut("queue/" + "0" * 20, 0)
        tell("unit", lambda: queue.put_unit(100, 100, 7, 300))
        tell("units", lambda: bytes(queue.units(0, 1)))
        index = rmqstore.IndexFile("20260101000000000", hash_slot_num=99, index_num=999, mode="a")
        index.put_key("T#a", 0, 0)
        cut("20260101000000000", 0)
        tell("key", lambda: index.put_key("T#b", 1, 1))
        tell("select", lambda: index.select_phy_offset("T#a"))
        """,
    )
    failed(told["append"], "log/")
    failed(told["again"], "log/")
    lost(told["flush"], "log/")
    lost(told["records"], "log/")
    for name in ("unit", "units"):
        lost(told[name], "queue/")
    for name in ("key", "select"):
        lost(told[name], "20260101000000000")


def test_threads_at_work_while_files_are_cut(tmp_path):
    told = survivor(
        tmp_path,
        """
        store = filled(root)
        stop = threading.Event()
        ends = []

        def loop(call):
            while not stop.is_set():
                try:
                    call()
                except (OSError, rmqstore.StoreError) as error:
                    ends.append(type(error).__name__)

        calls = [
            lambda: store.put("T", b"x" * 500, queue_id=0, keys="k"),
            lambda: [message.body for message in store.get("T", 0, 2000, max_messages=64)],
            lambda: [message.tags for message in store.scan()],
            lambda: store.query("T", "k2999"),
        ]
        threads = [threading.Thread(target=loop, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        for length in (2_000_000, 1_000_000, 0):
            cut(log, length)
            cut(queue, length // 100)
        stop.set()
        for thread in threads:
            thread.join()
        for path in log.parent.iterdir():  # the puts may have gone on to another file by now
            cut(path, 0)
        tell("ends", lambda: len(ends))
        tell("put", lambda: store.put("T", b"x"))
        """,
    )
    assert int(told["ends"]) > 0
    assert told["put"].startswith("StoreFailedError")


def test_a_store_that_is_only_read(tmp_path):
    told = survivor(
        tmp_path,
        """
        filled(root).close()
        store = rmqstore.open(root)
        held = store.get("T", 0, 2999)[0]
        cut(log, 1_000_000)
        tell("held", lambda: held.body[:4])
        tell("get", lambda: store.get("T", 0, 2000))
        tell("scan", lambda: len(list(store.scan())))
        """,
    )
    assert told["held"] == "b'2999'"
    assert told["get"].startswith("StoreCorruptError")
    assert told["scan"].startswith("StoreCorruptError")


def test_in_a_child_of_fork(tmp_path):
    told = survivor(
        tmp_path,
        """
        filled("parents")
        child = os.fork()
        if child == 0:
            store = filled(root)
            cut(log, 0)
            try:
                store.get("T", 0, 0)
            except OSError as error:
                os._exit(error.errno)
            os._exit(99)
        tell("child", lambda: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
    )
    assert told["child"] == "5"


DEATHS = {
    "raised": "signal.raise_signal(signal.SIGBUS)",
    "sent": "os.kill(os.getpid(), signal.SIGBUS); time.sleep(5)",
    "a foreign mapping": "bus_error()",
}


@pytest.mark.parametrize("handler", list(HANDLERS)[:4])
@pytest.mark.parametrize("death", DEATHS)
def test_every_other_bus_error_ends_the_process_as_before(tmp_path, death, handler):
    before, after = HANDLERS[handler]
    done = run(
        tmp_path,
        f"""
        import time
        {before}
        store = filled(root, count=10)
        {after}
        {DEATHS[death]}
        """,
    )
    assert done.returncode == -signal.SIGBUS, done.stderr
    assert ("Fatal Python error: Bus error" in done.stderr) == ("faulthandler" in handler)


@pytest.mark.parametrize("first", [True, False])
def test_a_handler_of_somebody_else_is_called_with_the_fault(tmp_path, first):
    told = survivor(
        tmp_path,
        f"""
        import ctypes
        seen = []

        @ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        def handler(number, info, context):
            seen.append(number)

        class Action(ctypes.Structure):
            _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_uint64 * 16),
                        ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p)]

        def install():
            action = Action(ctypes.cast(handler, ctypes.c_void_p), flags=4)
            assert ctypes.CDLL(None).sigaction(signal.SIGBUS, ctypes.byref(action), None) == 0

        if {first}:
            install()
        store = filled(root)
        if not {first}:
            install()
            other = filled("other", count=1)
        os.kill(os.getpid(), signal.SIGBUS)
        tell("seen", lambda: seen)
        cut(log, 0)
        tell("get", lambda: store.get("T", 0, 2000))
        tell("after", lambda: seen)
        """,
    )
    assert told["seen"] == told["after"] == "[7]"
    assert told["get"].startswith("OSError: [Errno 5]")


def test_pages_of_zeros_are_few_however_much_is_read(tmp_path):
    """A fault covers twice as much as the one before it, so that no limit of mappings is met."""
    told = survivor(
        tmp_path,
        """
        store = filled(root, count=12_000)
        cut(log, 0)
        for place in range(12_000):
            tell("get", lambda: store.at(place * 1000))
        lines = Path("/proc/self/maps").read_text().splitlines()
        told["maps"] = len(lines)
        """,
    )
    assert told["get"].startswith("OSError")
    assert int(told["maps"]) < 1000


def test_the_guard_is_of_a_process_with_mappings_only(tmp_path):
    """Whoever only reads is left alone: SIGBUS is as it was."""
    told = survivor(
        tmp_path,
        """
        def handled():
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("SigCgt"):
                    return bool(int(line.split()[1], 16) >> (signal.SIGBUS - 1) & 1)

        tell("imported", handled)
        filled(root, count=1)
        tell("mapped", handled)
        """,
    )
    assert (told["imported"], told["mapped"]) == ("False", "True")
