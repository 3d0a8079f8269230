"""The command line, and a configuration for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rmqstore.cli import main
from support.command_line import Run
from support.serve_command import Served

CONF = """
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=6000
maxHashSlotNum=1000
maxIndexNum=4000
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("RMQSTORE_PATH", raising=False)

    def invoke(*args: object, **options: object) -> Result:
        return CliRunner().invoke(main, [str(one) for one in args], **options)  # type: ignore[arg-type]

    return invoke


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    file = tmp_path / "broker.conf"
    file.write_text(CONF)
    return file


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Return what starts ``rmqstore serve`` with options; it is ended with the test."""
    started: list[Served] = []

    def start(*arguments: object) -> Served:
        started.append(Served(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()
