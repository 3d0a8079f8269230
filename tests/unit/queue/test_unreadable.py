"""Files of a queue that may not be read: an error that names them, never "no messages"."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import rmqstore
from support.damaged_store import CONFIG, killed

PER_FILE = CONFIG.mapped_file_size_consume_queue // 20
# Root reads everything by two capabilities, which a process can give up.
ORDINARY = """
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    head, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(head, sets) == 0
    sets[0] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert libc.capset(head, sets) == 0, ctypes.get_errno()
"""
READ = """
    import os, sys, rmqstore
    with rmqstore.open(sys.argv[1], verify=sys.argv[2]) as store:
        print(len(list(store["good"][0])))
        queue = store["bad"][0]
        for read in (
            lambda: store.get("bad", 0, 0),
            lambda: queue.max_offset,
            lambda: queue[0],
            lambda: list(queue),
            lambda: queue.units(),
            lambda: list(store.scan("bad", queue_id=0)),
        ):
            try:
                print("nothing raised", len(str(read())))
            except PermissionError as error:
                print(os.path.relpath(error.filename, sys.argv[1]))
        print(len(list(store["good"][0])))
"""


def make(root, state):
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for n in range(PER_FILE * 3):
            store.put("good", b"%d" % n, queue_id=0)
            store.put("bad", b"%d" % n, queue_id=0)
    if state == "killed":
        killed(root)


def run(code, *arguments):
    """Run code in a process to which a mode of 0 matters."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    code = textwrap.dedent(ORDINARY) + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


@pytest.mark.parametrize("verify", ["tail", "full"])
@pytest.mark.parametrize("state", ["closed", "killed"])
@pytest.mark.parametrize("what", ["directory", "last", "first", "all"])
def test_a_queue_that_may_not_be_read(tmp_path, state, what, verify):
    root = tmp_path / "store"
    make(root, state)
    directory = root / "consumequeue/bad/0"
    files = sorted(directory.iterdir())
    shut = {"directory": [directory], "last": files[-1:], "first": files[:1], "all": files}[what]
    for path in shut:
        path.chmod(0)
    done = run(READ, root, verify)
    assert done.returncode == 0, done.stderr
    first, *named, last = done.stdout.split("\n")[:-1]
    assert first == last == str(PER_FILE * 3)
    names = {os.fspath(path.relative_to(root)) for path in shut}
    assert len(named) == 6
    if what == "last" and state == "closed":
        names.add("nothing raised")
    assert {name for name in named if name in names} == set(named), done.stdout


def test_the_command_line_says_so_in_one_line(tmp_path):
    root = tmp_path / "store"
    make(root, "closed")
    Path(root, "consumequeue/bad/0").chmod(0)
    code = "import sys; from rmqstore.cli import main; sys.exit(main(sys.argv[1:]))"
    for command in (["cat", root, "-t", "bad", "-q", "0"], ["queues", root]):
        done = run(code, *command)
        assert done.returncode == 4, (command, done.stdout, done.stderr)
        assert "consumequeue/bad/0" in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("configured", [True, False])
@pytest.mark.parametrize(("expired", "place"), [(0, -1), (0, -(2**60)), (2, -1), (2, 7)])
def test_a_unit_that_points_below_the_log_hides_none_before_it(
    tmp_path, mode, configured, expired, place
):
    """Where a queue begins is told by its units: they ascend, and one of them is damaged."""
    sizes = rmqstore.StoreConfig(
        mapped_file_size_commit_log=2048,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=50,
        max_index_num=200,
    )
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=sizes) as store:
        for number in range(100):
            store.put("T", b"%d" % number, queue_id=0)
    for path in sorted((root / "commitlog").iterdir())[:expired]:
        path.unlink()
    with rmqstore.open(root, "r") as store:
        first = store["T"][0].min_offset
    assert first > 0 if expired else first == 0
    queue = root / "consumequeue" / "T" / "0" / f"{0:020d}"
    whole = queue.read_bytes()
    for at in {first + 1, first + 2, 49, 50, 60, 74, 87}:
        data = bytearray(whole)
        struct.pack_into(">q", data, 20 * at, place)
        queue.write_bytes(data)
        with rmqstore.open(root, mode, config=sizes if configured else None) as store:
            assert store["T"][0].min_offset == first, at
            for number in range(first, 100):
                if number != at:
                    assert store["T"][0][number].body == b"%d" % number
            with contextlib.suppress(rmqstore.StoreCorruptError):
                assert store.get("T", 0, at, 1).next_offset > at
