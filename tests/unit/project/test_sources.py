"""The check of the sources finds text of others that would reach a log or a terminal as it is."""

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

        return check_sources.foreign_text_problems(Planted(TOP / "src/rmqstore" / name))

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
