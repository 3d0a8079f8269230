"""docs/serve.md lists the metrics of a server and its store."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import rmqstore
from rmqstore.services import figures
from support.pages import get

pytestmark = pytest.mark.pure

PAGE = Path(__file__).parents[3] / "docs/serve.md"


def test_the_tables_have_every_metric_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = figures._rates
    spans = [(0.0,) * 4] * len(figures.RATE_SECONDS)  # as after ten minutes
    monkeypatch.setattr(figures, "_rates", lambda _: rates(spans))
    section = PAGE.read_text().partition("\n### Metrics\n")[2].partition("\n##")[0]
    rows = re.findall(r"^\| (`r.*?) \|", section, re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\S+)`", row)]
    with rmqstore.serve(metrics_port=0) as server:
        server.store.put("orders", b"1")
        text = get(server, "/metrics")[2].decode()
    names = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    assert len(names) > 50
    for name in names:
        assert len([one for one in listed if fnmatchcase(name, one)]) == 1, name
    for one in listed:
        assert any(fnmatchcase(name, one) for name in names), one
