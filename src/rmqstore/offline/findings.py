"""Findings about a store's files, and the verdict made of them: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["BrokerStart", "Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a 4.9.3 broker's start.

    Attributes
    ----------
    severity : str
        ``"stop"``: it does not load. ``"lost"``: messages are lost. ``"warn"``: neither.
    kind : str
        Stable, lower case with hyphens, such as ``foreign-file``, ``empty-file``, ``json``.
    file : str
        Relative to the store, or absolute if it lies elsewhere.
    offset : int or None
        In the file's log or queue, in bytes.
    message : str
        The problem, and the way on.
    line : str or None
        The broker's own log line; None where it writes none.
    messages : int
        Messages that are lost.
    by_start : bool
        It is the start that loses them; else they are gone already.
    loops : bool
        The start does not end.
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
        """Return it as one JSON object."""
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
        ``"starts"``, ``"refuses"``, ``"loses"`` (it starts, and messages are gone then) or
        ``"loops"`` (it waits for ever).
    line : str or None
        The broker's log line of the worst finding.
    messages_lost : int
        Messages that are whole now, and that it would not show at their place.
    findings : tuple of Finding
        Worst first.
    """

    broker: Literal["starts", "refuses", "loses", "loops"]
    line: str | None
    messages_lost: int
    findings: tuple[Finding, ...]

    @property
    def text(self) -> str:
        """The verdict as a sentence without a full stop."""
        if self.broker == "refuses":
            return "a 4.9.3 broker would not start"
        if self.broker == "loops":
            return "a 4.9.3 broker would wait for ever at its start"
        if self.broker == "loses":
            count = f"{self.messages_lost:,} message{'' if self.messages_lost == 1 else 's'}"
            return f"a 4.9.3 broker would start, and lose {count if self.messages_lost else 'data'}"
        return "a 4.9.3 broker would start"
