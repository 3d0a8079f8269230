"""A Java program as people have it sends to a served store; the real store then opens it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rmqstore
from interop.driver import DEFAULT, Driver
from serve.javaclients import FOUR, build

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java")]

PROGRAM = "rmqstore.clients.Producer"
TIMEOUT = 60
SENT = re.compile(
    r"SendResult \[sendStatus=SEND_OK, msgId=(?P<unique>[0-9A-F]{32,56}), "
    r"offsetMsgId=(?P<id>[0-9A-F]{32}), "
    r"messageQueue=MessageQueue \[topic=Topic1, brokerName=broker-a, queueId=2\], "
    r"queueOffset=(?P<offset>\d+)\]\s*"
)


def send(namesrv: str, home: Path) -> re.Match[str]:
    """Run the program; return its output."""
    jar = build(FOUR)
    done = subprocess.run(
        [
            "java", "-XX:TieredStopAtLevel=1", f"-Duser.home={home}",
            "-Drocketmq.client.logUseSlf4j=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp", f"{jar}{os.pathsep}{jar.parent / 'lib'}/*", PROGRAM, namesrv,
        ],
        capture_output=True, text=True, check=False, timeout=TIMEOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    sent = SENT.fullmatch(done.stdout)
    assert sent is not None, done.stdout
    return sent


def test_what_an_unchanged_producer_sends_is_in_the_store(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with rmqstore.serve(path) as server:
        sent = [send(server.address, tmp_path), send(server.address, tmp_path)]
        assert [int(one["offset"]) for one in sent] == [0, 1]
        queue = server.store["Topic1"][2]
        assert len(queue) == 2
        for at, one in enumerate(sent):
            message = queue[at]
            assert message.body == b"Hello RocketMQ"
            assert message.tags == "TagA"
            assert message.properties == {
                "psly": "psly", "TAGS": "TagA", "UNIQ_KEY": one["unique"],
                "CLUSTER": "DefaultCluster",
            }  # fmt: skip
            assert message.msg_id == one["id"]
            found = server.store.message(one["id"])
            assert (found.queue_id, found.queue_offset) == (2, at)
            assert server.store.query("Topic1", one["unique"])[0].queue_offset == at
        assert [len(server.store["Topic1"][q]) for q in (0, 1, 3)] == [0, 0, 0]
    with Driver() as real:
        opened = real.open(path, DEFAULT)
        assert opened["load"]
        assert opened["start"]
        assert opened["clean"]
        got = real.get("Topic1", 2, 0)
        assert got.status == "FOUND"
        records = [r for r, _ in real.records([one["physical_offset"] for one in got.records])]
        assert [record["body"] for record in records] == [b"Hello RocketMQ"] * 2
        assert [record["msg_id"] for record in records] == [one["id"] for one in sent]
        for record, one in zip(records, sent, strict=True):
            properties = dict(record["properties"])
            assert properties["TAGS"] == "TagA"
            assert properties["psly"] == "psly"
            assert properties["UNIQ_KEY"] == one["unique"]
        assert real.shutdown()


@pytest.mark.long
def test_its_example_shows_what_is_stored(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples/producer.py"
    package = str(Path(rmqstore.__file__).parents[1])
    done = subprocess.run(
        [
            sys.executable, str(example), str(tmp_path / "shown"),
            "--clients", str(build(FOUR).parent),
        ],
        capture_output=True, text=True, check=False, timeout=TIMEOUT,
        env={**os.environ, "PYTHONPATH": package},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "sendStatus=SEND_OK" in done.stdout
    assert "in the store: Topic1/2@0  tag TagA  psly=psly  'Hello RocketMQ'" in done.stdout
    assert done.stdout.endswith("after its close: 'Hello RocketMQ'\n")
