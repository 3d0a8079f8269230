"""A gateway killed in the middle of transactions: no half message is lost, none is sent twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.services.stored import HALF_TOPIC

KILLS = 6
PROGRAM = """
import json, random, sys
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.settings import Settings
from support.remoting import RemotingClient

root, life, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
chance = random.Random(seed)
config = StoreConfig.small().replace(
    transaction_timeout=0, transaction_check_interval=20, transaction_check_max=10_000
)
say = lambda *words: print(*words, flush=True)

with Server(root, Settings(), config) as server, RemotingClient(server.address) as client:
    heartbeat = {"clientID": "c", "producerDataSet": [{"groupName": "p"}]}
    assert client.ask(34, None, json.dumps(heartbeat).encode()).code == 0
    open_ones = []
    number = 0
    say("ready")
    while True:
        number += 1
        body = f"{life}-{number}"
        done = server.store.transactions.put_half(
            "t", number % 3, body.encode(), {"PGROUP": "p", "UNIQ_KEY": f"K{body}"}
        )
        say("begun", body)
        open_ones.append((body, done))
        if len(open_ones) > 5:
            body, done = open_ones.pop(chance.randrange(len(open_ones)))
            how = chance.choice([8, 12, 0])
            fields = {
                "producerGroup": "p", "tranStateTableOffset": done.queue_offset,
                "commitLogOffset": done.physical_offset, "commitOrRollback": how, "msgId": "x",
            }
            if how:
                say("ending", body, how)
                assert client.ask(37, fields).code == 0
                say("ended", body, how)
        while client.pushed:  # checks: what the first word left open
            check = client.pushed.popleft()
            body = check.fields["msgId"][1:]
            how = chance.choice([8, 12])
            fields = dict(check.fields, producerGroup="p", commitOrRollback=how)
            if body not in [one for one, _ in open_ones]:
                say("ending", body, how)
                assert client.ask(37, fields).code == 0
                say("ended", body, how)
"""

TESTS = str(Path(__file__).parents[1])
PYTHON_PATH = [path for path in [os.environ.get("PYTHONPATH")] if path]


def run(root: Path, life: int, seconds: float) -> list[list[str]]:
    """Run the program for some time, kill it, and return what it said."""
    said = root.with_name(f"said-{life}")
    with said.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, root, str(life), str(life)],
            stdout=out,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([TESTS, *PYTHON_PATH])},
        )
    deadline = time.monotonic() + 60
    while not said.stat().st_size and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    assert child.wait(30) == -signal.SIGKILL
    lines = [line for line in said.read_text().splitlines(keepends=True) if line.endswith("\n")]
    assert lines[0] == "ready\n"
    return [line.split() for line in lines[1:]]


@pytest.mark.long
def test_no_half_message_is_lost_and_none_is_committed_twice(tmp_path: Path) -> None:
    root = tmp_path / "s"
    rmqstore.open(root, "a", config=StoreConfig.small()).close()
    chance = random.Random(7)
    begun: set[str] = set()
    words: dict[str, set[str]] = {}  # what was asked, and may have been done
    done: dict[str, set[str]] = {}  # what was answered
    for life in range(KILLS):
        for word, body, *how in run(root, life, 0.3 + chance.random() * 0.4):
            if word == "begun":
                begun.add(body)
            else:
                (words if word == "ending" else done).setdefault(body, set()).update(how)
        with rmqstore.open(root, "r+") as store:
            found = Counter(message.body.decode() for message in store.scan("t"))
            doubtful = [one.message.body.decode() for one in store.in_doubt()]
        assert max(found.values(), default=1) == 1
        assert max(Counter(doubtful).values(), default=1) == 1
        for body in begun:
            asked = words.get(body, set())
            answered = done.get(body, set())
            if body in doubtful:
                assert not answered
                continue
            assert asked, f"{body} has ended though nobody said so"
            if answered == {"8"} == asked:
                assert body in found
            if asked == {"12"}:
                assert body not in found
    assert len(begun) > 100
    with rmqstore.open(root, "r+") as store:
        ended = {body for body in begun if done.get(body)}
        assert len(ended) > 30
        assert HALF_TOPIC in store
        for one in store.in_doubt():
            one.commit()
        assert max(Counter(message.body for message in store.scan("t")).values()) == 1
