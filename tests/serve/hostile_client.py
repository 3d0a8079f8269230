"""A client that behaves well beside hostile ones, in a program of its own.

Round after round it sends a message, pulls it, commits its offset and now and then renews the locks
of its queues, and writes how long the server took: by the clock, and of the processor time of the
server's process, all threads.  Nothing of the attackers' program is in these times.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from support.remoting import Frame, RemotingClient
from support.signing import sign

__all__ = ["GROUP", "QUEUES", "SECRET", "TOPIC", "processor_seconds"]

TOPIC, GROUP, QUEUES = "orders", "well", 4
SECRET = "secret-secret"
_PAUSE = 0.004
_LOCKS_EACH = 20  # rounds
_SEND, _PULL, _COMMIT, _LOCK = 310, 11, 15, 41


def processor_seconds(pid: int) -> float:
    """Return the processor time of another process, by its clock (clock_getcpuclockid)."""
    return time.clock_gettime((~pid << 3) | 2)


class _Client:
    """The connection, the account, and the file of results."""

    def __init__(self, address: str, pid: int, key: str, seen: TextIO) -> None:
        self._client = RemotingClient(address)
        self._pid = pid
        self._key = key
        self._seen = seen

    def ask(
        self, kind: str, code: int, fields: dict[str, object] | None, body: bytes = b""
    ) -> tuple[Frame, float, float]:
        """Return an answer, and its seconds by the clock and of the processor."""
        if self._key:
            fields = sign(fields, body, self._key, SECRET)
        began, used = time.perf_counter(), processor_seconds(self._pid)
        answer = self._client.ask(code, fields, body)
        used = processor_seconds(self._pid) - used
        clock = time.perf_counter() - began
        if answer.code != 0:
            self.write("refused", kind, answer.code, answer.remark)
        return answer, clock, used

    def write(self, *row: Any) -> None:
        self._seen.write(json.dumps(row) + "\n")
        self._seen.flush()

    def round(self, number: int) -> None:
        """Send, pull, commit."""
        body, queue = f"{number:012}" + "x" * 1000, number % QUEUES
        sent, clock, used = self.ask("send", _SEND, {
            "a": GROUP, "b": TOPIC, "c": "TBW102", "d": QUEUES, "e": queue, "f": 0,
            "g": int(time.time() * 1000), "h": 0, "i": "", "j": 0, "k": "false", "m": "false",
        }, body.encode())  # fmt: skip
        if sent.code != 0 or sent.fields is None:
            return
        offset = int(sent.fields["queueOffset"])
        self.write("send", number, queue, offset, clock, used)
        pulled, clock, used = self.ask("pull", _PULL, {
            "consumerGroup": GROUP, "topic": TOPIC, "queueId": queue, "queueOffset": offset,
            "maxMsgNums": 32, "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 15_000,
            "subscription": "*", "expressionType": "TAG", "subVersion": 0,
        })  # fmt: skip
        if body.encode() not in pulled.body:
            self.write("refused", "pull", pulled.code, "the message is not in it")
            return
        self.write("pull", number, queue, offset, clock, used)
        commit: dict[str, object] = {
            "topic": TOPIC, "consumerGroup": GROUP, "queueId": queue, "commitOffset": offset + 1,
        }  # fmt: skip
        self.ask("commit", _COMMIT, commit)
        if number % _LOCKS_EACH == 0:
            self._lock()

    def _lock(self) -> None:
        queues = [
            {"brokerName": "broker-a", "topic": TOPIC, "queueId": one} for one in range(QUEUES)
        ]
        body = {"clientId": "well@1", "consumerGroup": GROUP, "mqSet": queues}
        locked, _, _ = self.ask("lock", _LOCK, None, json.dumps(body).encode())
        if locked.code == 0 and len(locked.json["lockOKMQSet"]) != QUEUES:
            self.write("refused", "lock", 0, f"locked are {locked.json['lockOKMQSet']}")


def main(address: str, pid: str, key: str, path: str) -> None:
    """Go on until standard input ends.

    Before all others where that is allowed: an answer that is there is not waited for any more,
    and what the server does from then on is not in its time.
    """
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    with Path(path).open("w") as seen:
        client = _Client(address, int(pid), key, seen)
        number = 0
        while not select.select([sys.stdin], [], [], _PAUSE)[0]:
            client.round(number)
            number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
