"""The real store's side: ``Versus`` of ``interop/``, a round a request."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from interop.driver import JavaProcess
from versus.rounds import Round

ROUND_TIMEOUT = 900.0
WARM = 1.0  # seconds of a workload until its methods are compiled


class RealStore(JavaProcess):
    """A JVM with both compilers, as a broker's, that times the real store."""

    main = "rmqstore.interop.Versus"
    flags = ("-XX:TieredStopAtLevel=4", "-Xms1g", "-Xmx4g")

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send one request."""
        fields = {name: str(f) if isinstance(f, Path) else f for name, f in fields.items()}
        return self.call(op, timeout=ROUND_TIMEOUT, **fields)[1]

    def round(self, op: str, **fields: Any) -> Round:
        """Send a request for a round; the processor's time is until its answer."""
        clock = ~self.pid << 3 | 2  # Linux: of another process, in nanoseconds
        cpu = time.clock_gettime_ns(clock)
        end = self.ask(op, **fields)
        return Round(end["ns"], time.clock_gettime_ns(clock) - cpu, end["count"])
