"""Findings on a store's files and the verdict on them; plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["BrokerStart", "Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding on a 4.9.3 broker's start.

    Attributes
    ----------
    severity : str
        ``"stop"``: the store does not load. ``"lost"``: messages are lost. ``"warn"``: neither.
    kind : str
        Stable, lower case with hyphens, such as ``foreign-file``, ``empty-file``, ``json``.
    file : str
        Relative to the store, or absolute if outside it.
    offset : int or None
        Byte in the file's log or queue.
    message : str
        The problem and its remedy.
    line : str or None
        The broker's own log line, if it writes one.
    messages : int
        Messages lost.
    by_start : bool
        The start loses them; otherwise they are gone already.
    loops : bool
        The start never ends.
    """

    severity: Literal["stop", "lost", "warn"]
    kind: str
    file: str
    offset: int | None
    message: str
    line: str | None = None
    messages: int = 0
    by_start: bool = False
    loops: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the finding as a JSON object."""
        return {
            "severity": self.severity,
            "kind": self.kind,
            "file": self.file,
            "offset": self.offset,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class BrokerStart:
    """Verdict on the start of a 4.9.3 broker.

    Attributes
    ----------
    broker : str
        ``"starts"``, ``"refuses"``, ``"loses"`` (starts without some messages) or ``"loops"``
        (waits for ever).
    line : str or None
        The broker's log line of the worst finding.
    messages_lost : int
        Messages that are whole now and would no longer be at their queue offset.
    findings : tuple of Finding
        Worst first.
    """

    broker: Literal["starts", "refuses", "loses", "loops"]
    line: str | None
    messages_lost: int
    findings: tuple[Finding, ...]

    @property
    def text(self) -> str:
        """Verdict as a sentence without a full stop."""
        if self.broker == "refuses":
            return "a 4.9.3 broker would not start"
        if self.broker == "loops":
            return "a 4.9.3 broker would wait for ever at its start"
        if self.broker == "loses":
            count = f"{self.messages_lost:,} message{'' if self.messages_lost == 1 else 's'}"
            return f"a 4.9.3 broker would start, and lose {count if self.messages_lost else 'data'}"
        return "a 4.9.3 broker would start"
