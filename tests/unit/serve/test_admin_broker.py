"""The broker's figures, settings and rates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from rmqstore.config.reasons import MEANINGLESS, REFUSED
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.figures.rates import Rates, Span
from rmqstore.serve.settings import Settings
from support.remoting import RemotingClient

pytestmark = pytest.mark.pure


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(None, Settings(), StoreConfig.small()) as made:
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def in_loop(server: Server, call: Callable[[], object]) -> object:
    """Call a function in the gateway's loop, which alone may touch its state."""

    async def called() -> object:
        return call()

    return asyncio.run_coroutine_threadsafe(called(), server.gateway.work.loop).result(60)


def put(server: Server, topic: str, count: int) -> int:
    """Put messages and wait until they are dispatched; return their bytes."""
    results = [server.store.put(topic, b"x" * 100) for _ in range(count)]
    until = time.monotonic() + 60
    while time.monotonic() < until:
        figures = server.store.stats()
        if figures["dispatched_position"] == figures["wrote_position"]:
            break
        time.sleep(0.001)
    return sum(server.store.at(result.physical_offset).store_size for result in results)


def test_figures(server: Server, client: RemotingClient) -> None:
    size = put(server, "orders", 7)
    server.store.get("orders", 0, 0, 7)
    table = client.ask(28).json["table"]
    assert all(isinstance(value, str) for value in table.values())
    assert table["brokerVersionDesc"] == "V4_9_3"
    assert table["msgPutTotalTodayNow"] == table["putMessageTimesTotal"] == "7"
    assert table["putMessageSizeTotal"] == table["commitLogMaxOffset"] == str(size)
    assert table["msgPutTotalTodayMorning"] == table["msgPutTotalYesterdayMorning"] == "0"
    assert 0 < int(table["msgGetTotalTodayNow"]) <= 7
    assert float(table["putTps"].split(" ")[0]) >= 0
    assert len(table["putTps"].split(" ")) == len(table["getTransferedTps"].split(" ")) == 3
    assert 0 <= float(table["commitLogDiskRatio"]) <= 1
    assert table["remainHowManyDataToFlush"].endswith("B")
    assert table["commitLogDirCapacity"].startswith("Total : ")
    assert int(table["earliestMessageTimeStamp"]) == server.store["orders"][0][0].store_timestamp


def test_settings(server: Server, client: RemotingClient) -> None:
    answer = client.ask(26)
    assert '"counter": 0' in (answer.fields or {})["version"]
    settings = dict(line.split("=", 1) for line in answer.body.decode().splitlines())
    assert settings["brokerName"] == "broker-a"
    assert settings["storePathRootDir"] == server.store.path
    assert settings["mappedFileSizeCommitLog"] == str(16 << 20)
    assert settings["autoCreateTopicEnable"] == "true"
    assert settings["aclEnable"] == "false"
    assert not {"", "compressAbove", "recordChecksum"} & set(settings)
    of_tables = {key: default for key, (default, _) in (MEANINGLESS | REFUSED).items() if default}
    of_tables["isEnableBatchPush"] = of_tables.pop("enableBatchPush")
    assert settings.items() >= of_tables.items()
    port = server.address.rpartition(":")[2]
    assert settings["listenPort"] == port


def test_messages_put_are_counted_by_topic(server: Server, client: RemotingClient) -> None:
    asked: dict[str, object] = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "orders"}
    missing = client.ask(315, asked)
    assert (missing.code, missing.remark) == (1, "The stats <TOPIC_PUT_NUMS> <orders> not exist")
    size = put(server, "orders", 7)
    zero = {"avgpt": 0.0, "sum": 0, "tps": 0.0}
    assert client.ask(315, asked).json == dict.fromkeys(
        ("statsDay", "statsHour", "statsMinute"), zero
    )
    in_loop(server, server.gateway.rates.sample_seconds)
    body = client.ask(315, asked).json
    assert body["statsMinute"] == {"avgpt": 1.0, "sum": 7, "tps": 0.7}
    assert body["statsHour"] == body["statsDay"] == zero
    in_loop(server, server.gateway.rates.sample_minutes)
    in_loop(server, server.gateway.rates.sample_hours)
    body = client.ask(315, {**asked, "statsName": "TOPIC_PUT_SIZE"}).json
    assert [body[name]["sum"] for name in ("statsMinute", "statsHour", "statsDay")] == [size] * 3
    of_broker = client.ask(
        315, {"statsName": "BROKER_PUT_NUMS", "statsKey": "DefaultCluster"}
    ).json  # fmt: skip
    assert of_broker["statsHour"]["sum"] == 7


def test_a_deleted_topic_has_no_rates(server: Server, client: RemotingClient) -> None:
    put(server, "orders", 2)
    asked: dict[str, object] = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "orders"}
    assert client.ask(315, asked).code == 0
    assert client.ask(215, {"topic": "orders"}).code == 0
    assert client.ask(315, asked).code == 1
    put(server, "orders", 3)
    assert client.ask(315, asked).code == 0
    in_loop(server, server.gateway.rates.sample_seconds)
    assert client.ask(315, asked).json["statsMinute"]["sum"] == 3


def test_what_groups_get_is_counted(server: Server, client: RemotingClient) -> None:
    rates = server.gateway.rates

    def count() -> None:
        rates.got("g", "orders", 3, 300)
        rates.got("g", "orders", 1, 100)
        rates.sent_back("g", "orders")
        rates.sample_seconds()

    in_loop(server, count)
    expected = {
        "GROUP_GET_NUMS": Span(4, 0.4, 2.0),
        "GROUP_GET_SIZE": Span(400, 40.0, 200.0),
        "SNDBCK_PUT_NUMS": Span(1, 0.1, 1.0),
    }
    for name, span in expected.items():
        body = client.ask(315, {"statsName": name, "statsKey": "orders@g"}).json
        assert body["statsMinute"] == span._asdict()
    server.store.create_topic("orders", 1)
    server.store.progress.commit("orders", "g", 0, 0)
    assert client.ask(208, {"consumerGroup": "g"}).body.startswith(b'{"consumeTps":0.4,')
    assert client.ask(207, {"groupName": "g"}).code == 0
    assert client.ask(315, {"statsName": "GROUP_GET_NUMS", "statsKey": "orders@g"}).code == 1


def test_counters_are_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqstore.serve.figures.rates._MAX_ITEMS", 3)
    rates: Rates = server.gateway.rates

    def count() -> int:
        for number in range(10):
            rates.got(f"g{number}", "orders", 1, 1)
        return sum(rates.spans("GROUP_GET_NUMS", f"orders@g{n}") is not None for n in range(10))

    assert in_loop(server, count) == 3


def test_a_minute_is_the_last_minute(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = server.gateway.rates
    now = 1_000_000

    def run() -> Span:
        nonlocal now
        for second in range(0, 200, 10):
            rates.got("g", "orders", second, 1)
            now += 10_000
            rates.sample_seconds()
        found = rates.spans("GROUP_GET_NUMS", "orders@g")
        assert found is not None
        return found[0]

    monkeypatch.setattr(rates, "_now", lambda: now)
    last_six = sum(range(140, 200, 10))
    assert in_loop(server, run) == Span(last_six, last_six / 60, last_six / 6)


def test_a_day_ends_at_midnight(server: Server, client: RemotingClient) -> None:
    put(server, "orders", 2)
    server.store.clock.advance(86_400)
    in_loop(server, server.gateway.rates.sample_seconds)
    put(server, "orders", 3)
    server.store.clock.advance(86_400)
    in_loop(server, server.gateway.rates.sample_seconds)
    put(server, "orders", 1)
    table = client.ask(28).json["table"]
    names = ("msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow")
    assert [table[name] for name in names] == ["2", "5", "6"]


def test_bad_requests(client: RemotingClient) -> None:
    assert client.ask(315).remark == "the custom field <statsName> is null"
    assert client.ask(315, {"statsName": "NOTHING", "statsKey": "x"}).code == 1
    assert client.ask(315, {"statsName": "../x", "statsKey": "../x"}).code == 1


def test_messages_given_back_are_counted(server: Server, client: RemotingClient) -> None:
    put(server, "orders", 1)
    fields: dict[str, object] = {"group": "g", "offset": 0, "delayLevel": 1}
    asked: dict[str, object] = {"statsName": "SNDBCK_PUT_NUMS", "statsKey": "orders@g"}
    assert client.ask(315, asked).code == 1
    assert client.ask(36, fields).code == 0
    assert client.ask(315, asked).code == 0
