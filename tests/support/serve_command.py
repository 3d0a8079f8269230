"""``rmqstore serve`` as a process: its first line, and its output at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

__all__ = ["LIMIT", "Served"]

LIMIT = 60  # seconds after which something counts as hung


class Served:
    """The command, running; its output is piped."""

    def __init__(self, *arguments: object) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment.pop("RMQSTORE_PATH", None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rmqstore", "serve", *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def first_line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line: dict[str, Any] = json.loads(self.process.stdout.readline())
        return line

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, list[dict[str, Any]]]:
        self.process.send_signal(number)
        return self.end()

    def end(self) -> tuple[int, str, list[dict[str, Any]]]:
        output, errors = self.process.communicate(timeout=LIMIT)
        logged = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
        *lines, last = errors.splitlines()
        assert all(line.startswith("{") for line in lines), errors
        assert last.startswith(("{", "rmqstore: ")), errors  # why it did not start
        return self.process.returncode, output + errors, logged
