"""A terminal of a given size, and the output of a command on it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from dataclasses import dataclass
from typing import IO

_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Shown:
    """Output of a command: lines of standard output, standard error, exit code."""

    lines: list[str]
    errors: str
    code: int


def on_terminal(
    columns: int,
    *args: object,
    errors_too: bool = False,
    output_too: bool = True,
    code: str = "from rmqstore.cli import main; main()",
    stdin: IO[bytes] | None = None,
    **env: str,
) -> Shown:
    """Run ``rmqstore`` with its output, or its errors, on a terminal of ``columns``.

    What both show together is in ``lines``; ``code`` stands for the command.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
    environment |= {"TERM": "xterm-256color"} | env
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdin=stdin or subprocess.DEVNULL,
        stdout=slave if output_too else subprocess.PIPE,
        stderr=slave if errors_too else subprocess.PIPE,
        env=environment,
    )
    os.close(slave)
    parts: list[bytes] = []
    reader = threading.Thread(target=_read_all, args=(master, parts))
    reader.start()
    try:
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()  # after a time-out; else it has ended
        process.wait()
        reader.join()
        os.close(master)
    seen = _plain(b"".join(parts))
    if not output_too:
        return Shown(_plain(out or b"").splitlines(), seen, process.returncode)
    return Shown(seen.splitlines(), _plain(errors or b""), process.returncode)


def _read_all(master: int, parts: list[bytes]) -> None:
    while True:
        try:
            data = os.read(master, 1 << 16)
        except OSError:  # the other end is closed
            return
        if not data:
            return
        parts.append(data)


def _plain(data: bytes) -> str:
    return _STYLE.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")
