"""Trace messages on the command line: readable in tables, as they are for programs."""

from __future__ import annotations

import pytest

import rmqstore
from support.command_line import Run

PUB = ["Pub", "1700000000123", "cn", "g", "orders", "ID1", "TagA", "k1 k2", "10.0.0.1:10911",
       "12", "3", "0", "OFF1", "true"]  # fmt: skip
AFTER = ["SubAfter", "R1", "ID1", "7", "false", "k1", "4", "1700000000131", "g2"]


def body(*parts: list[str]) -> bytes:
    return "".join("\x01".join(part) + "\x02" for part in parts).encode()


def test_tables_show_what_traces_say(
    store: rmqstore.MessageStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = store.put("RMQ_SYS_TRACE_TOPIC", body(PUB, AFTER), keys="ID1")
    store.put("RMQ_SYS_TRACE_TOPIC", b"\xff\x00")
    store.put("orders", body(PUB))
    store.flush()
    monkeypatch.setenv("COLUMNS", "400")
    table = run("cat", store.path, "-t", "RMQ_SYS_TRACE_TOPIC", "-o", "table").stdout
    assert "Pub orders ID1 tags=TagA" in table
    lines = run("get", store.path, put.msg_id, "-o", "table").stdout.splitlines()
    assert lines[-2:] == [
        "2023-11-14T22:13:20.123Z Pub orders ID1 tags=TagA keys=k1,k2 sent in 3 ms, 12 bytes to "
        "10.0.0.1:10911 by g",
        "2023-11-14T22:13:20.131Z SubAfter ID1 keys=k1 failed, code 4, in 7 ms by g2",
    ]
    hostile = store.put("RMQ_SYS_TRACE_TOPIC", body([*PUB[:3], "g\nPub \x1b[2J", *PUB[4:]], AFTER))
    store.flush()
    lines = run("get", store.path, hostile.msg_id, "-o", "table").stdout.splitlines()
    assert lines[-2].endswith(r"10.0.0.1:10911 by g\nPub \x1b[2J")  # an event is a line
    raw = run("cat", store.path, "-t", "RMQ_SYS_TRACE_TOPIC", "-o", "table", "--body", "utf8")
    assert "Pub\\x01" in raw.stdout
    assert "Pub\\x01" in run("cat", store.path, "-t", "orders", "-o", "table").stdout
    lines = run("cat", store.path, "-t", "RMQ_SYS_TRACE_TOPIC", "-o", "jsonl").stdout.splitlines()
    assert '"body":"Pub\\u0001' in lines[0]
    assert '"body_base64":"/wA="' in lines[1]
