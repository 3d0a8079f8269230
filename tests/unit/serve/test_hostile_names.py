"""Names of topics and groups that would leave the store's directory, in every request there is."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.files import paths
from rmqstore.serve.server import Server
from rmqstore.serve.wire.codes import RequestCode
from support.remoting import Frame, RemotingClient

SMALL = rmqstore.StoreConfig.small()
SEND = RequestCode.SEND_MESSAGE_V2
HOSTILE = [
    "../../x",
    "%RETRY%../x",
    "%RETRY%../../../x",
    "%DLQ%../x",
    "%LMQ%../x",
    "sub/../../../x",
    "/tmp/rmqstore-hostile",
    "..",
    ".",
    "x" * 300,
    "%RETRY%" + "x" * 121,
    "a\x00b",
    "a\nb\x01c\x02d",
    "a@b",
    "",
    " ",
    "\ud800",
    "a\udfff\ud83d",
    "\u00e9",
    "a\\..\\b",
]
TOPICS = ("topic", "b", "c", "defaultTopic", "originTopic", "topicName", "key", "originMsgId")
GROUPS = ("group", "consumerGroup", "producerGroup", "a", "groupName", "srcGroup", "destGroup",
          "originGroup", "namespace", "clientId", "clientID", "clientHost", "clientAddr",
          "brokerName", "cluster", "statsName", "statsKey", "subscription",
          "defaultTopicName", "compareGroup", "consumerId", "value", "n")  # fmt: skip
OTHERS = {
    "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "j": 0, "k": "false", "m": "false",
    "defaultTopicQueueNums": 4, "queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0,
    "reconsumeTimes": 0, "unitMode": "false", "batch": "false", "queueOffset": 0, "maxMsgNums": 1,
    "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "expressionType": "TAG",
    "offset": 0, "delayLevel": 0, "maxReconsumeTimes": 16, "timestamp": 0, "maxNum": 1,
    "beginTimestamp": 0, "endTimestamp": 1 << 60, "isForce": "true", "isC": "false",
    "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0, "order": "false", "index": 0, "count": 1, "msgId": "AC" * 16,
    "tranStateTableOffset": 0, "commitLogOffset": 0, "commitOrRollback": 8,
    "fromTransactionCheck": "false", "transactionId": "AC" * 16, "isOrder": "true",
    "removeOffset": "true", "cleanOffset": "true", "jstackEnable": "false", "offline": "true",
}  # fmt: skip


def bodies(topic: str, group: str) -> Iterator[bytes]:
    """Return the bodies in which requests have names; each is sent with every code."""
    queue = {"brokerName": "broker-a", "queueId": 0, "topic": topic}
    subscription = {"topic": topic, "subString": "*", "subVersion": 1}
    for value in (
        {
            "clientID": "hostile", "producerDataSet": [{"groupName": group}],
            "consumerDataSet": [{"groupName": group, "subscriptionDataSet": [subscription]}],
            "consumerGroup": group, "clientId": "hostile", "mqSet": [queue],
            "group": group, "topic": topic, "subscriptionData": subscription,
        },
        {
            "groupName": group, "topicName": topic, "consumeEnable": True, "retryQueueNums": 1,
            "offsetTable": {}, "perm": 6, "readQueueNums": 1, "writeQueueNums": 1,
        },
    ):  # fmt: skip
        yield json.dumps(value).encode()


def properties(topic: str, group: str) -> str:
    """Return properties of a message that name topics and groups."""
    names = {"REAL_TOPIC": topic, "RETRY_TOPIC": topic, "PGROUP": group, "REPLY_TO_CLIENT": group,
             "INNER_MULTI_DISPATCH": topic, "INNER_MULTI_QUEUE_OFFSET": "0", "CLUSTER": group,
             "KEYS": topic, "TAGS": group, "UNIQ_KEY": topic, "REAL_QID": "0"}  # fmt: skip
    return "".join(f"{name}\x01{value}\x02" for name, value in names.items())


def requests(code: int) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Return fields and bodies of requests with hostile names, one at a time and together."""
    for name in HOSTILE:
        for topic, group in ((name, "good-group"), ("orders", name), (name, name)):
            fields: dict[str, Any] = {
                **OTHERS, **dict.fromkeys(TOPICS, topic), **dict.fromkeys(GROUPS, group)
            }  # fmt: skip
            if code == RequestCode.CONSUMER_SEND_MSG_BACK:
                fields["delayLevel"] = -1
            if code == RequestCode.PULL_MESSAGE:
                fields["subscription"] = "*"
            for body in bodies(topic, group):
                yield fields, body
        # A good topic; the names are in the message's properties.
        for sys_flag in (0, 4):  # and of a half message
            yield {**OTHERS, **dict.fromkeys(TOPICS, "orders"), **dict.fromkeys(GROUPS, "p"),
                   "f": sys_flag, "sysFlag": sys_flag, "i": properties(name, name),
                   "properties": properties(name, name)}, b"body"  # fmt: skip


def talk(server: Server, code: int) -> list[Frame]:
    """Send all requests of a code, over as many connections as it takes; return the answers."""
    answers = []
    left = list(requests(code))
    while left:
        with RemotingClient(server.address) as client:
            asked = []
            for fields, body in left[:32]:
                asked.append(client.send(code, fields, body))
            for one in asked:
                try:
                    answers.append(client.answer(one))
                except ConnectionError:  # closed: the rest is sent again, but for this one
                    left = left[1:]
                    break
                left = left[1:]
    return answers


def outside(root: Path, store: Path) -> set[str]:
    """Return all files and directories that are not the store's."""
    return {str(one) for one in root.rglob("*") if not one.is_relative_to(store)}


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged of errors that nobody has handled."""
    return [
        one.getMessage() for one in caplog.records if one.exc_info or one.levelno >= logging.ERROR
    ]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    with rmqstore.serve(root / "a" / "b" / "c" / "store", config=SMALL) as server:
        server.store.put("orders", b"first")
        yield server


def check_store(
    server: Server, root: Path, before: set[str], code: int, wait_until: Callable[..., None]
) -> None:
    """Check that nothing is outside, all names are good, and messages still arrive."""
    store = Path(server.store.path)
    assert outside(root, store) == before
    assert not Path("/tmp/rmqstore-hostile").exists()
    topics = [one.name for one in (store / "consumequeue").iterdir()]
    for name in (*topics, *(one.topic_name for one in server.store.registry)):
        assert paths.is_topic_name(name), name
    for one in server.store.group_entries:
        assert paths.is_group_name(one.group_name), one.group_name
    with RemotingClient(server.address) as client:
        sent = client.ask(
            SEND, {"a": "p", "b": f"later-{code}", "c": "TBW102", "d": 4, "e": 0, "f": 0,
                   "g": 1, "h": 0, "i": "", "j": 0, "k": "false", "m": "false"}, b"seen",
        )  # fmt: skip
        assert sent.code == 0, sent.remark
    wait_until(lambda: server.store.get(f"later-{code}", 0, 0).messages)
    assert server.store.get(f"later-{code}", 0, 0).messages[0].body == b"seen"


@pytest.mark.parametrize("code", sorted(RequestCode), ids=lambda code: RequestCode(code).name)
def test_hostile_names(
    server: Server, root: Path, code: int, caplog: pytest.LogCaptureFixture,
    wait_until: Callable[..., None],
) -> None:  # fmt: skip
    before = outside(root, Path(server.store.path))
    answers = talk(server, code)
    assert len(answers) <= len(list(requests(code)))
    check_store(server, root, before, code, wait_until)
    assert failures(caplog) == []


def test_the_store_is_good_afterwards(root: Path, wait_until: Callable[..., None]) -> None:
    path = root / "again"
    with rmqstore.serve(path, config=SMALL) as server:
        for code in (
            SEND,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.HEART_BEAT,
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            RequestCode.UPDATE_CONSUMER_OFFSET,
        ):
            talk(server, code)
    with rmqstore.serve(path, config=SMALL) as server:
        assert server.store.recovery.clean
        check_store(server, root, outside(root, path), 0, wait_until)
