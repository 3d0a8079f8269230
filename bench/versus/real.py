"""The real store's side: ``Versus`` of ``interop/``, a round a request."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from interop.driver import JavaProcess

ROUND_TIMEOUT = 900.0


class Round(NamedTuple):
    """Result of one round: nanoseconds by the clock and of the processor, and the count."""

    ns: float
    cpu_ns: float
    count: int

    @property
    def each(self) -> float:
        """Nanoseconds a unit."""
        return self.ns / self.count

    @property
    def cpu_each(self) -> float:
        """Nanoseconds of the processor a unit."""
        return self.cpu_ns / self.count


class RealStore(JavaProcess):
    """A JVM with both compilers, as a broker's, that times the real store."""

    main = "rmqstore.interop.Versus"
    flags = ("-XX:TieredStopAtLevel=4", "-Xms1g", "-Xmx4g")

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send one request."""
        fields = {name: str(f) if isinstance(f, Path) else f for name, f in fields.items()}
        return self.call(op, timeout=ROUND_TIMEOUT, **fields)[1]

    def round(self, op: str, **fields: Any) -> Round:
        """Send a request for a round."""
        end = self.ask(op, **fields)
        return Round(end["ns"], end["cpu_ns"], end["count"])
