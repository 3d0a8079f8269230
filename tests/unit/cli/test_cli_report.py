"""``report`` as people type it."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from support.command_line import Run, one_line

pytestmark = pytest.mark.pure


def test_report(run: Run, tmp_path: Path) -> None:
    root, out = tmp_path / "s", tmp_path / "r.html"
    with rmqstore.open(root, "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("orders", b"x", queue_id=0)
    result = run("report", root, out)
    assert (result.exit_code, result.output) == (0, "")
    assert str(tmp_path) not in out.read_text()
    made = out.read_bytes()
    assert "exists" in one_line(run("report", root, out), 2)
    assert out.read_bytes() == made
    assert "inside the store" in one_line(run("report", root, root / "r.html"), 2)
    one_line(run("report", tmp_path / "none", tmp_path / "n.html"), 4)
    one_line(run("report", root, tmp_path / "no-directory" / "n.html"), 4)
    assert run("report", root, tmp_path / "all.html", "--no-redact").exit_code == 0
    assert str(root) in (tmp_path / "all.html").read_text()
