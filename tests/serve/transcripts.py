"""Traffic between clients and a server, freed from times, ids and ports, and compared.

Two runs of one scenario do not give the same frames: threads of a client race, a poll is sent once
more or not. Compared are, of each request that both servers were asked, the answer, of all that was
pulled from a queue the messages, and of each connection the order in which its kinds of requests
first came.
"""

from __future__ import annotations

import json
import re
import struct
from collections import defaultdict
from typing import Any

from serve.recording import Exchange, Frame, exchanges

LONG_ENOUGH_FOR_AN_ID = re.compile(r"\b[0-9A-F]{32}(?:[0-9A-F]{24})?\b")
ADDRESS = re.compile(r"127\.0\.0\.[12]:\d+")
MILLISECONDS = re.compile(r"\b1[5-9]\d{11}\b")
PLACE = re.compile(r", org\.apache\.rocketmq\.[\w.$]+\(\w+\.java:\d+\)$")  # of what was thrown
UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")

PULL, QUERY_OFFSET, UPDATE_OFFSET, HEARTBEAT, MEMBERS = 11, 14, 15, 34, 38
CHECK, NOTIFY, ROUTE = 39, 40, 105
CHECK_CLIENT = 46
PARSE_FAILED = 23
SENDS = {310: "i", 320: "i", 325: "i", 326: "properties", 10: "properties", 324: "properties"}
RECORDS = {11, 12, 33, 361}
JSON_BODIES = {34, 41, 42, 46}
# Positions in the log, which other messages move, and half queue offsets, which checks move.
POSITIONS = {"commitLogOffset", "indexLastUpdatePhyoffset", "tranStateTableOffset"}
NOT_YET = {24, 25}  # the pull came before the heartbeat that it needs; the client asks again
BY_TIME = {
    "CONSUME_START_TIME",
    "PUSH_REPLY_TIME",
    "MAX_OFFSET",
    "TRANSACTION_CHECK_TIMES",
    "ARRIVE_TIME",
    "REPLY_MESSAGE_ARRIVE_TIME",
}
# Their place among the others is a matter of time; members are asked for at each rebalance.
LATE = {NOTIFY, CHECK, ROUTE, UPDATE_OFFSET, MEMBERS}


def clean(text: Any) -> Any:
    """Return a text or a structure of them without ids, addresses and times."""
    if isinstance(text, str):
        text = LONG_ENOUGH_FOR_AN_ID.sub("<id>", text)
        text = ADDRESS.sub("<address>", text)
        text = UUID.sub("<uuid>", text)
        text = PLACE.sub("", text)
        return MILLISECONDS.sub("<time>", text)
    if isinstance(text, dict):
        return {clean(k): clean(v) for k, v in sorted(text.items(), key=str)}
    if isinstance(text, list):
        return [clean(each) for each in text]
    return "<time>" if isinstance(text, int) and text > 10**12 else text


def properties(text: str) -> dict[str, str]:
    """Return the properties of a properties string."""
    pairs = (each.partition("\x01") for each in text.split("\x02") if each)
    return {name: value for name, _, value in pairs}


def _properties(text: str) -> dict[str, str]:
    cleaned: dict[str, str] = clean(properties(text))
    gone = BY_TIME | ({"WAIT"} if "TRAN_MSG" in cleaned else set())  # by how often it was asked for
    return {name: value for name, value in cleaned.items() if name not in gone}


def records(body: bytes) -> list[dict[str, Any]]:
    """Return the messages of stored records, one after another."""
    found = []
    at = 0
    while at < len(body):
        size, magic, _, queue_id, flag, queue_offset, _, sys_flag = struct.unpack_from(
            ">iIIiiqqi", body, at
        )
        assert magic == 0xDAA320A7, hex(magic)
        here = at + 40 + 8
        here += 20 if sys_flag & 0x10 else 8  # born host
        here += 8
        here += 20 if sys_flag & 0x20 else 8  # store host
        reconsumed, _, length = struct.unpack_from(">iqi", body, here)
        here += 16
        content = body[here : here + length]
        here += length
        topic = body[here + 1 : here + 1 + body[here]].decode()
        here += 1 + body[here]
        (length,) = struct.unpack_from(">h", body, here)
        found.append(
            {
                "topic": topic,
                "queue_id": queue_id,
                "queue_offset": queue_offset,
                "flag": flag,
                "sys_flag": sys_flag,
                "reconsume_times": reconsumed,
                "body": content.decode("latin-1"),
                "properties": _properties(body[here + 2 : here + 2 + length].decode()),
            }
        )
        at += size
    return found


def _json(body: bytes) -> Any:
    text = re.sub(r"([{,])(\d+):", r'\1"\2":', body.decode())  # fastjson's bare keys
    return _sorted(json.loads(text))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        gone = {"enableActingMaster"}  # for clients that fail without it
        return {k: _sorted(v) for k, v in value.items() if k not in gone}
    if isinstance(value, list):
        return sorted(
            (_sorted(each) for each in value), key=lambda one: json.dumps(one, sort_keys=True)
        )
    return value


def _part(frame: Frame, code: int) -> dict[str, Any]:
    """Return the relevant part of a request or of the answer to one of that code."""
    fields = dict(frame.fields or {})
    if not frame.is_answer and code in SENDS and SENDS[code] in fields:
        fields[SENDS[code]] = properties(fields[SENDS[code]])
    fields.pop("Signature", None)  # of times and ids as well
    for name in POSITIONS & fields.keys():
        fields[name] = "<position>"
    if code in {36, 33} and "offset" in fields:
        fields["offset"] = "<position>"
    if code == PULL and not frame.is_answer:
        fields["sysFlag"] = int(fields["sysFlag"]) & ~1  # whether there was something to commit yet
        fields.pop("commitOffset", None)
    body: Any = None
    if frame.body:
        if (frame.is_answer and code in RECORDS) or (code == CHECK and not frame.is_answer):
            body = records(frame.body)
        elif (code in JSON_BODIES or frame.is_answer) and frame.body[:1] == b"{":
            body = _json(frame.body)
        elif code == 320:
            body = len(frame.body)
        else:
            body = frame.body.decode("latin-1")
    remark = clean(frame.remark)
    if frame.is_answer and code == CHECK_CLIENT and frame.code == PARSE_FAILED:
        remark = "<what the parser says>"
    return {
        "code": frame.code,
        "flag": frame.flag,
        "remark": remark,
        "fields": clean(fields) if frame.fields is not None else None,
        "body": clean(body),
    }


def about(exchange: Exchange) -> tuple[str, ...]:
    """Return the subject of a request: asker, code, topic, queue and group."""
    asked = exchange.asked
    fields = asked.fields or {}
    names = ("topic", "queueId", "consumerGroup", "producerGroup", "group", "clientID")
    if asked.code in {310, 320, 325}:
        names = ("a", "b", "e")
    who = "client" if asked.from_client else "server"
    body = ""
    if asked.code in {HEARTBEAT, 41, 42, 46}:
        parts = json.loads(asked.body)
        body = str(parts.get("clientID") or parts.get("clientId"))
    about = (str(fields[name]) for name in names if name in fields)
    return (who, str(asked.code), *(clean(each) for each in about), clean(body))


class Transcript:
    """One scenario on one server."""

    def __init__(self, frames: list[Frame]) -> None:
        # By request, as text: the distinct answers, and the text for a failure.
        self.answers: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.found: dict[tuple[str, ...], list[str]] = defaultdict(list)
        self.kinds: set[str] = set()
        orders: dict[int, list[int]] = defaultdict(list)
        for exchange in exchanges(frames):
            asked, answered = exchange.asked, exchange.answered
            key = about(exchange)
            producer = asked.code == HEARTBEAT and b'"consumerDataSet":[]' in asked.body
            order = orders[asked.connection]
            ordered = asked.code not in LATE and asked.from_client and not producer
            if ordered and asked.code not in order:
                order.append(asked.code)
            if not producer and not any(part.startswith("%RETRY%") for part in key):
                self.kinds.add(f"{key[0]} {asked.code}")
            if answered is None or answered.code in NOT_YET:
                continue
            held = asked.code in {PULL, 361} and int(asked.fields["sysFlag"]) & 2 != 0
            if held and answered.code == 0:
                # How many come in one answer is a matter of time: what comes is not.
                self.found[key] += [_text(each) for each in records(answered.body)]
            elif not held:
                text = _text([*key, _part(asked, asked.code)])
                if (part := _part(answered, asked.code)) not in self.answers[text]:
                    self.answers[text].append(part)
        for kinds in orders.values():
            if 31 in kinds:  # a lite consumer seeks while its threads ask where to pull, and pull
                kinds[:] = [kind for kind in kinds if kind not in (PULL, QUERY_OFFSET)]
        self.orders = sorted(" ".join(map(str, kinds)) for kinds in orders.values() if kinds)


def differences(real: Transcript, ours: Transcript, *, ordered: bool = True) -> list[str]:
    """Return the differences, a line each; empty: the two servers were as one.

    Without ``ordered`` the kinds of requests may first come in any order.
    """
    found = []
    if real.kinds != ours.kinds:
        found.append(
            f"asked of one alone: real {real.kinds - ours.kinds}, ours {ours.kinds - real.kinds}"
        )
    if ordered and real.orders != ours.orders:
        found.append(f"orders by connection: real {real.orders}, ours {ours.orders}")
    for text in sorted(real.answers.keys() & ours.answers.keys()):
        there, here = real.answers[text], ours.answers[text]
        fewer, more = sorted((there, here), key=len)
        if any(each not in more for each in fewer):
            found.append(f"{text}:\n  real {_text(there)}\n  ours {_text(here)}")
    for key in sorted(real.found.keys() & ours.found.keys()):
        there, here = set(real.found[key]), set(ours.found[key])
        if there != here:
            found.append(f"{key}:\n  real alone {there - here}\n  ours alone {here - there}")
    return found


def compared(real: Transcript, ours: Transcript) -> int:
    """Return how many answers and messages :func:`differences` has compared."""
    answers = real.answers.keys() & ours.answers.keys()
    return len(answers) + sum(len(real.found[key]) for key in real.found.keys() & ours.found.keys())


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def rows(said: list[list[Any]]) -> list[str]:
    """Return the clients' output, cleaned, in an order that threads do not change."""
    made = set()
    for row in said:
        cleaned = clean(row)
        if row[0] == "error" and row[3] == PARSE_FAILED:
            cleaned[4] = "<what the parser says>"
        if isinstance(cleaned[-1], dict):
            there = cleaned[-1].get("properties", {})
            for name in BY_TIME | ({"WAIT"} if "TRAN_MSG" in there else set()):
                there.pop(name, None)
            if row[1] == "check":
                del cleaned[-1]["queue_offset"]  # each check has a copy of its own
        made.add(_text(cleaned))
    return sorted(made)
