"""The attacked server, in a process of its own, and its figures from ``/proc``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import rmqstore
from serve.hostile_client import QUEUES, SECRET, TOPIC, processor_seconds

__all__ = ["ATTACKER", "BIG_QUEUES", "OPERATOR", "Accounts", "Target", "WellBehaved"]

ATTACKER, WELL, OPERATOR = "attacker", "well-behaved", "operator"
BIG_QUEUES = 65_536
_SECONDS = 120.0  # after which something counts as hung
_LONGEST_LINE = 20_000  # of the log: a traceback is one
_TLS = Path(__file__).parents[1] / "data" / "tls"
_TOPICS = {TOPIC: QUEUES, "t": 4, "bombs": 1, "secret": 1}


class Accounts:
    """The file of accounts; the attacker is no administrator."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._version = 0
        self.write("PUB|SUB")

    def write(self, secret: str) -> None:
        """Set the attacker's permission for the topic ``secret``."""
        self._version += 1
        text = "accounts:\n"
        for key, admin in ((ATTACKER, "false"), (WELL, "false"), (OPERATOR, "true")):
            text += (
                f"  - accessKey: {key}\n    secretKey: {SECRET}\n    admin: {admin}\n"
                "    defaultTopicPerm: PUB|SUB\n    defaultGroupPerm: PUB|SUB\n"
            )
            if key == ATTACKER:
                text += f"    topicPerms: [secret={secret}]\n"
        temporary = self.path.with_suffix(".new")
        temporary.write_text(text)
        os.utime(temporary, ns=(self._version * 10**9,) * 2)
        temporary.replace(self.path)


class Target:
    """``rmqstore serve`` on a store with some topics.  A context manager, which stops it.

    Attributes
    ----------
    address, page : str
        ``ip:port`` of the server, and of its page.
    pid : int
    accounts : Accounts or None
    slowest_figures : float
        Seconds until ``/metrics`` had answered, of the slowest one.
    problems : list of str
        What is wrong, as far as anybody has seen.
    """

    def __init__(self, scratch: Path, *, accounts: bool, sync: bool, big: bool) -> None:
        self.path = scratch / "store"
        self.accounts = Accounts(scratch / "accounts.yml") if accounts else None
        self.problems: list[str] = []
        self.slowest_figures = 0.0
        self._log = scratch / "log"
        with rmqstore.open(self.path, "a") as store:
            for name, queues in (_TOPICS | ({"big": BIG_QUEUES} if big else {})).items():
                store.create_topic(name, queues)
        options = ["--port", "0", "--metrics", "0", "--flush", "sync" if sync else "async"]
        options += ["--tls-cert", str(_TLS / "cert.pem"), "--tls-key", str(_TLS / "key.pem")]
        if self.accounts is not None:
            options += ["--acl", str(self.accounts.path)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rmqstore", "serve", str(self.path), *options],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=environment,
            )  # fmt: skip
        self.pid = self._process.pid
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._log.read_text()[-3000:]
        where = json.loads(line)
        self.address: str = where["address"]
        self.page: str = where["page"].removeprefix("http://").rstrip("/")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdout is not None
        if self._process.poll() is None and kind is not None:
            self._process.kill()
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process.stdout.close()
        if code != 0:
            self.problems.append(f"the server ended with {code}")

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended by itself."""
        return self._process.poll() is not None

    @property
    def processor(self) -> float:
        """Seconds of all its threads."""
        return processor_seconds(self.pid)

    def memory(self, name: str) -> int:
        """Return ``VmRSS`` or ``VmHWM``, its peak, in bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) << 10
        raise AssertionError(f"the process {self.pid} has no {name}")

    def get(self, path: str, seconds: float = _SECONDS) -> bytes:
        """Return the page's content at a path."""
        with urllib.request.urlopen(f"http://{self.page}{path}", timeout=seconds) as reply:
            body: bytes = reply.read()
        return body

    def poll_figures(self, stopped: threading.Event) -> None:
        """Ask for ``/metrics`` over and over."""
        while not stopped.wait(0.2):
            began = time.perf_counter()
            try:
                assert b"rmqstore_connections" in self.get("/metrics")
            except (OSError, AssertionError) as error:
                self.problems.append(f"/metrics: {error!r}")
                return
            self.slowest_figures = max(self.slowest_figures, time.perf_counter() - began)

    def check_log(self) -> int:
        """Note lines of the log that are invalid, too long or errors; return its length."""
        text = self._log.read_bytes()
        for line in text.splitlines():
            try:
                row = json.loads(line)
                fine = line.isascii() and line.decode().isprintable() and row["message"]
            except (ValueError, KeyError, TypeError):
                row, fine = {}, False
            if not fine or len(line) > _LONGEST_LINE or row.get("level") == "error":
                self.problems.append(f"the log: {line[:600].decode(errors='backslashreplace')}")
                break
        return len(text)

    def lost(self, sent: list[list[Any]]) -> int:
        """Return how many of the acknowledged messages are not in their places."""
        lost = 0
        with rmqstore.open(self.path, "r") as store:
            queues = [store[TOPIC][one] for one in range(QUEUES)]
            for _, number, queue, offset, *_ in sent:
                expected = f"{number:012}".encode() + b"x" * 1000
                there = offset < len(queues[queue])
                lost += not there or queues[queue][offset].body != expected
        return lost


class WellBehaved:
    """The program of the client that behaves well.  A context manager, which ends it."""

    def __init__(self, target: Target, path: Path) -> None:
        self._target = target
        self._path = path
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        key = WELL if target.accounts is not None else ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "serve.hostile_client", target.address, str(target.pid), key,
             str(path)], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.kill()
        try:
            _, said = self._process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            _, said = self._process.communicate()
        if self._process.returncode != 0:
            text = said.decode(errors="replace").strip()[-500:]
            self._target.problems.append(f"the well-behaved client: {text}")

    def rows(self) -> list[list[Any]]:
        """Return its output."""
        text = self._path.read_text() if self._path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def wait_for(self, pulls: int, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Wait until it has pulled so many."""
        until = time.monotonic() + _SECONDS
        while goes_on() and self._process.poll() is None:
            if sum(row[0] == "pull" for row in self.rows()) >= pulls:
                return
            if time.monotonic() > until:
                self._target.problems.append(f"no {pulls} pulls of the well-behaved client")
                return
            time.sleep(0.05)
