"""Client of ``interop/five``'s driver: the real store of RocketMQ 5.3.3 in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from interop.driver import FOREVER, PROJECT, JavaProcess, Put, Unit, _message, _record


class FiveDriver(JavaProcess):
    """A process that has at most one 5.3.3 store open."""

    main = "rmqstore.interop.FiveDriver"
    jar = PROJECT / "five" / "target" / "store-driver-five.jar"

    def open(
        self, path: Path, config: dict[str, Any] | None = None, **options: Any
    ) -> dict[str, Any]:
        """Load and start the store there, with MessageStoreConfig's names.

        ``batch_topics`` are those whose queues are of batches.
        """
        end = self.call("open", dir=str(path), config=config or {}, **options)[1]
        self._opened = end["start"]
        return end

    def shutdown(self) -> bool:
        """Shut down cleanly; return whether ``abort`` is gone."""
        self._opened = False
        return self.call("shutdown")[1]["clean"]

    def reset(self) -> None:
        """Leave no store open; what a test that failed left behind is closed here."""
        if self.alive and self._opened:
            self.shutdown()

    def append(self, messages: list[dict[str, Any]]) -> list[Put]:
        """``putMessage`` for each; ``compression`` compresses the body as a client does."""
        rows, _ = self.call("append", messages=[_message(m) for m in messages])
        return [Put(*row) for row in rows]

    def dump(self, topic: str | None = None) -> list[Unit]:
        """Every unit of every queue, with its record; SHA-1s are of the inflated bodies."""
        rows, end = self.call("dump", topic=topic)
        assert end["count"] == len(rows)
        return [Unit(*row[:6], _record(row[6])) for row in rows]

    def query(self, topic: str, key: str, max_num: int = 64) -> list[dict[str, Any]]:
        """``queryMessage``: records in the order of the answer."""
        rows, _ = self.call("query", topic=topic, key=key, max=max_num, begin=0, end=FOREVER)
        return [_record(row[0]) for row in rows]
