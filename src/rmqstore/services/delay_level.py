"""Delivery state of a delay level: its progress, and messages that failed.

Source: ``store/schedule/ScheduleMessageService.java``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqstore.services.schedule_search import Waiting

__all__ = ["DelayLevel"]

_STEP_MILLIS = 100  # steps of the clock this close count as one


@dataclass
class DelayLevel:
    """Delivery state of a delay level."""

    number: int
    millis: int
    offset: int = 0  # next queue offset
    delivered: set[int] = field(default_factory=set)  # at or behind ``offset``, by an earlier run
    steps: list[tuple[int, int]] = field(default_factory=list)  # (queue offset, latest time)
    failing: bool = False  # the whole level
    failed: dict[int, tuple[Waiting, str]] = field(default_factory=dict)
    """Before ``offset``: messages that could not be delivered, by queue offset, and why."""
    retry_at: float = 0.0  # by the monotonic clock

    @property
    def queue_id(self) -> int:
        """Its queue of the schedule topic."""
        return self.number - 1

    @property
    def begin(self) -> int:
        """The first queue offset not delivered, which delayOffset.json must not pass."""
        return min(self.failed, default=self.offset)

    def note_clock(self, due: int, now: int, stop: int) -> None:
        """Note that a message is due later than its delay from now: the clock went back.

        Messages in the queue are then due no later than their delay from now; 4.9.3 delivers them
        at once, and early.
        """
        latest = now + self.millis
        self.steps = [(end, min(limit, latest)) for end, limit in self.steps if end > self.offset]
        if due <= latest or (self.steps and self.steps[-1][0] >= stop):
            return
        if self.steps and latest - self.steps[-1][1] < _STEP_MILLIS:
            self.steps[-1] = (stop, self.steps[-1][1])
        else:
            self.steps.append((stop, latest))

    def latest(self, queue_offset: int, due: int) -> int:
        """Return when a message is to be delivered."""
        for end, limit in self.steps:
            if queue_offset < end:
                return min(due, limit)
        return due
