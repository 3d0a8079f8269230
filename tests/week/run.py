"""A week of traffic in fast time: a worker that is killed again and again, and what must hold."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crash.checks import environment
from week import checks
from week.worker import LOG_FILE

HOUR = 3_600_000
PATIENCE = 3600.0  # seconds in all, a hundred thousand messages a minute at the least


@dataclass
class Week:
    """How much of it: messages, days of the store's clock, kills."""

    directory: Path
    messages: int = 10_000_000
    days: float = 7.0
    kills: int = 20
    step: int = 300_000  # ms that pass between two rounds
    hours: int = 24  # that messages are kept
    seed: int = 1

    @property
    def rounds(self) -> int:
        return max(1, round(self.days * 24 * HOUR / self.step))

    @property
    def notes(self) -> Path:
        return self.directory / "notes"

    @property
    def store(self) -> Path:
        return self.directory / "store"

    def settings(self) -> dict[str, Any]:
        """What the next worker goes on with."""
        begun = checks.entries(self.notes, "begun", 2)
        rounds = checks.entries(self.notes, "rounds", 1)
        return {
            "store": str(self.store),
            "notes": str(self.notes),
            "next": int(begun[:, 1].max()) if len(begun) else 0,
            "round": int(rounds.max()) + 1 if len(rounds) else 0,
            "rounds": self.rounds,
            "messages": -(-self.messages // self.rounds),
            "start": self.start,
            "step": self.step,
            "hours": self.hours,
        }

    def run(self) -> dict[str, int]:
        """Run it all; what was counted."""
        draw = random.Random(self.seed)
        self.notes.mkdir(parents=True)
        self.start = time.time_ns() // 1_000_000
        kills = sorted(draw.sample(range(1, self.rounds), min(self.kills, self.rounds - 1)))
        until = time.monotonic() + PATIENCE
        for at in [*kills, None]:
            command = [sys.executable, "-m", "week.worker", json.dumps(self.settings())]
            with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment()) as worker:
                try:
                    self.wait(worker, at, until, draw.random() * 0.1)
                finally:
                    worker.kill()
                assert worker.stderr is not None
                said = worker.stderr.read().decode()
            if at is None or worker.returncode != -9:
                assert worker.returncode == 0, said
                break
        begun = checks.entries(self.notes, "begun", 2)
        counted = {"messages": int(begun[:, 1].max()), "kills": len(kills)}
        for name in ("delivered-billing", "delivered-audit"):
            counted[name] = len(checks.entries(self.notes, name, 3))
        for name in ("dead-billing", "dead-audit"):
            counted[name] = len(checks.entries(self.notes, name, 1))
        return counted

    def wait(
        self, worker: subprocess.Popen[bytes], at: int | None, until: float, more: float
    ) -> None:
        """Wait until the worker ends, or kill it a moment after it has done a round."""
        while worker.poll() is None:
            assert time.monotonic() < until, "the week takes too long"
            rounds = checks.entries(self.notes, "rounds", 1)
            if at is not None and len(rounds) and int(rounds.max()) >= at:
                time.sleep(more)
                worker.kill()
                worker.wait()
                return
            time.sleep(0.05)

    def problems(self) -> list[str]:
        kept = self.hours * HOUR / self.step
        return checks.delivery_problems(self.notes) + checks.growth_problems(
            self.notes, kept, LOG_FILE
        )
