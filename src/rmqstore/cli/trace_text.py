"""Trace messages as lines for people."""

from __future__ import annotations

from rmqstore.base.times import format_millis
from rmqstore.traces import (
    EndTransaction,
    Pub,
    SubAfter,
    SubBefore,
    Trace,
    UnknownTrace,
    decode_traces,
)

__all__ = ["trace_lines"]


def trace_lines(body: bytes, *, local: bool | None = None) -> list[str]:
    """Return the events of a trace message, a line each.

    ``body`` may be cut within its last event. ``local``: begin with the time, in this machine's
    zone or in UTC; ``None``: no time.
    """
    return [_line(trace, local) for trace in decode_traces(body)]


def _line(trace: Trace, local: bool | None) -> str:
    if isinstance(trace, UnknownTrace):
        return f"? {trace.text!r}: {trace.reason}"
    words = [type(trace).__name__]
    if local is not None and trace.time is not None:
        words.insert(0, format_millis(trace.time, local=local))
    if isinstance(trace, Pub):
        outcome = "sent" if trace.success else "failed"
        words += [trace.topic, trace.msg_id, *_tagged(trace.tags, trace.keys), outcome]
        words += [f"in {trace.cost} ms,", f"{trace.body_length} bytes to {trace.store_host}"]
    elif isinstance(trace, SubBefore):
        words += [trace.msg_id, *_tagged(None, trace.keys)]
        words += [f"retries={trace.retry_times}"] * (trace.retry_times > 0)
    elif isinstance(trace, SubAfter):
        outcome = "consumed" if trace.success else f"failed, code {trace.context_code},"
        words += [trace.msg_id, *_tagged(None, trace.keys), outcome, f"in {trace.cost} ms"]
    elif isinstance(trace, EndTransaction):
        words += [trace.topic, trace.msg_id, *_tagged(trace.tags, trace.keys), trace.state]
        words += ["after a check"] * trace.from_check
    if trace.group:
        words.append(f"by {trace.group}")
    return " ".join(words)


def _tagged(tags: str | None, keys: tuple[str, ...]) -> list[str]:
    """Return the tags and keys to show, if any."""
    return [f"tags={tags}"] * (tags is not None) + [f"keys={','.join(keys)}"] * bool(keys)
