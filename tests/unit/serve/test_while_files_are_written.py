"""A file that is being written, and a topic that is being deleted: the loop waits for neither."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.brokerfiles.offsets import OffsetTable
from rmqstore.serve.server import Server
from support.gates import Gate
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat

pytestmark = pytest.mark.pure

Fields = dict[str, object]
SEND: Fields = {"a": "p", "b": "there", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1",
                "h": "0", "i": "", "j": "0", "k": "false", "m": "false"}  # fmt: skip
TOPIC: Fields = {"topic": "made", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
PULL: Fields = {"topic": "there", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*",
        "consumerGroup": "pulls"}  # fmt: skip
GROUP = json.dumps({"groupName": "made", "retryMaxTimes": 3}).encode()

WRITES: dict[str, tuple[str, int, Fields | None, bytes]] = {
    "topic": ("topics.json", 17, TOPIC, b""),
    "topic made by a send": ("topics.json", 310, SEND | {"b": "made"}, b"x"),
    "topic deleted": ("topics.json", 215, {"topic": "old"}, b""),
    "offsets of a deleted topic": ("consumerOffset.json", 215, {"topic": "old"}, b""),
    "note of a deleted topic": ("rmqstore-deleted.json", 215, {"topic": "old"}, b""),
    "order": ("topics.json", 100,
              {"namespace": "ORDER_TOPIC_CONFIG", "key": "old", "value": "broker-a:1"}, b""),
    "group": ("subscriptionGroup.json", 200, None, GROUP),
    "group deleted": ("subscriptionGroup.json", 207, {"groupName": "old"}, b""),
    "offsets of a group": ("consumerOffset.json", 207,
                           {"groupName": "old", "removeOffset": "true"}, b""),
    "group given back by": ("topics.json", 36, {"offset": 0, "group": "made", "delayLevel": -1,
                                                "originTopic": "there"}, b""),
}  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    config = rmqstore.StoreConfig.small()
    with rmqstore.serve(tmp_path / "store", config=config) as made:
        made.store.put("there", b"1", queue_id=0)
        made.store.put("old", b"1", queue_id=0)
        made.store.create_group("old")
        made.store._progress.commit("old", "old", 0, 1)
        yield made


@pytest.mark.parametrize("written", WRITES)
def test_new_groups_and_lists_of_others_do_not_wait(
    server: Server, monkeypatch: pytest.MonkeyPatch, written: str,
    wait_until: Callable[..., None],
) -> None:  # fmt: skip
    file, code, fields, body = WRITES[written]
    gate = Gate(monkeypatch, file)
    gate.close()
    beat = heartbeat("c", [consumer("beats", {"there": "*"})])
    with RemotingClient(server.address) as client, RemotingClient(server.address) as other:
        asked = client.send(code, fields, body)
        assert gate.reached.wait(60)
        for number in (
            other.send(34, None, beat),
            other.send(11, PULL),
            other.send(310, SEND, b"2"),
            other.send(15, {"topic": "there", "queueId": 0, "commitOffset": 1,
                            "consumerGroup": "beats"}),
            other.send(21),
            other.send(201),
            other.send(43),
        ):  # fmt: skip
            assert other.answer(number).code == 0
        gate.open.set()
        answer = client.answer(asked)
        assert answer.code == 0, answer
    store = server.store
    wait_until(lambda: store._registry.get("%RETRY%beats") is not None)
    config = Path(store.path, "config")

    def is_written(name: str, *texts: str) -> bool:
        path = config / name
        return path.exists() and all(f'"{text}"' in path.read_text() for text in texts)

    wait_until(lambda: is_written("subscriptionGroup.json", "beats", "pulls"))
    wait_until(lambda: is_written("topics.json", "%RETRY%beats"))
    assert is_written("subscriptionGroup.json", "made") is (code in (200, 36))
    assert ("old" in store.topics) is (code != 215)
    assert ("old" in store._groups._table) is (code != 207)


def test_a_group_is_as_it_was_where_the_file_cannot_be_written(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, "subscriptionGroup.json")
    gate.error = OSError(28, "No space left on device", "subscriptionGroup.json")
    before = server.store._groups.get("old")
    changed = json.dumps({"groupName": "old", "retryMaxTimes": 3}).encode()
    with RemotingClient(server.address) as client:
        for code, body in ((200, GROUP), (200, changed), (207, b"")):
            answer = client.ask(code, {"groupName": "old"}, body)
            assert answer.remark == "OSError: No space left on device"
        assert server.store._groups.get("made") is None
        assert server.store._groups.get("old") is before
        gate.error = None
        assert client.ask(207, {"groupName": "missing"}).code == 0
        assert gate.writes == 3
        assert client.ask(200, None, changed).code == 0
        assert client.ask(207, {"groupName": "old"}).code == 0
    assert server.store._groups.get("old") is None


def test_commits_do_not_wait_for_the_text_of_the_offsets(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be 200,000 offsets, whose text takes a third of a second."""
    reached, go_on = threading.Event(), threading.Event()
    to_json = OffsetTable.to_json

    def slow(table: OffsetTable, *args: Any) -> Any:
        reached.set()
        assert go_on.wait(60)
        return to_json(table, *args)

    monkeypatch.setattr(OffsetTable, "to_json", slow)
    commit: Fields = {"topic": "there", "queueId": 0, "consumerGroup": "old", "commitOffset": 1}
    with RemotingClient(server.address) as client:
        assert client.ask(15, commit).code == 0
        saving = threading.Thread(target=server.store._progress.save)
        saving.start()
        assert reached.wait(60)
        assert client.ask(15, commit | {"commitOffset": 0}).code == 0
        assert client.ask(14, {**commit}).code == 0
        go_on.set()
        saving.join(60)
        assert server.store._progress.save()
    assert OffsetTable.load(server.store.path).offsets["there", "old"] == {0: 0}


def test_who_deletes_a_group_as_well_waits_until_that_is_written(
    server: Server, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    """Else it would be told of what fails for the first one."""
    gate = Gate(monkeypatch, "subscriptionGroup.json")
    gate.error = OSError(28, "No space left on device", "subscriptionGroup.json")
    gate.close()
    with RemotingClient(server.address) as client, RemotingClient(server.address) as other:
        asked = client.send(207, {"groupName": "old"})
        assert gate.reached.wait(60)
        as_well = other.send(207, {"groupName": "old"})
        changes = server.gateway.pools._changes
        wait_until(lambda: server.gateway.requests[207] == 2 and changes._free == 14)
        gate.open.set()
        assert [client.answer(asked).code, other.answer(as_well).code] == [1, 1]
    assert server.store._groups.get("old") is not None
