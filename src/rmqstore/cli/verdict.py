"""Whether a 4.9.3 broker would start on a store, as ``info`` shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqstore.base.foreign import printable
from rmqstore.cli.common import read_config
from rmqstore.cli.text import shorten

if TYPE_CHECKING:
    from rmqstore.offline import BrokerStart, Finding
    from rmqstore.store import MessageStore

__all__ = ["verdict_facts", "verdict_fields", "verdict_of", "verdict_reason"]

_SHOWN = 4  # findings; JSON has them all
_LINE_WIDTH = 200


def verdict_of(opened: MessageStore, config: str | None) -> BrokerStart:
    """Return the verdict on a store that is open for reading, with the broker.conf given."""
    from rmqstore.offline import broker_start_of

    return broker_start_of(opened, None if config is None else read_config(config)[0])


def verdict_facts(verdict: BrokerStart) -> dict[str, Any]:
    """Return a verdict for programs."""
    return {
        "broker": verdict.broker,
        "line": verdict.line,
        "messages_lost": verdict.messages_lost,
        "findings": [one.to_json() for one in verdict.findings],
    }


def verdict_fields(verdict: BrokerStart) -> list[tuple[str, str]]:
    """Return the reasons of a verdict as fields, the broker's own log line first."""
    found = [one for one in verdict.findings if one.severity != "warn"]
    fields = [("its log", _line(verdict.line))] if verdict.line else []
    fields += [("problem", _text(one)) for one in found[:_SHOWN]]
    if len(found) > _SHOWN:
        fields.append(("problem", f"and {len(found) - _SHOWN:,} more: -o jsonl has them all"))
    kinds = ("abort", "newer-format")  # shown by the state and the notes
    warned = [one for one in verdict.findings if one.severity == "warn" and one.kind not in kinds]
    return fields + [("warning", _text(one)) for one in warned[:_SHOWN]]


def verdict_reason(verdict: BrokerStart) -> str:
    """Return a bad verdict in a line, with its first reason."""
    worst = verdict.findings[0]
    return f"{verdict.text}: {_text(worst)}"


def _text(one: Finding) -> str:
    return printable(f"{one.file}: {one.message}")


def _line(line: str) -> str:
    return shorten(printable(" ".join(line.split())), _LINE_WIDTH)
