"""mqadmin 5.3.3, its jars as they are released, against the gateway: output of its commands."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqstore
from serve.languages import ROOT, building
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat

TOOLS = ROOT / "interop" / "tools"
LIB = TOOLS / "target" / "lib"

pytestmark = [pytest.mark.interop, pytest.mark.campaign]

RUNNING = {
    "properties": {
        "PROP_CLIENT_VERSION": "V4_9_3", "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_CONSUMER_START_TIMESTAMP": "1795190702924", "PROP_CONSUMEORDERLY": "false",
    },
    "mqTable": {}, "mqPopTable": {}, "statusTable": {}, "subscriptionSet": [],
    "userConsumerInfo": {},
}  # fmt: skip

Admin = Callable[..., str]


@pytest.fixture(scope="module")
def tools(java: None) -> Path:
    """The jars of mqadmin, fetched once for this ``pom.xml``."""
    with building():
        stamp = LIB.parent / ".made-from"
        text = (TOOLS / "pom.xml").read_text()
        if not stamp.exists() or stamp.read_text() != text:
            done = subprocess.run(
                ["mvn", "-q", "-B", "-f", str(TOOLS / "pom.xml"), "package"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=600,
                check=False,
            )
            assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")
            stamp.write_text(text)
    return LIB


@pytest.fixture(scope="module")
def server() -> Iterator[rmqstore.serve.Server]:
    """A topic of six messages, four of which its group ``g`` has; ``c1`` of the group is there."""
    with rmqstore.serve() as server, RemotingClient(server.address) as member:
        server.store.create_topic("orders", 4)
        for number in range(6):
            server.store.put("orders", b"%d" % number, queue_id=number % 4)
        topics = {"orders": "*", "%RETRY%g": "*"}
        assert member.ask(34, None, heartbeat("c1", [consumer("g", topics)], ["p"])).code == 0
        for queue in range(4):
            place = {"consumerGroup": "g", "topic": "orders", "queueId": queue, "commitOffset": 1}
            assert member.ask(15, place).code == 0
        ended = threading.Event()

        def answer() -> None:
            while not ended.is_set():
                try:
                    asked = member.next_request(307, 0.2)
                except TimeoutError:
                    continue
                member.reply(asked, 0, json.dumps(RUNNING).encode())

        answering = threading.Thread(target=answer)
        answering.start()
        yield server
        ended.set()
        answering.join()


@pytest.fixture
def admin(server: rmqstore.serve.Server, tools: Path, tmp_path: Path) -> Admin:
    """A function that runs a command to its end and returns its output."""

    def run(*words: str) -> str:
        done = subprocess.run(
            [
                "java", "-XX:TieredStopAtLevel=1", f"-Duser.home={tmp_path}",
                f"-Drocketmq.namesrv.addr={server.address}", "-cp", f"{tools}{os.sep}*",
                "org.apache.rocketmq.tools.command.MQAdminStartup", *words,
            ],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )  # fmt: skip
        # Its exit code is 0 whatever it met.
        assert (done.returncode, done.stderr.decode()) == (0, ""), words
        return done.stdout.decode()

    return run


def rows(printed: str) -> list[list[str]]:
    """Return the words of each line of a table, without its head and what follows it."""
    lines = printed.strip("\n").split("\n\n")[0].splitlines()
    assert lines[0].startswith("#")
    return [line.split() for line in lines[1:]]


def test_topics(admin: Admin, server: rmqstore.serve.Server) -> None:
    listed = admin("topicList").split()
    assert {"orders", "%RETRY%g", "TBW102", "DefaultCluster", "broker-a"} <= set(listed)
    assert len(listed) == len(set(listed))
    status = rows(admin("topicStatus", "-t", "orders"))
    assert [row[:4] for row in status] == [
        ["broker-a", "0", "0", "2"], ["broker-a", "1", "0", "2"], ["broker-a", "2", "0", "1"],
        ["broker-a", "3", "0", "1"],
    ]  # fmt: skip


def test_the_cluster(admin: Admin, server: rmqstore.serve.Server) -> None:
    [row] = rows(admin("clusterList"))
    assert row[:5] == ["DefaultCluster", "broker-a", "0", server.address, "V4_9_3"]


def test_the_broker(admin: Admin, server: rmqstore.serve.Server) -> None:
    lines = admin("brokerStatus", "-b", server.address).splitlines()
    said = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    assert said["brokerVersionDesc"] == "V4_9_3"
    assert said["msgPutTotalTodayNow"] == said["putMessageTimesTotal"] == "6"
    assert said["commitLogMaxOffset"] == str(server.store.stats()["wrote_position"])
    assert said["getTransferredTps"] == said["getTransferedTps"]


def test_progress_and_its_copy(admin: Admin, server: rmqstore.serve.Server) -> None:
    printed = admin("consumerProgress", "-g", "g")
    assert [row[:7] for row in rows(printed)] == [
        ["orders", "broker-a", "0", "2", "1", "1", "0"],
        ["orders", "broker-a", "1", "2", "1", "1", "0"],
        ["orders", "broker-a", "2", "1", "1", "0", "0"],
        ["orders", "broker-a", "3", "1", "1", "0", "0"],
    ]
    assert "Consume Diff Total: 2" in printed
    cloned = admin("cloneGroupOffset", "-s", "g", "-d", "copy", "-t", "orders", "-o", "true")
    assert cloned.strip() == (
        "clone group offset success. srcGroup[g], destGroup=[copy], topic[orders]"
    )
    with RemotingClient(server.address) as client:
        for queue in range(4):
            place = {"consumerGroup": "copy", "topic": "orders", "queueId": queue}
            assert (client.ask(14, place).fields or {})["offset"] == "1"


def test_a_consumer(admin: Admin) -> None:
    printed = admin("consumerStatus", "-g", "g")
    [row] = rows(printed)
    assert row[:3] == ["1", "c1", "V4_9_3"]
    assert "Same subscription in the same group of consumer" in printed
    assert "Rebalance OK" in printed
    one = admin("consumerStatus", "-g", "g", "-i", "c1")
    found = next(line for line in one.splitlines() if line.startswith("PROP_CONSUME_TYPE"))
    assert found.split() == ["PROP_CONSUME_TYPE", ":", "CONSUME_PASSIVELY"]


def test_exported_metrics(admin: Admin, tmp_path: Path) -> None:
    made = tmp_path / "export"
    printed = admin("exportMetrics", "-c", "DefaultCluster", "-f", str(made))
    assert printed.strip() == f"export {made}{os.sep}metrics.json success"
    found = json.loads((made / "metrics.json").read_bytes())
    broker = found["evaluateReport"]["broker-a"]
    assert broker["runtimeQuota"]["topicSize"] == 1
    assert broker["runtimeQuota"]["groupSize"] == 1
    assert float(broker["runtimeQuota"]["messageAverageSize"]) > 0
    assert broker["runtimeVersion"]["clientInfo"] == ["JAVA%V4_9_3"]
