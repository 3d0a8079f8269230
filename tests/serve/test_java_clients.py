"""The Java client 4.9.3 against the real servers and ours: what passes is the same.

Each scenario runs on both at once, with clients of its own process each; what the clients said and
the frames between them and the server are compared (:mod:`serve.transcripts`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from serve.javaclients import FIVE, JavaClients
from serve.pair import Pair
from serve.servers import OurServer, RealServer
from serve.transcripts import compared, differences, rows

pytestmark = [pytest.mark.interop, pytest.mark.campaign]

# With the requests that must at least have passed, by the client or (S) by the server.
SCENARIOS = {
    "quickstart": "105 310 35",
    "put": "105 310 35",
    "async": "310",
    "oneway": "310 30",
    "batch": "320 310 11",
    "big": "310 11",
    "vip": "310",
    "binary": "310 34 11",
    "missing": "310",
    "idle": "105 310",
    "trace": "310 35",
    "delay": "310 11 S40",
    "tx": "310 37 S39",
    "retry": "36 11 30",
    "request": "310 325 S326",
    "push": "34 38 14 11 15 35 S40",
    "tags": "34 11",
    "sql": "46 34 11",
    "broadcast": "34 11",
    "rebalance": "34 38 11 S40",
    "orderly": "41 42 11",
    "pull": "11 14",
    "litepull": "34 38 11 15",
    "liteassign": "11 29 30 31",
    "query": "12 33 29 30 31 32 17",
}
# Not request: its client got no reply of the real 4.9.3 either.
FIVE_SCENARIOS = [
    "quickstart", "async", "batch", "big", "vip", "delay", "tx", "retry", "push", "sql",
    "rebalance", "orderly", "pull", "litepull", "liteassign", "query",
]  # fmt: skip
# It looks for the queue of retries at a rebalance, every 20 s unless notified.
SOON = ("-Drocketmq.client.rebalance.waitInterval=500",)


@pytest.fixture(scope="module")
def pair(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    path = tmp_path_factory.mktemp("servers")
    made = Pair(lambda: RealServer(path / "real"), lambda: OurServer(path / "ours"))
    yield made
    made.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_same_requests_and_answers_as_at_the_real_servers(pair: Pair, scenario: str) -> None:
    said, transcripts = pair.run(scenario)
    assert said[0]
    assert rows(said[1]) == rows(said[0])
    assert not differences(*transcripts), "\n".join(differences(*transcripts))
    assert compared(*transcripts) >= 3
    kinds = {kind.replace("client ", "").replace("server ", "S") for kind in transcripts[1].kinds}
    assert set(SCENARIOS[scenario].split()) <= kinds


@pytest.fixture(scope="module")
def five(
    java: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[OurServer, JavaClients]]:
    with (
        OurServer(tmp_path_factory.mktemp("five") / "store") as server,
        JavaClients(FIVE, SOON) as clients,
    ):
        yield server, clients


@pytest.mark.parametrize("scenario", FIVE_SCENARIOS)
def test_java_5_3_3(five: tuple[OurServer, JavaClients], scenario: str) -> None:
    server, clients = five
    said = clients.run(scenario, server.namesrv)
    expected = {
        "push": ("got", 20), "rebalance": ("all", 1), "tx": ("got", 3), "retry": ("got", 4),
        "sql": ("got", 6), "orderly": ("got", 12), "litepull": ("got", 12),
        "liteassign": ("got", 12), "batch": ("got", 6), "big": ("got", 2), "delay": ("got", 1),
        "pull": ("pulled", 16),
    }  # fmt: skip
    kind, count = expected.get(scenario, ("sent", 1))
    counted = [row for row in said if row[0] == kind]
    assert len(counted) >= count, said
    assert all(row[2]["status"] == "SEND_OK" for row in said if row[0] == "sent")
    assert not [row for row in said if row[0] == "failed"]
    unexpected = [frame for frame in server.recorder.take() if frame.is_answer and frame.code == 3]
    assert not unexpected, unexpected
