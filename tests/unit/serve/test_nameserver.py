"""What the name server's part answers, good and bad."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.settings import Settings
from support.remoting import RemotingClient

pytestmark = pytest.mark.pure

ROUTE = 105


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(None, Settings(), StoreConfig.small()) as made:
        made.store.create_topic("orders", 4)
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


BUILT_IN = {
    "TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "DefaultCluster", "broker-a",
    "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX", "DefaultCluster_REPLY_TOPIC",
}  # fmt: skip


def test_the_cluster_is_one_broker_at_the_address_that_was_dialled(
    server: Server, client: RemotingClient
) -> None:
    answer = client.ask(106)
    assert (answer.code, answer.fields) == (0, None)
    assert answer.json == {
        "brokerAddrTable": {
            "broker-a": {
                "brokerAddrs": {"0": server.address},
                "brokerName": "broker-a",
                "cluster": "DefaultCluster",
            }
        },
        "clusterAddrTable": {"DefaultCluster": ["broker-a"]},
    }


def test_lists_of_topics(server: Server, client: RemotingClient) -> None:
    every = BUILT_IN | {"orders"}
    assert set(client.ask(206).json["topicList"]) == every
    assert set(client.ask(224, {"cluster": "DefaultCluster"}).json["topicList"]) == every
    assert client.ask(224, {"cluster": "other"}).json == {"topicList": []}
    listed = client.ask(304).json
    assert listed == {"brokerAddr": server.address, "topicList": ["DefaultCluster", "broker-a"]}
    # None of them is entered in the store.
    assert list(server.store.topics) == ["orders"]


@pytest.mark.parametrize(
    ("flag", "codes"), [(0, set()), (1, {311}), (2, {312, 313}), (3, {311, 312})]
)
def test_unit_topics(client: RemotingClient, flag: int, codes: set[int]) -> None:
    made = {
        "topic": "unit", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": flag,
    }  # fmt: skip
    assert client.ask(17, made).code == 0
    for code in (311, 312, 313):
        assert ("unit" in client.ask(code).json["topicList"]) is (code in codes)


def test_values_are_put_read_listed_and_deleted(client: RemotingClient) -> None:
    entry: dict[str, object] = {"namespace": "space", "key": "one"}
    missing = client.ask(101, entry)
    assert (missing.code, missing.remark) == (22, "No config item, Namespace: space Key: one")
    assert client.ask(219, {"namespace": "space"}).remark == "No config item, Namespace: space"
    assert client.ask(100, {**entry, "value": "1"}).code == 0
    assert client.ask(100, {**entry, "key": "two", "value": "zwei \u00fc"}).code == 0
    assert client.ask(101, entry).fields == {"value": "1"}
    assert client.ask(219, {"namespace": "space"}).json == {
        "table": {"one": "1", "two": "zwei \u00fc"}
    }
    assert client.ask(102, entry).code == 0
    assert client.ask(102, entry).code == 0  # it is not there: nothing
    assert client.ask(101, entry).code == 22


def test_values_are_bounded(client: RemotingClient) -> None:
    assert client.ask(100, {"namespace": "a", "value": "b"}).remark == "namespace or key is null"
    assert client.ask(100, {"namespace": "a", "key": "b"}).code == 1
    assert client.ask(101, {"namespace": "a"}).code == 1
    large = {"namespace": "a", "key": "k", "value": "v" * (64 << 10)}
    for number in range(64):
        assert client.ask(100, {**large, "key": f"k{number}"}).code == 0
    refused = client.ask(100, {**large, "key": "one more"})
    assert refused.code == 1
    assert "at most" in str(refused.remark)
    for number in range(64):  # what is there may be changed
        assert client.ask(100, {**large, "key": f"k{number}"}).code == 0
    assert client.ask(102, {"namespace": "a", "key": "k0"}).code == 0
    assert client.ask(100, {**large, "key": "one more"}).code == 0


def test_who_fills_the_values_leaves_room_for_others(
    server: Server, client: RemotingClient
) -> None:
    """Of several namespaces and small values as well; what is refused has changed nothing."""
    small = {"value": "v" * 4000}
    left: list[dict[str, object]] = [
        {"namespace": f"n{number % 7}", "key": f"k{number}", **small} for number in range(2000)
    ]
    codes = [client.answer(client.send(100, one)).code for one in left]
    assert sorted(set(codes)) == [0, 1]
    assert client.ask(101, left[codes.index(1)]).code == 22
    with RemotingClient(server.address, source="127.0.0.2") as other:
        order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": "broker-a:4"}
        assert other.ask(100, order).code == 0
        assert other.ask(100, {**left[0], "value": "v" * 60_000}).code == 0  # it is the other's now
        assert client.ask(100, {**left[0], "value": "v" * 4100}).code == 0
        refused = client.ask(100, {**left[0], "value": "v" * 60_000})
        assert "the share of 127.0.0.1 is used up" in str(refused.remark)
    assert client.ask(101, left[0]).fields == {"value": "v" * 4100}


def test_an_orderly_topic_is_in_its_route_and_its_entry(
    server: Server, client: RemotingClient
) -> None:
    entry: dict[str, object] = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"}
    assert "orderTopicConf" not in client.ask(ROUTE, {"topic": "orders"}).json
    assert client.ask(100, {**entry, "value": "broker-a:4"}).code == 0
    assert client.ask(ROUTE, {"topic": "orders"}).json["orderTopicConf"] == "broker-a:4"
    assert server.store._registry.get("orders").order  # type: ignore[union-attr]
    assert client.ask(102, entry).code == 0
    assert "orderTopicConf" not in client.ask(ROUTE, {"topic": "orders"}).json
    assert not server.store._registry.get("orders").order  # type: ignore[union-attr]


def test_writing_is_taken_from_routes_and_given_back_with_what_is_inherited(
    client: RemotingClient,
) -> None:
    def perms() -> list[int]:
        return [
            client.ask(ROUTE, {"topic": topic}).json["queueDatas"][0]["perm"]
            for topic in ("orders", "TBW102")
        ]

    count = str(len(BUILT_IN) + 1)
    assert perms() == [6, 7]
    assert client.ask(205, {"brokerName": "other"}).fields == {"wipeTopicCount": "0"}
    assert perms() == [6, 7]
    assert client.ask(205, {"brokerName": "broker-a"}).fields == {"wipeTopicCount": count}
    assert perms() == [4, 5]
    assert client.ask(327, {"brokerName": "broker-a"}).fields == {"addTopicCount": count}
    assert perms() == [6, 7]
    assert client.ask(205).code == 1


def test_deleting_in_the_name_server_changes_nothing(client: RemotingClient) -> None:
    assert client.ask(216, {"topic": "orders"}).code == 0
    assert client.ask(ROUTE, {"topic": "orders"}).code == 0
    assert client.ask(216, {"topic": "../orders"}).code == 1


def test_settings_are_read(client: RemotingClient) -> None:
    lines = client.ask(319).body.decode().splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    assert settings["serverChannelMaxIdleTimeSeconds"] == "120"
    assert settings["listenPort"].isdigit()


def test_what_would_change_settings_or_accounts_is_refused(client: RemotingClient) -> None:
    for code in (25, 318, 50, 51, 53, 54):
        answer = client.ask(code, {"accessKey": "a", "secretKey": "b"}, b"rocketmqHome=/x\n")
        assert (answer.code, answer.body) == (16, b"")
    assert client.ask(ROUTE, {"topic": "orders"}).code == 0


def test_what_is_not_known_is_said_to_be_so(client: RemotingClient) -> None:
    for code in (103, 104, 322, 9999, -1):
        answer = client.ask(code, {"brokerName": "other"})
        assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


def test_addresses_of_ipv6_are_in_brackets() -> None:
    settings = Settings(advertise=("2001:db8::1", 9876))
    with (
        Server(None, settings, StoreConfig.small()) as server,
        RemotingClient(f"127.0.0.1:{server.gateway.settings.port}") as client,
    ):
        cluster = client.ask(106).json
        addresses = {
            cluster["brokerAddrTable"]["broker-a"]["brokerAddrs"]["0"],
            client.ask(105, {"topic": "TBW102"}).json["brokerDatas"][0]["brokerAddrs"]["0"],
            client.ask(304).json["brokerAddr"],
            client.ask(317, {"isOrder": "false"}).json["brokerAddr"],
        }
        assert addresses == {"[2001:db8::1]:9876"}
        assert b"namesrvAddr=[2001:db8::1]:9876\n" in client.ask(26).body
