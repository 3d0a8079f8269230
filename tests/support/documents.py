"""Fenced blocks of a document: found, run, and compared with what is shown.

``python`` blocks share their names; a ``text`` block behind one is what it prints.  A block with a
file's name behind its language is saved under that name.  In ``console`` blocks each ``$`` line is
run by a shell and the lines after it are what it prints; ``...`` stands for lines left out.  A line
that ends in ``&`` starts a server, on a free port, and ``kill %1`` stops it.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

# Times, paths, amounts of disk and rates: equal up to these.
VOLATILE = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]+Z|/\S+/store|[\d.,]+ (B|KiB|MiB|GiB|s|ms|us)\b|[\d,]+/s"
)
DEMO = "rmqstore demo build/demo-store -n 5000"  # what make demo ends in, on fewer messages
FIGURES = re.compile(r"\S*\d\S*|\b(B|KiB|MiB|GiB|s|ms|us)\b")  # of the demo, where each differs
PROJECT = Path(__file__).parents[2]
SPARK_PAGES = [
    PROJECT / "docs" / name
    for name in ("spark.md", "tutorials/java-to-spark.md", "tutorials/nightly.md")
]
TIMEOUT = 240  # seconds, of a command
SHOWN_ADDRESS = "localhost:9876"  # of a server, in pages


class Block(NamedTuple):
    """A fenced block: where it begins, its language, its lines."""

    line: int
    language: str
    text: str


def blocks(document: Path) -> list[Block]:
    found: list[Block] = []
    language, start, lines = "", 0, list[str]()
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```") and not start:
            language, start, lines = line[3:].strip(), number, []
        elif line == "```":
            found.append(Block(start, language, "\n".join(lines) + "\n"))
            start = 0
        else:
            lines.append(line)
    assert not start, f"line {start}: the block does not end"
    return found


def file_name(block: Block) -> str:
    """The name under which a block is saved, or nothing."""
    name = block.language.partition(" ")[2]
    return name if "." in name else ""


def commands(block: Block) -> list[tuple[str, str]]:
    """Return each command of a ``console`` block with what it is shown to print."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not parts[0].strip(), f"line {block.line}: no $ before the first line"
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts[1:]]


def masked(text: str, pattern: re.Pattern[str] = VOLATILE) -> list[str]:
    lines = (" ".join(pattern.sub("#", line).split()) for line in text.splitlines())
    return [re.sub(r"# (# ?)+|#", "#", line) for line in lines if line]


def alike(shown: list[str], printed: list[str]) -> bool:
    """Whether ``printed`` is as shown; ``...`` stands for any number of lines."""
    if "..." not in shown:
        return shown == printed
    at = shown.index("...")
    head, tail = shown[:at], shown[at + 1 :]
    if printed[:at] != head:
        return False
    return any(alike(tail, printed[n:]) for n in range(at, len(printed) + 1))


def run_python(document: Path, block: Block, names: dict[str, object]) -> str:
    printed = io.StringIO()
    code = compile("\n" * block.line + block.text, str(document), "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


def run_shell(command: str) -> str:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ["bash", "-c", command], stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as shell:
        try:
            out, err = shell.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)  # with the programs that it runs
            raise
    assert shell.returncode == 0, f"{command}\n{out}{err}"
    return out + err


class Shell:
    """Runs commands; at the end none of its servers is left.  A context manager."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None
        self._address = ""

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._server is not None:
            self._stop()

    def run(self, command: str) -> str:
        if command.endswith(" &"):
            self._start(command.removesuffix(" &"))
            return ""
        if command == "kill %1":
            self._stop()
            return ""
        return run_shell(command.replace(SHOWN_ADDRESS, self._address or SHOWN_ADDRESS))

    def _start(self, command: str) -> None:
        assert self._server is None
        self._server = subprocess.Popen(
            ["bash", "-c", f"exec {command} --port 0"], stdout=subprocess.PIPE, text=True
        )
        assert self._server.stdout is not None
        self._address = json.loads(self._server.stdout.readline())["address"]

    def _stop(self) -> None:
        assert self._server is not None
        server, self._server, self._address = self._server, None, ""
        with server:
            try:
                server.send_signal(signal.SIGTERM)
                assert server.wait(30) == 0
            finally:
                server.kill()


def run_page(document: Path) -> int:
    """Run a page from top to bottom, in the working directory; return the number of examples."""
    names: dict[str, object] = {"__name__": "example"}
    every = [*blocks(document), Block(0, "", "")]
    ran = 0
    with Shell() as shell:
        for block, follower in itertools.pairwise(every):
            if name := file_name(block):
                Path(name).write_text(block.text, encoding="utf-8")
            elif block.language in ("python", "python spark"):
                printed = run_python(document, block, names)
                shown = follower.text if follower.language == "text" else ""
                assert alike(masked(shown), masked(printed)), f"line {block.line}:\n{printed}"
                ran += 1
            elif block.language == "console":
                for command, shown in commands(block):
                    demo = command == "make demo"
                    printed = shell.run(DEMO if demo else command)
                    pattern = FIGURES if demo else VOLATILE
                    fine = alike(masked(shown, pattern), masked(printed, pattern))
                    assert fine, f"line {block.line}: {command}\n{printed}"
                    ran += 1
    return ran


def workplace(top: Path) -> tuple[Path, dict[str, str]]:
    """Make a directory to work in, as the top of a checkout, and return it with its environment.

    ``rmqstore`` and ``python`` are on its path.
    """
    import rmqstore

    home, work, tools = (top / name for name in ("home", "work", "bin"))
    for one in (home, work, tools):
        one.mkdir()
    for name in ("interop", "tests"):
        (work / name).symlink_to(PROJECT / name)
    for name, arguments in (("python", ""), ("rmqstore", "-m rmqstore ")):
        command = tools / name
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments}"$@"\n')
        command.chmod(0o755)
    return work, {
        "PYTHONPATH": str(Path(rmqstore.__file__).parents[1].resolve()),
        "HOME": str(home),
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
    }


if __name__ == "__main__":
    print(run_page(Path(sys.argv[1])))
