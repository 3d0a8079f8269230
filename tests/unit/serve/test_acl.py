"""Accounts: what a signature opens, and what stays closed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore.serve.accounts.addresses import AddressRule
from rmqstore.serve.server import Server
from rmqstore.serve.wire.codes import RequestCode
from support.remoting import RemotingClient
from support.signing import signed

pytestmark = pytest.mark.pure

ACCOUNTS = """
globalWhiteRemoteAddresses:
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      - groupA=DENY
      - groupB=PUB|SUB
  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    admin: true
"""
EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
SEND = {"a": "g", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": ""}


@pytest.fixture
def accounts(tmp_path: Path) -> Path:
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS)
    return path


@pytest.fixture
def server(tmp_path: Path, accounts: Path) -> Iterator[Server]:
    with rmqstore.serve(tmp_path / "store", acl=accounts) as made:
        made.store.create_topic("topicB")
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def test_a_signed_message_is_stored(server: Server, client: RemotingClient) -> None:
    assert signed(client, 310, {**SEND, "b": "topicB"}, b"body \xff").code == 0
    assert [message.body for message in server.store.scan()] == [b"body \xff"]


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({}, "No accessKey is configured"),
        ({"AccessKey": "nobody"}, "No acl config for nobody"),
        ({"AccessKey": "RocketMQ"}, "Check signature failed for accessKey=RocketMQ"),
        ({"AccessKey": "RocketMQ", "Signature": "\xe4"},
         "Check signature failed for accessKey=RocketMQ"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("code", [310, 320, 105, 11, 34, 28])
def test_without_a_signature(
    server: Server, client: RemotingClient, code: int, fields: dict[str, object], remark: str
) -> None:
    answer = client.ask(code, {**SEND, "b": "topicB", "topic": "topicB", **fields})
    assert (answer.code, answer.remark) == (1, EXCEPTION + remark)
    assert list(server.store.scan()) == []


def test_another_body_is_not_signed(client: RemotingClient) -> None:
    assert signed(client, 310, {**SEND, "b": "topicB"}, b"", secret="12345679").code == 1


def heartbeat(group: str, topic: str) -> bytes:
    subscription = {"topic": topic, "subString": "*", "subVersion": 1}
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription],
    }  # fmt: skip
    return json.dumps(
        {"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": []}
    ).encode()


@pytest.mark.parametrize(
    ("code", "fields", "body", "remark"),
    [
        (310, {**SEND, "b": "topicC"}, b"", "No default permission for topic:topicC"),
        (320, {**SEND, "b": "topicC", "m": "true"}, b"", "No default permission for topic:topicC"),
        (310, {**SEND, "b": "topicA"}, b"", "No default permission for topic:topicA"),
        (310, {**SEND, "b": "%RETRY%groupA"}, b"", "No default permission for group:groupA"),
        (11, {"topic": "topicB", "consumerGroup": "groupA"}, b"",
         "No default permission for group:groupA"),
        (11, {"topic": "topicA", "consumerGroup": "groupB"}, b"",
         "No default permission for topic:topicA"),
        (34, {}, heartbeat("groupA", "topicB"), "No default permission for group:groupA"),
        (34, {}, heartbeat("groupB", "other"), "No default permission for topic:other"),
        *((code, {"topic": name, "consumerGroup": "groupB"}, b"",
           f"No default permission for topic:{name}")
          for code in (11, 12, 14, 29, 202) for name in ("a.b", " ", "a@b")),
        (17, {"topic": "topicB"}, b"",
         "Need admin permission for request code=17, but accessKey=RocketMQ is not"),
    ],
)  # fmt: skip
def test_what_an_account_may_not(
    client: RemotingClient, code: int, fields: dict[str, object], body: bytes, remark: str
) -> None:
    answer = signed(client, code, fields, body)
    assert (answer.code, answer.remark) == (1, EXCEPTION + remark)


def test_what_it_may(client: RemotingClient) -> None:
    assert signed(client, 34, {}, heartbeat("groupB", "topicB")).code == 0
    assert signed(client, 105, {"topic": "topicB"}).code == 0
    listed = signed(client, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "groupB"})
    assert listed.json == {"consumerIdList": ["c"]}
    made = {
        "topic": "made", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1,
        "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    assert signed(client, 17, made, key="rocketmq2").code == 0


def stored(server: Server, topic: str, body: bytes) -> int:
    server.store.create_topic(topic)
    return server.store.put(topic, body).physical_offset


def test_a_message_that_is_named_by_its_place(server: Server, client: RemotingClient) -> None:
    """A request that does not name the topic opens no other one."""
    denied = EXCEPTION + "No default permission for topic:topicA"
    secret = stored(server, "topicA", b"secret")
    own = stored(server, "topicC", b"own")
    for code, fields in (
        (33, {}),
        (36, {"group": "groupB", "delayLevel": -1, "maxReconsumeTimes": 16}),
    ):
        answer = signed(client, code, {**fields, "offset": secret})
        assert (answer.code, answer.remark, answer.body) == (1, denied, b"")
        assert signed(client, code, {**fields, "offset": own}).code == 0
    assert b"secret" in signed(client, 33, {"offset": secret}, key="rocketmq2").body
    assert [one.body for one in server.store["%DLQ%groupB"].messages()] == [b"own"]
    later = {**SEND, "i": "DELAY\x0118", "b": "topicA", "c": ""}
    waiting = signed(client, 310, later, b"later", key="rocketmq2").fields
    assert waiting is not None
    answer = signed(client, 33, {"offset": int(waiting["msgId"][-16:], 16)})
    assert (answer.code, answer.remark) == (1, denied)


def test_a_transaction_is_ended_by_who_may_write(server: Server, client: RemotingClient) -> None:
    half = {**SEND, "a": "p", "f": 4, "i": "TRAN_MSG\1true\2PGROUP\1p\2UNIQ_KEY\1k", "c": ""}
    for topic, committed in (("topicC", 0), ("topicB", 1)):
        stored(server, topic, b"plain")
        sent = signed(client, 310, {**half, "b": topic}, b"half", key="rocketmq2").fields
        assert sent is not None
        end = {
            "producerGroup": "p", "tranStateTableOffset": sent["queueOffset"],
            "commitLogOffset": int(sent["msgId"][-16:], 16), "commitOrRollback": 8,
            "fromTransactionCheck": "false", "msgId": "k", "transactionId": "k",
        }  # fmt: skip
        assert signed(client, 37, end).code == 1 - committed
        bodies = [one.body for one in server.store[topic].messages()]
        assert bodies.count(b"half") == committed


def test_the_file_is_read_again(
    server: Server, client: RemotingClient, accounts: Path, caplog: pytest.LogCaptureFixture
) -> None:
    acl = server.gateway.settings.acl
    assert acl is not None
    for text, code in (("accounts: [", 0), (ACCOUNTS.replace("12345678", "87654321"), 1)):
        accounts.write_text(text)
        os.utime(accounts, ns=(code + 1, code + 1))
        server.in_loop(setattr, acl, "_looked", float("-inf"))
        assert signed(client, 105, {"topic": "topicB"}).code == code
    assert "the accounts stay as they were" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("accounts: [", "while parsing"),
        ("- a", "it holds list, must be a mapping"),
        ("{}", "neither accounts nor"),
        ("accounts: 5", "accounts is int"),
        ("accounts: [{accessKey: abcdef, secretKey: '1234567'}]", "at least 7 characters"),
        ("accounts: [{accessKey: abcdefg, secretKey: '123456'}]", "at least 7 characters"),
        ("accounts: [{accessKey: abcdefg, secretKey: '12345678', admin: maybe}]",
         "admin is 'maybe'"),
        ("accounts: [{accessKey: abcdefg, secretKey: '12345678', topicPerms: [t]}]", "has 't'"),
        ("accounts: [{accessKey: abcdefg, secretKey: '12345678', defaultTopicPerm: ALL}]",
         "a permission is 'ALL'"),
        ("globalWhiteRemoteAddresses: [1.2.3]", "address '1.2.3' must be one"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as raised:
        rmqstore.serve(acl=path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("rule", "inside", "outside"),
    [
        ("", [], ["127.0.0.1"]),
        ("*", ["127.0.0.1", "::1"], []),
        ("127.0.0.1", ["127.0.0.1", "::ffff:127.0.0.1"], ["127.0.0.2", "::1", "x"]),
        ("1.2.3.4,1.2.3.6", ["1.2.3.4", "1.2.3.6"], ["1.2.3.5"]),
        ("1.2.3.{4,6}", ["1.2.3.4", "1.2.3.6"], ["1.2.3.5"]),
        ("1.2.3.*", ["1.2.3.0", "1.2.3.255"], ["1.2.4.0"]),
        ("1.2.3-5.*", ["1.2.3.1", "1.2.5.9"], ["1.2.6.1", "1.2.2.1"]),
        ("1.2.3.4-6", ["1.2.3.5"], ["1.2.3.7"]),
        ("1050::5:600:300c:326b", ["1050:0:0:0:5:600:300c:326b"], ["1050::5:600:300c:326c"]),
        ("1:2:3:4:5:6:7:0-ff", ["1:2:3:4:5:6:7:8"], ["1:2:3:4:5:6:7:100"]),
    ],
)
def test_rules_for_addresses(rule: str, inside: list[str], outside: list[str]) -> None:
    made = AddressRule(rule)
    assert [host for host in inside + outside if made.matches(host)] == inside
