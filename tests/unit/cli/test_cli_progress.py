"""Progress: on standard error, in a terminal only, and only of what takes long."""

from __future__ import annotations

import io
import re
import sys
import threading
import time
from pathlib import Path

import pytest

import rmqstore
from rmqstore.cli import progress as module
from rmqstore.cli.progress import Progress
from rmqstore.config.store_config import StoreConfig
from support.terminals import Shown, on_terminal

pytestmark = pytest.mark.pure

# The command itself, that waits no two seconds, and goes on until something was shown.
EAGER = """
import threading, time
from rmqstore.cli import main, progress
progress._AFTER_SECONDS = 0.0
progress._EVERY_SECONDS = 0.05
enter = progress.Progress.__enter__
class Ended(threading.Event):
    rounds = 0
    def wait(self, timeout=None):
        self.rounds += 1  # before each but the first something was shown
        return super().wait(timeout)
def come(self):
    self._ended = Ended()
    return enter(self)
def leave(self, *error):
    enough = self._ended.rounds + 2
    until = time.monotonic() + 60
    while self._thread is not None and self._ended.rounds < enough:
        if not self._thread.is_alive() or time.monotonic() > until:
            break
        time.sleep(0.01)
    self._ended.set()
    if self._thread is not None:
        self._thread.join()
progress.Progress.__enter__ = come
progress.Progress.__exit__ = leave
main()
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("progress") / "store"
    with rmqstore.open(path, "a", config=StoreConfig.small()) as store:
        store.put_many("orders", [b"x" * 100] * 5000, keys="all")
    return path


def eager(*args: object, output_too: bool = False, errors_too: bool = True) -> Shown:
    return on_terminal(100, *args, code=EAGER, errors_too=errors_too, output_too=output_too)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["cat", "{}"], r"reading 5,000 messages .* 100%"),
        (["topics", "{}"], r"reading 1 topics .* 100%"),
        (["queues", "{}"], r"reading 1 topics .* 100%"),
        (["find", "{}", "-k", "all"], r"searching 1 topics .* 100%"),
        (["du", "{}", "--by", "tag"], r"reading .*iB/s .* left"),
        (["info", "{}"], r"counting"),
        (["restore", "{}"], r"reading"),
        (["demo", "{}-demo", "-n", "3000"], r"writing 3,000 messages .* 100%"),
    ],
)
def test_shown_in_a_terminal_only(root: Path, args: list[str], says: str) -> None:
    words = [one.replace("{}", str(root)) for one in args]
    shown = eager(*words)
    assert shown.code == 0, shown.errors
    assert "opening" in shown.errors or args[0] == "restore"
    assert re.search(says, shown.errors), shown.errors
    assert not re.search(says, "\n".join(shown.lines))
    quiet = on_terminal(100, *words, code=EAGER, output_too=True)  # errors go elsewhere
    assert "opening" not in quiet.errors
    assert not re.search(says, quiet.errors)


def test_rows_on_the_terminal_are_not_disturbed(root: Path) -> None:
    shown = eager("cat", root, "-o", "jsonl", output_too=True)
    assert "reading" not in "".join(shown.lines)
    assert sum(line.startswith("{") for line in shown.lines) >= 4999


def test_put_from_a_file_and_from_a_pipe(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"x" * 1023 + b"\n" + (b"x" * 1023 + b"\n") * 2047)
    with lines.open("rb") as file:
        shown = on_terminal(
            100, "put", tmp_path / "s", "t", code=EAGER, errors_too=True, output_too=False,
            stdin=file,
        )  # fmt: skip
    assert shown.code == 0
    assert re.search(r"storing 2.0 MiB .* 100%", shown.errors), shown.errors
    assert "2,048 messages stored" in shown.errors


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_not_before_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module._AFTER_SECONDS == 2.0
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(module, "_AFTER_SECONDS", 0.5)
    began = time.monotonic()
    with Progress("working", "steps", total=10) as progress:
        progress.done = 4
        while "working" not in terminal.getvalue() and time.monotonic() < began + 60:
            assert terminal.getvalue() == "" or time.monotonic() - began >= 0.5
            time.sleep(0.005)
    seconds = time.monotonic() - began
    assert seconds >= 0.5
    assert "4 steps" in terminal.getvalue()
    assert "40%" in terminal.getvalue()
    rate = re.search(r"(\d+)/s", terminal.getvalue())
    assert rate is not None
    assert 4 / seconds - 1 <= int(rate[1]) <= 8  # 4 steps in half a second or more
    left = re.search(r"0:00:(\d\d) left", terminal.getvalue())
    assert left is not None
    assert int(left[1]) <= 1.5 * seconds + 1  # for 6 more
    assert not [one for one in threading.enumerate() if one.name == "progress"]


def test_nothing_runs_where_nobody_looks() -> None:
    with Progress("working") as progress:
        progress.done += 1
        assert not [one for one in threading.enumerate() if one.name == "progress"]


def test_without_rich_nothing_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(module, "_AFTER_SECONDS", 0.0)
    monkeypatch.setitem(sys.modules, "rich", None)
    with Progress("working"):
        time.sleep(0.1)  # time to be shown
    assert terminal.getvalue() == ""


def test_no_standard_error_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a shell leaves it with ``2>&-``."""
    monkeypatch.setattr(sys, "stderr", None)
    with Progress("reading", "messages") as progress:
        progress.done += 1
    assert progress._thread is None
