"""Ctrl-C while the core is at work: a verb that only reads ends, others see to their files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support import repairs

# Opening that does not end, in C and without the GIL, interrupted while it is there: pclose()
# lets the shell go on, and waits for it.
CHILD = """
import ctypes, signal, sys
from rmqstore import opening
from rmqstore.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # a runner may have it ignored

SHELL = b'''exec >/dev/null 2>&1; cat; kill -INT $PPID
for i in $(seq 600); do kill -0 $PPID && sleep 0.1; done'''

def stuck(*_, **__):
    own = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    print("own" if own else "watched", flush=True)
    if own:
        raise KeyboardInterrupt
    libc = ctypes.CDLL(None)
    libc.popen.restype, libc.pclose.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    libc.pclose(libc.popen(SHELL, b"w"))

opening.MessageStore = stuck
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("s") / "s"
    repairs.make(path, count=20)
    return path


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, words)],
        capture_output=True,
        check=False,
        input="one\n",
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "words", ["verify", "verify --full", "plan", "info", "repair", "cat", "diff"]
)
def test_a_verb_that_reads_ends(root: Path, words: str) -> None:
    verb, *options = words.split()
    done = run(verb, root, *options, *[root] * (verb == "diff"))
    assert (done.stdout, done.stderr, done.returncode) == ("watched\n", "", 130)


@pytest.mark.parametrize("words", ["repair --apply", "restore --apply", "backup", "put"])
def test_a_verb_that_writes_has_the_handler_of_python(
    root: Path, tmp_path: Path, words: str
) -> None:
    verb, *options = words.split()
    places = {"backup": [tmp_path / "copy"], "put": ["orders"]}.get(verb, [])
    done = run(verb, root, *places, *options)
    assert (done.stdout, done.returncode) == ("own\n", 130)


def test_the_handlers_are_as_before(root: Path) -> None:
    code = f"""
import signal
from rmqstore.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
assert main(["info", {str(root)!r}], standalone_mode=False) is None
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert signal.set_wakeup_fd(-1) == -1
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
