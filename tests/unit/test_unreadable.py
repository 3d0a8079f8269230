"""Files of a queue that may not be read: an error that names them, never "no messages"."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import rmqstore
from damaged import CONFIG, killed

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
