"""The real store's side: ``Versus`` of ``interop/``, a round a request."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interop.driver import JavaProcess
from versus.rounds import Round

ROUND_TIMEOUT = 900.0


class RealStore(JavaProcess):
    """A JVM with both compilers, as a broker's, that times the real store."""

    main = "rmqstore.interop.Versus"
    flags = ("-XX:TieredStopAtLevel=4", "-Xms1g", "-Xmx4g")
    end_timeout = 120.0  # it may be killed in a sync of a busy disk

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send one request."""
        fields = {name: str(f) if isinstance(f, Path) else f for name, f in fields.items()}
        return self.call(op, timeout=ROUND_TIMEOUT, **fields)[1]

    def round(self, op: str, **fields: Any) -> Round:
        """Send a request for a round; the processor's time is until its answer."""
        used = self.used()
        end = self.ask(op, **fields)
        return Round(end["ns"], self.used() - used, end["count"])

    def used(self) -> int:
        """Return the nanoseconds of the processor that all threads have used."""
        return time.clock_gettime_ns(~self.pid << 3 | 2)  # Linux: of another process

    def warm_up(self, work: Callable[[], object], seconds: float) -> None:
        """Run a work for so many seconds of the processor, until its methods are compiled."""
        until = self.used() + seconds * 1e9
        while self.used() < until:
            work()
