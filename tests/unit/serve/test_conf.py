"""What a broker.conf says of the gateway; arguments win."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.config.store_config import RmqStoreWarning
from rmqstore.serve import serving
from rmqstore.serve.conf import BrokerConf
from rmqstore.serve.server import Server
from support.remoting import RemotingClient

pytestmark = pytest.mark.pure

NAMES = "brokerClusterName=Shop\nbrokerName=shop-a\nregionId=North\n"
SMALL = "mappedFileSizeCommitLog=16777216\nmappedFileSizeConsumeQueue=120000\n"
SEND = {"a": "p", "b": "orders", "c": "TBW102", "d": "16", "e": "0", "f": "0", "g": "1", "h": "0",
        "i": "", "j": "0", "k": "false", "m": "false"}  # fmt: skip


def served(tmp_path: Path, text: str, **options: Any) -> Server:
    conf = tmp_path / "broker.conf"
    conf.write_text(SMALL + text)
    return rmqstore.serve(tmp_path / "store", config=conf, **options)


def route(client: RemotingClient, topic: str) -> dict[str, Any]:
    route: dict[str, Any] = json.loads(client.ask(105, {"topic": topic}).body)
    return route


def subscribed(kind: str) -> bytes:
    one = {"topic": "orders", "subString": "a = 1", "expressionType": kind, "subVersion": 1}
    return json.dumps({"clientId": "c", "group": "g", "subscriptionData": one}).encode()


@pytest.mark.parametrize("hot", [True, False])
def test_names(tmp_path: Path, hot: bool) -> None:
    with served(tmp_path, NAMES) as server, RemotingClient(server.address) as client:
        server.gateway.shared.hot_sends = hot
        for number in range(2):  # the first one makes the topic
            sent = client.ask(310, SEND, b"%d" % number)
            assert (sent.fields or {})["MSG_REGION"] == "North"
            stored = server.store["orders"][0][number]
            assert stored.properties["CLUSTER"] == "Shop"
        (broker,) = route(client, "orders")["brokerDatas"]
        assert (broker["cluster"], broker["brokerName"]) == ("Shop", "shop-a")
        assert client.ask(106).json["clusterAddrTable"] == {"Shop": ["shop-a"]}
        assert client.ask(304).json["topicList"] == ["Shop", "shop-a"]
        assert {"Shop", "shop-a", "Shop_REPLY_TOPIC"} <= set(client.ask(206).json["topicList"])
        settings = client.ask(26).body.decode().splitlines()
        assert {"brokerClusterName=Shop", "brokerName=shop-a", "regionId=North"} <= set(settings)


def test_without_a_file_they_are_those_of_the_quick_start(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("brokerName=\nbrokerIP1 = \n")
    assert BrokerConf.from_file(tmp_path / "broker.conf") == BrokerConf()
    with served(tmp_path, "") as server, RemotingClient(server.address) as client:
        (broker,) = route(client, "TBW102")["brokerDatas"]
        assert (broker["cluster"], broker["brokerName"]) == ("DefaultCluster", "broker-a")


def test_the_port_and_the_address(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "rmqstore.serve")
    with rmqstore.serve() as other:  # on a port that is in use then
        text = f"listenPort={other.gateway.settings.port}\nbrokerIP1=127.0.0.1\n"
        with pytest.raises(OSError, match="in use") as raised:
            served(tmp_path, text)
        assert raised.value.filename == other.address
    conf = tmp_path / "broker.conf"
    settings = [serving.served("x", config=conf, port=port)[1] for port in (0, 77)]
    assert [one.port for one in settings] == [other.gateway.settings.port, 77]
    assert [one.own_host for one in settings] == ["127.0.0.1"] * 2
    assert "brokerIP1" not in caplog.text
    with served(tmp_path, "brokerIP1=192.0.2.9\n") as server:
        assert server.address.startswith("127.0.0.1:")  # nobody could connect to that one
    assert "brokerIP1 is not told to clients: only 127.0.0.1 is listened on" in caplog.text
    with served(tmp_path, "brokerIP1=192.0.2.9\n", listen="0.0.0.0") as server:
        own = server.gateway.settings.port
        assert server.address == f"192.0.2.9:{own}"
        with RemotingClient(f"127.0.0.1:{own}") as client:
            (broker,) = route(client, "TBW102")["brokerDatas"]
            assert broker["brokerAddrs"] == {"0": f"192.0.2.9:{own}"}
    options = {"listen": "0.0.0.0", "advertise": "192.0.2.10:77"}
    with served(tmp_path, "brokerIP1=192.0.2.9\n", **options) as server:
        assert server.address == "192.0.2.10:77"


def test_what_clients_may_make(tmp_path: Path) -> None:
    text = "autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false\n"
    with served(tmp_path, text) as server, RemotingClient(server.address) as client:
        assert client.ask(310, SEND, b"x").code == 17
        pull = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "queueOffset": 0,
                "maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
                "subVersion": 0, "subscription": "*"}  # fmt: skip
        assert client.ask(11, pull).code == 26
        settings = client.ask(26).body.decode().splitlines()
        assert "autoCreateSubscriptionGroup=false" in settings
        assert "autoCreateTopicEnable=false" in settings
    server = served(tmp_path, "autoCreateTopicEnable=true\n", auto_create=False)
    with server, RemotingClient(server.address) as client:
        assert client.ask(310, SEND, b"x").code == 17


def test_queues_of_the_default_topic(tmp_path: Path) -> None:
    server = served(tmp_path, "defaultTopicQueueNums=12\n")
    with server, RemotingClient(server.address) as client:
        assert route(client, "TBW102")["queueDatas"][0]["readQueueNums"] == 12
        assert client.ask(310, SEND, b"x").code == 0
        assert route(client, "orders")["queueDatas"][0]["writeQueueNums"] == 12


@pytest.mark.parametrize("name", ["RMQ_SYS_TRACE_TOPIC", "traces"])
def test_the_topic_of_traces(tmp_path: Path, name: str) -> None:
    text = f"traceTopicEnable=true\nmsgTraceTopicName={name}\n"
    with served(tmp_path, text) as server, RemotingClient(server.address) as client:
        assert route(client, name)["queueDatas"][0]["writeQueueNums"] == 1
        assert client.ask(305).json["topicList"].count(name) == 1
        changed = client.ask(215, {"topic": name})
        assert "conflict with system topic" in (changed.remark or "")
        assert "traceTopicEnable=true" in client.ask(26).body.decode().splitlines()


def test_filters(tmp_path: Path) -> None:
    refused = "The broker does not support consumer to filter message by SQL92"
    with served(tmp_path, "enablePropertyFilter=false\n") as server:
        server.store.create_topic("orders")
        with RemotingClient(server.address) as client:
            answer = client.ask(46, None, subscribed("SQL92"))
            assert (answer.code, answer.remark) == (1, refused)
            assert client.ask(46, None, subscribed("TAG")).code == 0
            pull = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "queueOffset": 0,
                    "maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
                    "subVersion": 0, "subscription": "a = 1",
                    "expressionType": "SQL92"}  # fmt: skip
            answer = client.ask(11, pull)
            assert (answer.code, answer.remark) == (1, refused)
            one = json.loads(subscribed("SQL92"))["subscriptionData"]
            consumer = {"groupName": "g", "subscriptionDataSet": [one]}
            beat = json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()
            assert client.ask(34, None, beat).code == 0
            answer = client.ask(11, {**pull, "sysFlag": 0})
            assert (answer.code, answer.remark) == (1, refused)
            assert client.ask(11, {**pull, "subscription": "*", "expressionType": "TAG"}).code == 19
    with served(tmp_path, "") as server, RemotingClient(server.address) as client:
        assert client.ask(46, None, subscribed("SQL92")).code == 0


def test_limits(tmp_path: Path) -> None:
    text = "maxMessageSize=2000\nserverChannelMaxIdleTimeSeconds=7\n"
    with served(tmp_path, text) as server, RemotingClient(server.address) as client:
        assert client.ask(310, SEND, bytes(1000)).code == 0
        assert client.ask(310, SEND, bytes(3000)).code == 13
        assert server.gateway.settings.limits.idle_seconds == 7
        assert "serverChannelMaxIdleTimeSeconds=7" in client.ask(26).body.decode().splitlines()


def test_accounts_that_are_wanted_and_not_given(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "rmqstore.serve"), served(tmp_path, "aclEnable=true\n"):
        assert "aclEnable has no effect without the file of the accounts" in caplog.text


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("brokerName=a b", "brokerName is 'a b', must be 1 to 115 characters"),
        ('brokerClusterName=a"b', "brokerClusterName is"),
        ("regionId=x\\u0001y", "regionId is"),
        ("listenPort=0", "listenPort is 0, must be 1 to 65535"),
        ("listenPort=x", "listenPort is 'x', must be a whole number"),
        ("brokerIP1=a/b", "brokerIP1 is"),
        ("autoCreateTopicEnable=yes", "autoCreateTopicEnable is 'yes', must be true or false"),
        ("msgTraceTopicName=../x", "msgTraceTopicName is"),
    ],
)
def test_values_that_are_none(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(ValueError, match="line 3: ") as raised:
        served(tmp_path, line)
    assert says in str(raised.value)
    assert not (tmp_path / "store").exists()


def test_keys_that_are_none(tmp_path: Path) -> None:
    with pytest.warns(RmqStoreWarning, match="'brokerNam' is no key .* perhaps brokerName"):
        served(tmp_path, "brokerNam=x\n").close()
