"""The same random program of real clients against the real servers and ours.

The same messages come to the same groups, the same offsets are committed, and both logs hold the
same records, but for times, ids and the order among those that were sent or given back at a time.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

import rmqstore
from serve.javaclients import JavaClients
from serve.programs import program
from serve.servers import OurServer, RealServer
from serve.transcripts import clean

pytestmark = [pytest.mark.interop, pytest.mark.campaign]

SENDS = int(os.environ.get("RMQSTORE_TRAFFIC_SENDS", "40"))
ROUNDS = int(os.environ.get("RMQSTORE_TRAFFIC_ROUNDS", "1"))
# How often a broker asks is a matter of time, and with it the copies that it asks with.
COPIES = {"RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC"}
BY_TIME = {
    "TRANSACTION_CHECK_TIMES",
    "TRAN_PREPARED_QUEUE_OFFSET",
    "PUSH_REPLY_TIME",
    "ARRIVE_TIME",
    "REPLY_MESSAGE_ARRIVE_TIME",
}


def run(make: Any, path: Path, steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Run the program; return all that must be the same."""
    with make(path) as server, JavaClients() as clients:
        said, _ = clients.call("program", namesrv=server.namesrv, steps=steps, timeout=300)
        server.stop()
    kinds = ("sent", "answered", "replied")
    sent = Counter((row[0], *row[1]) for row in said if row[0] in kinds)
    # Once is once: a consumer that goes may leave one to be delivered a second time.
    delivered = {tuple(row[1:]) for row in said if row[0] == "delivered"}
    text = (path / "config" / "consumerOffset.json").read_text()
    table = json.loads(re.sub(r"([{,])\s*(\d+)\s*:", r'\1"\2":', text))["offsetTable"]
    committed = {
        (name, queue): offset
        for name, queues in table.items()
        for queue, offset in queues.items()
        if name.partition("@")[2].startswith("traffic") and offset
    }
    return {
        "sent": sent,
        "delivered": delivered,
        "committed": committed,
        "records": records(path),
    }


def records(path: Path) -> Counter[str]:
    """Return the log's records without times and places."""
    found: Counter[str] = Counter()
    with rmqstore.open(path, "r") as store:
        for message in (one for topic in store for one in store[topic].messages()):
            if message.topic in COPIES:
                continue
            properties = {k: v for k, v in message.properties.items() if k not in BY_TIME}
            found[
                json.dumps(
                    clean(
                        {
                            "topic": message.topic,
                            "queue": message.queue_id,
                            "body": message.body.decode("utf-8"),
                            "flag": message.flag,
                            "sys_flag": message.sys_flag,
                            "reconsume_times": message.reconsume_times,
                            "properties": properties,
                        }
                    ),
                    sort_keys=True,
                )
            ] += 1
    return found


@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_the_same_traffic(java: None, tmp_path: Path, traffic_seed: str, round_number: int) -> None:
    steps = program(Random(f"{traffic_seed} {round_number}"), SENDS)
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(run, make, tmp_path / name, steps)
            for name, make in (("real", RealServer), ("ours", OurServer))
        ]
        real, ours = (each.result() for each in runs)
    seed = f"RMQSTORE_CLIENTS_SEED={traffic_seed}"
    assert sum(real["sent"].values()) > SENDS // 2
    assert len(real["delivered"]) > SENDS
    assert {kind for kind, *_ in real["sent"]} == {"sent", "answered", "replied"}
    consumers = {who for who, *_ in real["delivered"]}
    assert consumers >= {"traffic-orderly", "traffic-broadcast-0", "traffic-broadcast-1"}
    for what in ("sent", "delivered", "committed", "records"):
        assert real[what], what
        if real[what] != ours[what]:
            there, here = real[what], ours[what]
            if isinstance(there, dict) and not isinstance(there, Counter):
                there, here = set(there.items()), set(here.items())
            pytest.fail(
                f"{seed}: {what}\n real alone: {sorted(map(str, there - here))[:20]}\n"
                f" ours alone: {sorted(map(str, here - there))[:20]}"
            )
