"""What a server that starts warns of: messages that are too old already."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore.services.retention import deleted_text


def test_what_retention_is_about_to_delete_is_said(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    wait_until: Callable[[Callable[[], object]], None],
) -> None:
    week = 7 * 24 * 3600
    config = rmqstore.StoreConfig.small(mapped_file_size_commit_log=64 << 10)
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        store.clock.advance(-week)
        while store.stats()["wrote_position"] < 160 << 10:
            store.put("t", b"x" * 1000)
        store.clock.advance(week)
        wanted = store.delete_expired(before=store.clock.now() - week * 500, dry_run=True)
    assert wanted.files == 2
    with caplog.at_level(logging.INFO, "rmqstore"), rmqstore.serve(tmp_path / "store") as server:
        wait_until(lambda: "retention will delete" in caplog.text)
        said = deleted_text(wanted)
        assert said.startswith(f"2 files of the log, physical offsets 0 to {wanted.until}, ")
        assert f"retention will delete {said}: older than 72 h; it does so at 04 h" in caplog.text
        server.store.core.pretend_disk_use(80, 10)
        server.store.retention.clean_expired()
        assert f"retention deleted {said}: older than 72 h" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, "rmqstore"), rmqstore.serve(tmp_path / "store"):
        pass
    assert "older than" not in caplog.text
