"""Trace messages of clients, decoded.

A client with tracing on reports each message that it sends or consumes to
``RMQ_SYS_TRACE_TOPIC``, several reports to a message.

>>> from rmqstore.traces import decode_traces
>>> for message in store.scan("RMQ_SYS_TRACE_TOPIC"):
...     print(decode_traces(message.body))

Source: ``client/trace/TraceDataEncoder.java``, ``TraceView.java``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

__all__ = [
    "EndTransaction",
    "Pub",
    "SubAfter",
    "SubBefore",
    "Trace",
    "UnknownTrace",
    "decode_traces",
    "is_trace_topic",
]

_CONTENT, _FIELD = "\x01", "\x02"
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_MESSAGE_TYPES = ("Normal_Msg", "Trans_Msg_Half", "Trans_msg_Commit", "Delay_Msg")
_STATES = ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW")


@dataclass(frozen=True, slots=True)
class Pub:
    """A producer sent a message.

    Attributes
    ----------
    time : int
        Time of sending, in milliseconds since the epoch.
    region, group : str
        The region's id, and the producer group.
    topic, msg_id : str
        ``msg_id`` is the message's unique key.
    tags : str or None
    keys : tuple of str
    store_host : str
        Address of the broker.
    body_length : int
        Bytes of the body as sent.
    cost : int
        Milliseconds that sending took.
    message_type : str
        ``Normal_Msg``, ``Trans_Msg_Half``, ``Trans_msg_Commit`` or ``Delay_Msg``.
    offset_msg_id : str or None
        The store's message id; not sent by old clients.
    success : bool
    client_host : str or None
        Address of the producer, if sent.
    """

    time: int
    region: str
    group: str
    topic: str
    msg_id: str
    tags: str | None
    keys: tuple[str, ...]
    store_host: str
    body_length: int
    cost: int
    message_type: str
    offset_msg_id: str | None
    success: bool
    client_host: str | None = None


@dataclass(frozen=True, slots=True)
class SubBefore:
    """A consumer is about to handle a message.

    Attributes
    ----------
    time : int
        In milliseconds since the epoch.
    region, group : str
        The region's id, and the consumer group.
    request_id : str
        The same in the :class:`SubAfter` that follows.
    msg_id : str
    retry_times : int
        Number of earlier deliveries.
    keys : tuple of str
    """

    time: int
    region: str
    group: str
    request_id: str
    msg_id: str
    retry_times: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubAfter:
    """A consumer has handled a message.

    Attributes
    ----------
    request_id, msg_id : str
    cost : int
        Milliseconds that handling took.
    success : bool
    keys : tuple of str
    context_code : int or None
        ``ConsumeReturnType``: 0 success, 1 time-out, 2 exception, 3 null, 4 failed.
    time : int or None
        In milliseconds since the epoch; old clients send neither it nor ``group``.
    group : str or None
    """

    request_id: str
    msg_id: str
    cost: int
    success: bool
    keys: tuple[str, ...]
    context_code: int | None = None
    time: int | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """A producer ended a transaction.

    Attributes
    ----------
    time : int
        In milliseconds since the epoch.
    region, group, topic, msg_id : str
        As in :class:`Pub`, and so are the next three.
    tags : str or None
    keys : tuple of str
    store_host, message_type : str
    transaction_id : str
    state : str
        ``COMMIT_MESSAGE``, ``ROLLBACK_MESSAGE`` or ``UNKNOW``.
    from_check : bool
        In answer to the broker's check.
    """

    time: int
    region: str
    group: str
    topic: str
    msg_id: str
    tags: str | None
    keys: tuple[str, ...]
    store_host: str
    message_type: str
    transaction_id: str
    state: str
    from_check: bool


@dataclass(frozen=True, slots=True)
class UnknownTrace:
    r"""A part of a trace message of no known kind, or invalid.

    Attributes
    ----------
    text : str
        The whole part, fields separated by ``\x01``.
    reason : str
        The fault.
    """

    text: str
    reason: str


Trace = Pub | SubBefore | SubAfter | EndTransaction | UnknownTrace


def is_trace_topic(topic: str) -> bool:
    """Whether messages of a topic are traces: the usual topic, or a region's."""
    return topic == "RMQ_SYS_TRACE_TOPIC" or topic.startswith("rmq_sys_TRACE_DATA_")


def decode_traces(body: bytes) -> list[Trace]:
    """Return the events of a trace message, in its order.

    Parameters
    ----------
    body : bytes-like
        Of a message of ``RMQ_SYS_TRACE_TOPIC``.

    Returns
    -------
    list of Pub, SubBefore, SubAfter, EndTransaction or UnknownTrace
        An unreadable part is an :class:`UnknownTrace` with the reason, and hides no other.
        A text that Java wrote as ``null`` is None, or no key.

    Raises
    ------
    TypeError
        ``body`` is no buffer of bytes.

    Notes
    -----
    Source: ``client/trace/TraceDataEncoder.java decoderFromTraceDataString``.
    """
    text = bytes(memoryview(body)).decode("utf-8", "replace")
    return [_trace(part) for part in text.split(_FIELD) if part]


def _trace(text: str) -> Trace:
    name, *fields = text.split(_CONTENT)
    decode = _DECODERS.get(name)
    if decode is None:
        return UnknownTrace(text, f"no kind of trace is called {name[:40]!r}")
    try:
        return decode(fields)
    except IndexError:
        return UnknownTrace(text, f"{name} with {len(fields)} fields, which are too few")
    except ValueError as error:
        return UnknownTrace(text, f"{name}: {error}")


def _pub(fields: list[str]) -> Pub:
    # Old clients: ..., success; later ones: ..., offset id, success, and perhaps the client.
    short = len(fields) == 12
    return Pub(
        time=_number(fields[0], "time"),
        region=fields[1],
        group=fields[2],
        topic=fields[3],
        msg_id=fields[4],
        tags=_text(fields[5]),
        keys=_keys(fields[6]),
        store_host=fields[7],
        body_length=_number(fields[8], "body length"),
        cost=_number(fields[9], "cost"),
        message_type=_message_type(fields[10]),
        offset_msg_id=None if short else _text(fields[11]),
        success=_truth(fields[11 if short else 12]),
        client_host=_text(fields[13]) if len(fields) > 13 else None,
    )


def _sub_before(fields: list[str]) -> SubBefore:
    return SubBefore(
        time=_number(fields[0], "time"),
        region=fields[1],
        group=fields[2],
        request_id=fields[3],
        msg_id=fields[4],
        retry_times=_number(fields[5], "retry times"),
        keys=_keys(fields[6]) if len(fields) > 6 else (),
    )


def _sub_after(fields: list[str]) -> SubAfter:
    return SubAfter(
        request_id=fields[0],
        msg_id=fields[1],
        cost=_number(fields[2], "cost"),
        success=_truth(fields[3]),
        keys=_keys(fields[4]) if len(fields) > 4 else (),
        context_code=_number(fields[5], "context code") if len(fields) > 5 else None,
        time=_number(fields[6], "time") if len(fields) > 7 else None,
        group=_text(fields[7]) if len(fields) > 7 else None,
    )


def _end_transaction(fields: list[str]) -> EndTransaction:
    state = fields[10]
    if state not in _STATES:
        raise ValueError(f"the state is {state[:40]!r}, not one of {', '.join(_STATES)}")
    return EndTransaction(
        time=_number(fields[0], "time"),
        region=fields[1],
        group=fields[2],
        topic=fields[3],
        msg_id=fields[4],
        tags=_text(fields[5]),
        keys=_keys(fields[6]),
        store_host=fields[7],
        message_type=_message_type(fields[8]),
        transaction_id=fields[9],
        state=state,
        from_check=_truth(fields[11]),
    )


_DECODERS: dict[str, Callable[[list[str]], Trace]] = {
    "Pub": _pub,
    "SubBefore": _sub_before,
    "SubAfter": _sub_after,
    "EndTransaction": _end_transaction,
}


def _number(text: str, name: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"the {name} is {text[:40]!r}, no number")
    return int(text)


def _message_type(text: str) -> str:
    number = _number(text, "message type")
    if not 0 <= number < len(_MESSAGE_TYPES):
        raise ValueError(f"the message type is {number}, not 0 to {len(_MESSAGE_TYPES) - 1}")
    return _MESSAGE_TYPES[number]


def _text(text: str) -> str | None:
    return None if text in ("", "null") else text


def _keys(text: str) -> tuple[str, ...]:
    return () if text == "null" else tuple(one for one in text.split(" ") if one)


def _truth(text: str) -> bool:
    return text.lower() == "true"
