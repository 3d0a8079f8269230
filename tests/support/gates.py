"""A gate before each write of a file, for tests of concurrent events."""

from __future__ import annotations

import threading

import pytest

from rmqstore.brokerfiles.configfile import ConfigFile


class Gate:
    """Stands before each write of a file of ``config``: counts, holds, and fails; open at first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str = "topics.json") -> None:
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Event()
        self.writes = 0
        self.error: Exception | None = None
        self.fails_from = 1  # the first write that fails with the error, if there is one
        save = ConfigFile.save

        def gated(file: ConfigFile, value: object) -> None:
            if file.path.name == name:
                self.writes += 1
                number = self.writes
                self.reached.set()
                assert self.open.wait(60)
                if self.error is not None and number >= self.fails_from:
                    raise self.error
            save(file, value)

        monkeypatch.setattr(ConfigFile, "save", gated)

    def close(self) -> None:
        self.reached.clear()
        self.open.clear()
