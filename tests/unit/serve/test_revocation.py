"""A permission that is taken away reaches what waits: each is asked again, or ended at once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.serve.accounts import acl as accounts_file
from rmqstore.serve.accounts import changes
from rmqstore.serve.network.turns import ended
from rmqstore.serve.server import Server
from support.accounts import BEFORE, TAKEN, WHITE, Accounts
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat, wait_until
from support.signing import sign, signed
from support.turns import Clock

pytestmark = pytest.mark.pure

NO_PERMISSION, OK, REFUSED = 16, 0, 1
HEART_BEAT, PULL, SEND, REPLY, PUSH, QUERY, RUNNING_INFO = 34, 11, 310, 325, 326, 12, 307
LOCK, STATUS, DIRECTLY = 41, 202, 309
PULLED = {
    "consumerGroup": "g", "topic": "t", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32,
    "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 3_600_000, "subVersion": 0,
    "subscription": "*",
}  # fmt: skip
SENT = {
    "a": "shop", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
    "i": "", "j": "0", "k": "false", "m": "false",
}  # fmt: skip


@pytest.fixture
def accounts(tmp_path: Path) -> Accounts:
    return Accounts(tmp_path / "plain_acl.yml")


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes end nothing by themselves: what waits is asked when it is answered."""
    monkeypatch.setattr(changes.AccountChanges, "look", lambda self: None)


@pytest.fixture
def server(accounts: Accounts) -> Iterator[Server]:
    with rmqstore.serve(acl=accounts.path) as made:
        made.store.create_topic("t", queue_nums=1)
        accounts.server = made
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def ask(client: RemotingClient, code: int, fields: Any, body: bytes = b"") -> Any:
    return signed(client, code, fields, body, key="consumer")


def hold(server: Server, client: RemotingClient, **other: Any) -> int:
    """Send a pull that is held; return its number."""
    before = server.in_loop(lambda: len(server.gateway.holds))
    number = client.send(PULL, sign({**PULLED, **other}, b"", "consumer", "12345678"))
    wait_until(lambda: server.in_loop(lambda: len(server.gateway.holds)) == before + 1)
    return number


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("taken", TAKEN)
def test_a_held_pull_is_asked_again_when_a_message_has_come(
    server: Server, client: RemotingClient, accounts: Accounts, taken: str
) -> None:
    number = hold(server, client)
    accounts.change(TAKEN[taken])
    server.store.put("t", b"secret", queue_id=0)
    answer = client.answer(number)
    assert (answer.code, answer.body) == (NO_PERMISSION, b"")
    assert answer.remark is not None
    assert "no permission any more for topic:t, group:g" in answer.remark


@pytest.mark.long
@pytest.mark.usefixtures("quiet")
def test_a_held_pull_is_asked_again_when_its_time_is_over(
    server: Server, client: RemotingClient, accounts: Accounts
) -> None:
    number = hold(server, client, suspendTimeoutMillis=3000)
    accounts.change(TAKEN["the topic"])
    assert client.answer(number).code == NO_PERMISSION


@pytest.mark.parametrize("taken", TAKEN)
def test_a_change_ends_held_pulls(
    server: Server, client: RemotingClient, accounts: Accounts, taken: str
) -> None:
    """Those of the account alone, more than one turn of the loop has, and without a message."""
    with RemotingClient(server.address) as other:
        kept = other.send(PULL, sign({**PULLED, "consumerGroup": "g2"}, b"", "beside1", "12345678"))
        wait_until(lambda: server.in_loop(lambda: len(server.gateway.holds)) == 1)
        number = hold(server, client)
        fields = sign(PULLED, b"", "consumer", "12345678")
        more = [client.send(PULL, fields) for _ in range(600)]
        wait_until(lambda: server.in_loop(lambda: len(server.gateway.holds)) == 602)
        accounts.write(TAKEN[taken])
        assert {client.answer(one).code for one in (number, *more)} == {NO_PERMISSION}
        assert server.in_loop(lambda: len(server.gateway.holds)) == 1
        server.store.put("t", b"1", queue_id=0)
        assert other.answer(kept).code == OK


def test_a_change_that_takes_nothing_ends_nothing(
    server: Server, client: RemotingClient, accounts: Accounts
) -> None:
    number = hold(server, client)
    for text in (
        BEFORE.replace("new=PUB", "new=DENY"),
        "accounts: [",  # the accounts stay
        BEFORE.replace("t=PUB|SUB", "t=SUB"),
        BEFORE.replace("defaultTopicPerm: DENY", "admin: true"),
        WHITE + BEFORE,
    ):
        accounts.change(text)
        server.in_loop(server.gateway.holds.ask_again)
        assert server.in_loop(lambda: len(server.gateway.holds)) == 1
    server.store.put("t", b"1", queue_id=0)
    assert client.answer(number).code == OK


def test_an_address_that_must_sign_again(
    server: Server, client: RemotingClient, accounts: Accounts
) -> None:
    accounts.change(
        BEFORE.replace("accounts:", "globalWhiteRemoteAddresses: [127.0.0.1]\naccounts:", 1)
    )
    number = client.send(PULL, PULLED)
    wait_until(lambda: server.in_loop(lambda: len(server.gateway.holds)) == 1)
    accounts.write(BEFORE)
    assert client.answer(number).code == NO_PERMISSION


def test_an_account_that_must_sign_again(
    server: Server, client: RemotingClient, accounts: Accounts
) -> None:
    """It named its account, whose address was trusted: nobody has looked at a signature."""
    trusted = "    whiteRemoteAddress: 127.0.0.1\n    topicPerms: [t="
    accounts.change(BEFORE.replace("    topicPerms: [t=", trusted))
    number = client.send(PULL, {**PULLED, "AccessKey": "consumer"})
    wait_until(lambda: server.in_loop(lambda: len(server.gateway.holds)) == 1)
    accounts.write(BEFORE)
    assert client.answer(number).code == NO_PERMISSION


@pytest.mark.usefixtures("quiet")
def test_the_account_is_that_of_the_pull(
    server: Server, client: RemotingClient, accounts: Accounts
) -> None:
    """Not of the last request of its connection, which somebody else has signed."""
    number = hold(server, client)
    assert signed(client, 105, {"topic": "t"}, key="operator").code == OK
    accounts.change(TAKEN["the topic"])
    server.store.put("t", b"secret", queue_id=0)
    assert client.answer(number).code == NO_PERMISSION


def test_a_consumer_leaves_its_groups(
    server: Server, client: RemotingClient, accounts: Accounts
) -> None:
    """Its queues go to the others, who are told."""
    both = [consumer("g", {"t": "*"}), consumer("other", {"new2": "*"})]
    accounts.change(BEFORE.replace("new=PUB", "new=PUB, new2=SUB"))
    assert ask(client, HEART_BEAT, None, heartbeat("c1", both)).code == OK
    with RemotingClient(server.address) as second:
        beat = heartbeat("c2", [consumer("g", {"t": "*"})])
        assert signed(second, HEART_BEAT, None, beat, key="beside1").code == OK
        members = server.gateway.clients.groups
        assert len(members["g"].clients) == 2
        accounts.write(BEFORE.replace("new=PUB", "new=PUB, new2=SUB").replace("g=SUB", "g=DENY"))
        wait_until(lambda: server.in_loop(lambda: len(members["g"].clients)) == 1)
        assert [one.client_id for one in members["g"].clients.values()] == ["c2"]
        assert [one.client_id for one in members["other"].clients.values()] == ["c1"]
        assert second.next_request(40).fields == {"consumerGroup": "g"}


@pytest.mark.usefixtures("quiet")
def test_a_reply_is_stored_only_if_its_sender_may_still(
    server: Server, client: RemotingClient, accounts: Accounts
) -> None:
    with RemotingClient(server.address) as asker:
        beat = heartbeat("asker@1", producers=["p"])
        assert signed(asker, HEART_BEAT, None, beat, key="beside1").code == OK
        fields = {
            "producerGroup": "shop", "topic": "t", "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1",
            "flag": "0", "properties": "REPLY_TO_CLIENT\1asker@1\2", "reconsumeTimes": "0",
            "unitMode": "false", "batch": "false",
        }  # fmt: skip
        number = client.send(REPLY - 1, sign(fields, b"1", "consumer", "12345678"), b"1")
        pushed = asker.next_request(PUSH)
        accounts.change(BEFORE.replace("t=PUB|SUB", "t=SUB"))
        asker.reply(pushed)
        assert client.answer(number).code == REFUSED
        assert len(server.store["t"][0]) == 0


@pytest.mark.usefixtures("quiet")
def test_a_reply_is_not_pushed_to_an_account_that_is_gone(
    server: Server, client: RemotingClient, accounts: Accounts
) -> None:
    with RemotingClient(server.address) as replier:
        assert ask(client, HEART_BEAT, None, heartbeat("asker@1", producers=["p"])).code == OK
        accounts.change(TAKEN["the account"])
        fields = {**SENT, "i": "REPLY_TO_CLIENT\1asker@1\2"}
        answer = signed(replier, REPLY, fields, b"1", key="beside1")
        assert answer.code == REFUSED
        assert answer.remark is not None
        assert "not found" in answer.remark


@pytest.mark.usefixtures("quiet")
def test_what_a_consumer_answers_is_for_who_may_still_ask(
    server: Server, client: RemotingClient, accounts: Accounts
) -> None:
    with RemotingClient(server.address) as member:
        beat = heartbeat("m", [consumer("g", {"t": "*"})])
        assert signed(member, HEART_BEAT, None, beat, key="beside1").code == OK
        fields = {"consumerGroup": "g", "clientId": "m"}
        number = client.send(RUNNING_INFO, sign(fields, b"", "consumer", "12345678"))
        asked = member.next_request(RUNNING_INFO)
        accounts.change(TAKEN["the group"])
        member.reply(asked, body=b'{"properties":{}}')
        answer = client.answer(number)
        assert (answer.code, answer.body) == (REFUSED, b"")


@pytest.mark.usefixtures("quiet")
def test_a_query_is_asked_again(
    server: Server, client: RemotingClient, accounts: Accounts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    server.store.put("t", b"secret", queue_id=0, keys=["k"])
    begun, go_on = threading.Event(), threading.Event()
    locate = server.store.core.locate

    def slow(*arguments: Any, **options: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return locate(*arguments, **options)

    monkeypatch.setattr(server.store.core, "locate", slow)
    fields = {
        "topic": "t", "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": (1 << 62),
    }  # fmt: skip
    number = client.send(QUERY, sign(fields, b"", "consumer", "12345678"))
    assert begun.wait(60)
    accounts.change(TAKEN["the topic"])
    go_on.set()
    answer = client.answer(number)
    assert (answer.code, answer.body) == (REFUSED, b"")


@pytest.mark.usefixtures("quiet")
def test_a_send_that_waits_for_its_topic(
    server: Server, client: RemotingClient, accounts: Accounts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    begun, go_on = threading.Event(), threading.Event()
    enter = server.gateway.new_topics._enter

    def slow(entries: Any) -> None:
        begun.set()
        assert go_on.wait(60)
        enter(entries)

    monkeypatch.setattr(server.gateway.new_topics, "_enter", slow)
    number = client.send(SEND, sign({**SENT, "b": "new"}, b"1", "consumer", "12345678"), b"1")
    assert begun.wait(60)
    accounts.change(BEFORE.replace("new=PUB", "new=DENY"))
    go_on.set()
    assert client.answer(number).code == REFUSED
    assert list(server.store.scan()) == []


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("taken", ["the account", "the secret", "the topic"])
def test_a_check_goes_to_nobody_who_may_not_write_any_more(
    server: Server, client: RemotingClient, accounts: Accounts, taken: str
) -> None:
    now = server.store.clock.now()
    properties = "TRAN_MSG\1true\2PGROUP\1shop\2"
    fields = {**SENT, "f": "4", "g": now, "i": properties}
    assert ask(client, SEND, fields, b"half").code == OK
    assert ask(client, HEART_BEAT, None, heartbeat("c", producers=["shop"])).code == OK
    half = server.store.in_doubt()[0]

    def producer() -> object:
        return ended(server.gateway.transactions._producer("shop", half.message))

    assert server.in_loop(producer) is not None
    accounts.change(TAKEN[taken])
    assert server.in_loop(producer) is None


@pytest.mark.parametrize("taken", ["the topic", "the account", "the secret"])
def test_a_long_answer_that_is_being_built(
    server: Server, client: RemotingClient, accounts: Accounts, clock: Clock, taken: str
) -> None:
    """It waits, and is built in steps: each is of somebody who may still ask."""
    server.store.registry.change({"t": lambda there: TopicConfig("t", 4096, 4096)})
    with RemotingClient(server.address) as second:
        clock.stop_after(60)
        asked = [
            one.send(STATUS, sign({"topic": "t"}, b"", "consumer", "12345678"))
            for one in (client, second)
        ]
        assert clock.stopped.wait(20)
        accounts.write(TAKEN[taken])
        acl = server.gateway.settings.acl
        assert acl is not None
        acl._looked = float("-inf")
        acl.look()  # while the loop stands still
        clock.go_on()
        answers = [one.answer(number) for one, number in zip((client, second), asked, strict=True)]
    assert [(one.code, one.body) for one in answers] == [(REFUSED, b"")] * 2


def test_a_heartbeat_and_a_lock_end_with_the_permission(
    server: Server, client: RemotingClient, accounts: Accounts, clock: Clock
) -> None:
    server.store.registry.change({"t": lambda there: TopicConfig("t", 4096, 4096)})
    queues = [{"topic": "t", "brokerName": "broker-a", "queueId": n} for n in range(4096)]
    body = json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": queues}).encode()
    clock.stop_when(lambda: len(server.gateway.locks) > 100)
    asked = client.send(LOCK, sign(None, body, "consumer", "12345678"), body)
    assert clock.stopped.wait(20)
    accounts.write(TAKEN["the topic"])
    acl = server.gateway.settings.acl
    assert acl is not None
    acl._looked = float("-inf")
    acl.look()
    clock.go_on()
    assert client.answer(asked).code == REFUSED
    assert len(server.gateway.locks) < 200


@pytest.mark.parametrize("taken", TAKEN)
def test_locks_end_with_the_permission(
    server: Server, client: RemotingClient, accounts: Accounts, taken: str
) -> None:
    """Those of the account alone: others would wait for a minute until they expire."""

    def locked(asker: RemotingClient, who: str, queue_id: int, key: str) -> int:
        queue = {"topic": "t", "brokerName": "broker-a", "queueId": queue_id}
        body = {"consumerGroup": "g", "clientId": who, "mqSet": [queue]}
        answer = signed(asker, LOCK, None, json.dumps(body).encode(), key=key)
        assert answer.code == OK
        found: list[object] = json.loads(answer.body)["lockOKMQSet"]
        return len(found)

    server.store.create_topic("t", queue_nums=2)
    with RemotingClient(server.address) as other:
        assert locked(client, "c1", 0, "consumer") == 1
        assert locked(other, "c2", 1, "beside1") == 1
        assert locked(other, "c2", 0, "beside1") == 0
        accounts.write(TAKEN[taken])
        wait_until(lambda: server.in_loop(lambda: len(server.gateway.locks)) == 1)
        assert locked(other, "c2", 0, "beside1") == 1
        assert locked(other, "c3", 1, "beside1") == 0


def test_a_member_is_of_the_account_of_its_heartbeat(
    server: Server, client: RemotingClient, accounts: Accounts
) -> None:
    """Not of that which signed the last request of the connection."""
    with RemotingClient(server.address) as second:
        for one, key, after in ((client, "consumer", "operator"), (second, "beside1", "consumer")):
            beat = heartbeat(key, [consumer("g", {"t": "*"})], producers=["shop"])
            assert signed(one, HEART_BEAT, None, beat, key=key).code == OK
            assert signed(one, 105, {"topic": "t"}, key=after).code == OK
        members = server.gateway.clients.groups["g"].clients
        accounts.write(TAKEN["the topic"])
        wait_until(lambda: server.in_loop(lambda: len(members)) == 1)
        assert [one.client_id for one in members.values()] == ["beside1"]
        producers = server.gateway.clients.producer_groups["shop"]
        assert len(producers) == 2  # groups of producers need no permission, but an account
        accounts.write(TAKEN["the account"])
        wait_until(lambda: server.in_loop(lambda: len(producers)) == 1)
        assert [one.client_id for one in producers.values()] == ["beside1"]


def test_a_check_is_for_the_account_of_the_heartbeat(
    server: Server, client: RemotingClient, accounts: Accounts
) -> None:
    """Whoever joins the group could have somebody else's request, heard before, sign for it."""
    accounts.change(BEFORE.replace("t=PUB|SUB", "t=SUB"))
    fields = {**SENT, "f": "4", "g": server.store.clock.now()}
    fields["i"] = "TRAN_MSG\1true\2PGROUP\1shop\2"
    with RemotingClient(server.address) as writer:
        assert signed(writer, SEND, fields, b"half", key="beside1").code == OK
        half = server.store.in_doubt()[0].message
        assert half is not None
        assert ask(client, HEART_BEAT, None, heartbeat("c", producers=["shop"])).code == OK
        assert signed(client, 105, {"topic": "t"}, key="operator").code == OK
        find = server.gateway.transactions._producer
        assert server.in_loop(lambda: ended(find("shop", half))) is None
        beat = heartbeat("w", producers=["shop"])
        assert signed(writer, HEART_BEAT, None, beat, key="beside1").code == OK
        assert ask(writer, 105, {"topic": "t"}).code == OK
        assert server.in_loop(lambda: ended(find("shop", half))) is not None


@pytest.mark.usefixtures("quiet")
def test_a_reply_is_for_the_account_of_the_heartbeat(
    server: Server, client: RemotingClient, accounts: Accounts
) -> None:
    assert ask(client, HEART_BEAT, None, heartbeat("asker@1", producers=["p"])).code == OK
    assert signed(client, 105, {"topic": "t"}, key="operator").code == OK
    accounts.change(TAKEN["the account"])
    with RemotingClient(server.address) as replier:
        fields = {**SENT, "i": "REPLY_TO_CLIENT\1asker@1\2"}
        answer = signed(replier, REPLY, fields, b"1", key="beside1")
    assert answer.code == REFUSED
    assert answer.remark is not None
    assert "not found" in answer.remark


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("taken", ["the group", "the account", "the secret"])
def test_no_message_is_handed_to_a_consumer_that_may_not_read(
    server: Server, client: RemotingClient, accounts: Accounts, taken: str
) -> None:
    beat = heartbeat("m", [consumer("g", {"t": "*"})])
    assert ask(client, HEART_BEAT, None, beat).code == OK
    msg_id = server.store.put("t", b"secret", queue_id=0).msg_id
    fields = {"consumerGroup": "g", "clientId": "m", "msgId": msg_id}
    with RemotingClient(server.address) as operator:
        number = operator.send(DIRECTLY, sign(fields, b"", "operator", "12345678"))
        client.reply(client.next_request(DIRECTLY))
        assert operator.answer(number).code == OK
        accounts.change(TAKEN[taken])
        answer = signed(operator, DIRECTLY, fields, key="operator")
    assert answer.code == REFUSED
    assert answer.remark is not None
    assert "not online" in answer.remark


def test_a_long_file_is_read_beside_the_loop(
    server: Server, client: RemotingClient, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a thousand accounts takes a second, and nobody waits for it."""
    number = hold(server, client)
    begun, go_on = threading.Event(), threading.Event()
    read = accounts_file._read

    def slow(path: Path) -> Any:
        begun.set()
        assert go_on.wait(60)
        return read(path)

    monkeypatch.setattr(accounts_file, "_read", slow)
    more = "".join(f"  - accessKey: account{n:04}\n    secretKey: 12345678\n" for n in range(200))
    accounts.write(TAKEN["the topic"] + more)
    assert begun.wait(60)
    assert signed(client, 105, {"topic": "t"}, key="operator").code == OK  # by those before
    assert signed(client, 105, {"topic": "t"}, key="account0000").code == REFUSED
    go_on.set()
    assert client.answer(number).code == NO_PERMISSION
    assert signed(client, 105, {"topic": "t"}, key="account0000").code == OK
