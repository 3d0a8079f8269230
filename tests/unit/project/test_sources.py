"""The check of the sources finds foreign text, and layouts of files that stand apart."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure

TOP = Path(__file__).parents[3]


@pytest.fixture
def problems(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], list[str]]:
    """Return what finds the problems of a file of the package with a content."""
    monkeypatch.syspath_prepend(str(TOP / "scripts"))
    import check_sources

    def find(name: str, content: str) -> list[str]:
        class Planted(type(TOP)):  # type: ignore[misc]
            def read_bytes(self) -> bytes:
                return content.encode()

        path = Planted(TOP / "src/rmqstore" / name)
        return check_sources.foreign_text_problems(path) + check_sources.layout_problems(path)

    return find


def test_the_package_has_none(problems: Callable[[str, str], list[str]]) -> None:
    for path in sorted((TOP / "src/rmqstore").rglob("*.py")):
        name = str(path.relative_to(TOP / "src/rmqstore"))
        assert problems(name, path.read_text()) == []
    assert "check_sources" in sys.modules


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("serve/x.py", "import logging"),
        ("serve/x.py", "from logging import getLogger"),
        ("serve/x.py", "import logging.handlers as h"),
        ("spark/x.py", "gateway.work.log.warning(f'{client_id} is gone')"),
        ("serve/x.py", "_LOG.info('no %s' % name)"),
        ("serve/x.py", "self._log.critical(text)"),
        ("services/x.py", "log_warning('gone: ' + name)"),
        ("services/x.py", "log_info('gone: {}'.format(name))"),
        ("cli/x.py", "click.echo(f'rmqstore: {topic}')"),
        ("cli/x.py", "click.echo(text, err=True)"),
        ("cli/x.py", "print('topic ' + name)"),
        ("serve/x.py", "self._logger.info(f'{name}')"),
        ("serve/x.py", "_log.warning(text=f'{name}')"),
        ("serve/x.py", "gateway.work.log.exception(str(error), error=error)"),
        ("serve/x.py", "print(f'{client_id} is gone')"),
        ("serve/x.py", "sys.stderr.write(client_id)"),
        ("serve/x.py", "traceback.print_exc()"),
        ("cli/x.py", "print(text, file=sys.stderr)"),
        ("cli/x.py", "click.echo(error)"),
        ("cli/x.py", "click.echo('%s is gone' % name)"),
        ("cli/x.py", "print('gone:', name)"),
        ("cli/x.py", "print(str(error))"),
    ],
)
def test_found(problems: Callable[[str, str], list[str]], name: str, line: str) -> None:
    (one,) = problems(name, line)
    assert one.startswith(f"src/rmqstore/{name}:1: ")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("serve/x.py", "gateway.work.log.warning('%s: closed: %s', peer, error)"),
        ("services/x.py", "log_warning('%s is gone', name)"),
        ("serve/x.py", "catalog.error(name)"),
        ("base/warn.py", "import logging"),
        ("cli/x.py", "click.echo(printable(f'{topic}'))"),
        ("cli/x.py", "say(f'{topic} is gone')"),
        ("cli/x.py", "print(flush=True)"),
        ("cli/x.py", "print(printable(name), 'is gone')"),
        ("cli/x.py", "print('\\n'.join(printable(one) for one in lines))"),
        ("cli/x.py", "click.echo(json_line('info', text, when=0))"),
    ],
)
def test_not_found(problems: Callable[[str, str], list[str]], name: str, line: str) -> None:
    assert problems(name, line) == []


@pytest.mark.parametrize(
    "line",
    [
        'UNIT = struct.Struct(">qiq")',
        'size = struct.unpack(">i", data)',
        'size = int.from_bytes(data[:4], "big", signed=True)',
        "head = size.to_bytes(4)",
        "position = offset * 20",
        "count = size // 20",
        "most = 0x7FFFFFFF",
        "most = (1 << 31) - 1",
        "end = 9223372036854775807",
        "end = 1 << 63",
        'dtype = [("size", ">i4")]',
    ],
)
def test_a_layout_apart_is_found(problems: Callable[[str, str], list[str]], line: str) -> None:
    (one,) = problems("offline/x.py", line)
    assert one.startswith("src/rmqstore/offline/x.py:1: ")
    assert problems("base/layout.py", line) == []


@pytest.mark.parametrize(
    "line",
    ['word = int.from_bytes(data, "little")', "batch = 1 << 20", 'form = "hhqqi4x"', "x = 20"],
)
def test_what_is_no_layout_passes(problems: Callable[[str, str], list[str]], line: str) -> None:
    assert problems("offline/x.py", line) == []
