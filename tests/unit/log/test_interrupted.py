"""Ctrl-C while a put waits for the disk: at once, and what was put stays put."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import rmqstore
from crash.checks import environment

PUT = """
    import sys, rmqstore
    config = rmqstore.StoreConfig.small(flush_disk_type="SYNC_FLUSH", sync_flush_timeout=50_000)
    store = rmqstore.open(sys.argv[1], "a", config=config)
    store.create_topic("orders", 1)
    print("ready", flush=True)
    try:
        if sys.argv[2] == "put":
            store.put("orders", b"0", queue_id=0)
        elif sys.argv[2] == "put_batch":
            store.put_batch("orders", [b"0"], queue_id=0)
        else:
            store.put_many("orders", [b"0"], queue_id=0)
    except KeyboardInterrupt as error:
        print("interrupted", *error.__notes__, flush=True)
    sys.stdin.read()
    store.close()
"""


@pytest.mark.needs_debug_build
@pytest.mark.parametrize("call", ["put", "put_batch", "put_many"])
def test_a_put_that_waits_for_the_disk(tmp_path, call):
    held, release = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PUT), str(tmp_path / "store"), call],
        env=environment(RMQ_HOLD_AT=f"before-log-sync:{held}"),
        pass_fds=[held],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n"
        answered = []
        until = time.monotonic() + 60
        while not answered and time.monotonic() < until:
            time.sleep(0.5)  # it has to be in the call: before it Ctrl-C ends the process
            child.send_signal(signal.SIGINT)
            answered, _, _ = select.select([child.stdout], [], [], 1)
        assert answered, "it waits on"
        said = child.stdout.readline()
        assert said.startswith("interrupted 1 messages, of which the log ends at "), said
        os.close(release)
        release = -1
        child.communicate("", timeout=60)
        assert child.returncode == 0
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stdin.close()
        os.close(held)
        if release >= 0:
            os.close(release)
    with rmqstore.open(tmp_path / "store") as store:
        assert [m.body for m in store["orders"][0]] == [b"0"]
