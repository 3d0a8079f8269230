"""The README's examples, run from top to bottom in one directory as a reader would.

``python`` blocks share their names; a ``text`` block behind one is what it prints.  In ``console``
blocks each ``$`` line is run by a shell and the lines after it are what it prints; ``...`` stands
for lines left out.  ``make demo`` is run as the command that it ends in, on fewer messages.
The home directory has a store that a real broker left, where 4.9.3 has it by default.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from documents import Block, alike, blocks, masked, run_python

pytestmark = pytest.mark.pure

PROJECT = Path(__file__).parents[2]
README = PROJECT / "README.md"
DEMO = "rmqstore demo build/demo-store -n 5000"


def run_shell(command: str) -> str:
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout + done.stderr


def commands(block: Block) -> list[tuple[str, str]]:
    """Return each command of a ``console`` block with what it is shown to print."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not parts[0].strip(), f"line {block.line}: no $ before the first line"
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts[1:]]


@pytest.fixture
def reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker_copy: Callable[[str, Path], object]
) -> Path:
    """A directory to work in, a home with a broker's store, the command on the path."""
    home, work, tools = (tmp_path / name for name in ("home", "work", "bin"))
    for one in (home, work, tools):
        one.mkdir()
    broker_copy("broker-clean", home)
    (home / "broker-clean").rename(home / "store")
    command = tools / "rmqstore"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m rmqstore "$@"\n')
    command.chmod(0o755)
    package = str(Path(rmqstore.__file__).parents[1].resolve())
    monkeypatch.setenv("PYTHONPATH", package)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("RMQSTORE_PATH", raising=False)
    monkeypatch.chdir(work)
    return work


@pytest.mark.usefixtures("reader")
def test_examples_do_what_is_shown() -> None:
    names: dict[str, object] = {"__name__": "readme"}
    every = blocks(README)
    ran = 0
    for number, block in enumerate(every):
        if block.language == "python":
            printed = run_python(README, block, names)
            follower = every[number + 1]
            shown = follower.text if follower.language == "text" else ""
            assert alike(masked(shown), masked(printed)), f"line {block.line}:\n{printed}"
            ran += 1
        elif block.language == "console":
            for command, shown in commands(block):
                demo = command == "make demo"
                printed = run_shell(DEMO if demo else command)
                if demo:  # every figure differs
                    figures = re.compile(r"\S*\d\S*|\b(B|KiB|MiB|GiB|s|ms|us)\b")
                    fine = alike(masked(shown, figures), masked(printed, figures))
                else:
                    fine = alike(masked(shown), masked(printed))
                assert fine, f"line {block.line}: {command}\n{printed}"
                ran += 1
    assert ran > 8


def test_every_block_is_run_or_known() -> None:
    known = {"python", "python spark", "console", "text", "sh", ""}
    assert {block.language for block in blocks(README)} <= known


def test_make_targets_exist() -> None:
    makefile = PROJECT / "Makefile"
    if not makefile.exists():
        pytest.skip("no Makefile in this tree")
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)", makefile.read_text(), re.MULTILINE)
    assert phony is not None
    named = re.findall(r"`make ([a-z-]+)", README.read_text(encoding="utf-8"))
    for block in blocks(README):
        if block.language == "sh":
            for words in re.findall(r"^(?:\w+=\w+ )?make ([a-z -]+)", block.text, re.MULTILINE):
                named += words.split()
    assert {"demo", "test", "bench", "asan", "tsan"} <= set(named) <= set(phony[1].split())


def test_parts_are_listed_in_reading_order() -> None:
    core = PROJECT / "src/rmqstore/_core.pyx"
    included = re.findall(r'^include "_native/(\w+)\.pxi"', core.read_text(), re.MULTILINE)
    listed = re.findall(r"^\| `(\w+)\.pxi`", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == included
    leaves = {path.stem for path in (core.parent / "_native").glob("*.pxd")} - {"__init__"}
    assert set(re.findall(r"^\| `(\w+)\.pxd`", README.read_text(), re.MULTILINE)) == leaves
