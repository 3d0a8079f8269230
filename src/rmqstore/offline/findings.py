"""Findings on a store's files and the verdict on them; plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["BrokerStart", "Finding"]


_LOG_DAMAGE = ("bad-record", "gap", "hole")


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
    command : tuple of str
        Verb and options of the command that mends this alone; empty if there is none.
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
    command: tuple[str, ...] = ()

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
            count = count if self.messages_lost else "data"
            if any(one.kind == "newer-format" and one.by_start for one in self.findings):
                return f"of RocketMQ 5: a 4.9.3 broker must not start on it, and would lose {count}"
            return f"a 4.9.3 broker would start, and lose {count}"
        # One that queues name no message of may have had any number.
        gone = [one.messages for one in self.findings if one.kind in _LOG_DAMAGE]
        if gone and all(gone):
            return f"a 4.9.3 broker would start; {_messages(sum(gone))} lost already"
        return "a 4.9.3 broker would start"


def _messages(count: int) -> str:
    return "1 message is" if count == 1 else f"{count:,} messages are"
