"""Permissions of accounts, request by request: each that has a handler is in a table here."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import rmqstore
from rmqstore.files import paths
from rmqstore.serve.accounts.account import Account, Caller
from rmqstore.serve.accounts.acl import Acl
from rmqstore.serve.accounts.aclresources import ADMIN, FREE, RESOURCES, topic_resource
from rmqstore.serve.accounts.addresses import AddressRule
from rmqstore.serve.server import Server
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat
from support.signing import sign, signed

pytestmark = pytest.mark.pure

EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
PUB, SUB, BOTH, DENY = 4, 8, 12, 1

ADMIN_CODES = (
    17, 21, 25, 26, 28, 43, 45, 50, 51, 53, 54, 100, 102, 200, 201, 205, 206, 207, 215, 216, 222,
    224, 306, 309, 311, 312, 313, 314, 315, 316, 317, 318, 319, 327, 328, 401, 907,
)  # fmt: skip
FREE_CODES = (101, 105, 106, 219, 304, 305)


class Need(NamedTuple):
    """A permission, under the name that ``plain_acl.yml`` has for what it is of."""

    kind: str
    name: str
    permission: int

    @property
    def stored_name(self) -> str:
        return paths.retry_topic(self.name) if self.kind == "group" else self.name


def pub(name: str) -> Need:
    return Need("topic", name, PUB)


def sub(name: str) -> Need:
    return Need("topic", name, SUB)


def group(name: str, permission: int = SUB) -> Need:
    return Need("group", name, permission)


class Stored(NamedTuple):
    """Where records of others are in the log."""

    plain: int
    delayed: int
    half: int
    retried: int
    dead: int


class Case(NamedTuple):
    """A request, and all that it needs."""

    code: int
    fields: Callable[[Stored], dict[str, object]]
    needs: tuple[Need, ...]
    body: bytes = b""

    @property
    def name(self) -> str:
        return "-".join([str(self.code), *(f"{need.kind}:{need.name}" for need in self.needs)])


def case(code: int, fields: dict[str, object], *needs: Need, body: bytes = b"") -> Case:
    return Case(code, lambda _: fields, needs, body)


def at(code: int, field: str, which: str, *needs: Need, **more: object) -> Case:
    """Return a request that names a stored record by its place."""
    return Case(code, lambda stored: {field: getattr(stored, which), **more}, needs)


FURTHER = "INNER_MULTI_DISPATCH\1other,%RETRY%g\2INNER_MULTI_QUEUE_OFFSET\0010,0"
PART = struct.pack(">iiiii", 0, 0, 0, 0, 1) + b"x" + struct.pack(">h", len(FURTHER))
BATCH = PART + FURTHER.encode()
CHECK = json.dumps(
    {"group": "g", "subscriptionData": {"topic": "t", "subString": "*", "expressionType": "TAG"}}
).encode()
LOCK = json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": []}).encode()
BEAT = heartbeat("c", [consumer("g", {"t": "*", "%RETRY%g": "*"})])
OF_OTHERS = heartbeat("c", [consumer("g", {"%RETRY%h": "*"}), consumer("i", {})])

CASES = [
    *(
        each
        for code, topic, properties in (
            (10, "topic", "properties"), (324, "topic", "properties"),
            (310, "b", "i"), (320, "b", "i"), (325, "b", "i"),
        )
        for each in (
            case(code, {topic: "t"}, pub("t")),
            case(code, {topic: "%DLQ%g"}, pub("%DLQ%g")),
            case(code, {topic: "%RETRY%g"}, group("g")),
            case(code, {topic: "t", properties: FURTHER}, pub("t"), pub("other"), group("g")),
        )
    ),
    case(10, {"topic": "t", "batch": "true"}, pub("t"), pub("other"), group("g"), body=BATCH),
    case(320, {"b": "t", "m": "true"}, pub("t"), pub("other"), group("g"), body=BATCH),
    *(
        case(code, {"topic": topic, "consumerGroup": "g"}, need, group("g"))
        for code in (11, 361, 14, 15, 208, 321)
        for topic, need in (("t", sub("t")), ("%RETRY%h", group("h")), ("%DLQ%h", sub("%DLQ%h")))
    ),
    case(208, {"consumerGroup": "g"}, group("g")),
    case(321, {"topic": "t"}, sub("t")),
    *(case(code, {"topic": "t", "group": "g"}, sub("t"), group("g")) for code in (223, 303)),
    case(308, {"topic": "t", "compareGroup": "g"}, sub("t"), group("g")),
    *(
        each
        for code in (12, 29, 30, 31, 32, 202, 300, 308, 351)
        for each in (
            case(code, {"topic": "t"}, sub("t")),
            case(code, {"topic": "%RETRY%g"}, group("g")),
            case(code, {"topic": "%DLQ%g"}, sub("%DLQ%g")),
        )
    ),
    *(
        case(code, {"consumerGroup": name}, group(name))
        for code in (35, 38, 203, 307)
        for name in ("g", "%RETRY%g", "%DLQ%g")
    ),
    case(352, {"group": "g"}, group("g")),
    case(204, {"producerGroup": "p"}, group("p", PUB)),
    case(34, {}, group("g"), sub("t"), body=BEAT),
    case(34, {}, group("g"), group("h"), group("i"), body=OF_OTHERS),
    case(46, {}, group("g"), sub("t"), body=CHECK),
    case(41, {}, group("g"), body=LOCK),
    case(42, {}, group("g"), body=LOCK),
    at(33, "offset", "plain", sub("secret")),
    at(33, "offset", "delayed", sub("secret")),
    at(33, "offset", "half", sub("secret")),
    at(33, "offset", "retried", group("secret-g")),
    at(33, "offset", "dead", sub("%DLQ%secret-g")),
    *(
        at(36, "offset", which, group("g"), need, pub("t"), group="g", originTopic="t")
        for which, need in (
            ("plain", sub("secret")), ("delayed", sub("secret")), ("half", sub("secret")),
            ("retried", group("secret-g")), ("dead", sub("%DLQ%secret-g")),
        )
    ),
    at(36, "offset", "plain", group("g"), sub("secret"), group("h"), group="g",
       originTopic="%RETRY%h"),
    *(
        at(37, "commitLogOffset", "half", pub("secret"), producerGroup="p",
           tranStateTableOffset=1, commitOrRollback=how)
        for how in (8, 12)
    ),
]  # fmt: skip


def account(key: str, needs: tuple[Need, ...], default: int = DENY, admin: bool = False) -> Account:
    named = {need.stored_name: need.permission for need in needs}
    return Account(key, "12345678", AddressRule(""), admin, default, default, named)


def without(needs: tuple[Need, ...], which: int) -> tuple[Need, ...]:
    """Return all that is needed, but of one the other permission."""
    return tuple(
        need._replace(permission=BOTH - need.permission) if number == which else need
        for number, need in enumerate(needs)
    )


def key_of(number: int, which: int | None = None) -> str:
    return f"account-{number}-{which}"


def accounts() -> Iterator[Account]:
    for number, each in enumerate(CASES):
        yield account(key_of(number), each.needs)
        for which in range(len(each.needs)):
            yield account(key_of(number, which), without(each.needs, which), BOTH)
    yield account("nothing", ())
    yield account("everything", (), BOTH)
    yield account("administrator", (), admin=True)
    yield account("mine-only", (pub("mine"), sub("mine"), group("mine-g")))
    yield account("all-others", (Need("topic", "secret", DENY),), BOTH)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with rmqstore.serve(acl=Acl(accounts())) as made:
        yield made


@pytest.fixture(scope="module")
def stored(server: Server) -> Stored:
    store = server.store
    return Stored(
        plain=store.put("secret", b"TOP SECRET", keys=["k"]).physical_offset,
        delayed=store.put("secret", b"TOP SECRET", delay_level=18).physical_offset,
        half=store._put_half_of(
            "secret", 0, b"TOP SECRET", {"PGROUP": "p", "TRAN_MSG": "true"}
        ).physical_offset,
        retried=store.put("%RETRY%secret-g", b"TOP SECRET").physical_offset,
        dead=store.put("%DLQ%secret-g", b"TOP SECRET").physical_offset,
    )


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def refused(answer: Any) -> str | None:
    """Return why the accounts refuse a request, ``None`` if they do not."""
    if (answer.remark or "").startswith(EXCEPTION):
        assert answer.code == 1
        assert answer.body == b""
        return str(answer.remark)[len(EXCEPTION) :]
    return None


def test_no_request_is_forgotten(server: Server) -> None:
    """Each that has a handler is in one of the tables, and in one of the tests below."""
    tables = [set(ADMIN), set(FREE), set(RESOURCES)]
    codes = set(server.gateway.handlers)
    assert set.union(*tables) == codes
    assert sum(len(table) for table in tables) == len(codes)
    here = [set(ADMIN_CODES), set(FREE_CODES), {each.code for each in CASES}]
    assert here == tables


@pytest.mark.parametrize("code", ADMIN_CODES)
def test_what_an_administrator_may_alone(client: RemotingClient, code: int) -> None:
    why = refused(signed(client, code, key="everything"))
    assert why == f"Need admin permission for request code={code}, but accessKey=everything is not"
    assert refused(signed(client, code, key="administrator")) is None


@pytest.mark.parametrize("code", FREE_CODES)
def test_what_each_account_may(client: RemotingClient, code: int) -> None:
    assert refused(signed(client, code, {"topic": "t"}, key="nothing")) is None
    assert refused(client.ask(code, {"topic": "t"})) == "No accessKey is configured"


@pytest.mark.parametrize("number", range(len(CASES)), ids=[each.name for each in CASES])
def test_what_needs_permissions(client: RemotingClient, stored: Stored, number: int) -> None:
    each = CASES[number]
    fields = each.fields(stored)
    for which, need in enumerate(each.needs):
        answer = signed(client, each.code, fields, each.body, key=key_of(number, which))
        assert refused(answer) == f"No default permission for {need.kind}:{need.name}"
    # Last, as it may be the end of a transaction.
    answer = signed(client, each.code, fields, each.body, key=key_of(number))
    assert refused(answer) is None
    assert refused(signed(client, each.code, fields, each.body, key="administrator")) is None


def test_a_handler_that_is_in_no_table(server: Server, client: RemotingClient) -> None:
    assert signed(client, 9999, key="nothing").code == 3
    assert refused(client.ask(9999)) == "No accessKey is configured"
    server.gateway.handlers[9999] = server.gateway.handlers[106]
    try:
        assert "Need admin" in str(refused(signed(client, 9999, key="everything")))
        assert signed(client, 9999, key="administrator").code == 0
    finally:
        del server.gateway.handlers[9999]


PULL = {
    "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0,
    "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*",
}  # fmt: skip


@pytest.mark.parametrize(
    "topic",
    ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
     "TRANS_CHECK_MAX_TIME_TOPIC"],
)  # fmt: skip
def test_messages_of_all_topics_need_a_permission_by_name(
    client: RemotingClient, stored: Stored, topic: str
) -> None:
    fields = {**PULL, "consumerGroup": "g", "topic": topic}
    words = f"No default permission for topic:{topic}"
    assert refused(signed(client, 11, fields, key="all-others")) == words
    assert refused(signed(client, 310, {"b": topic}, key="all-others")) == words
    assert refused(signed(client, 11, fields, key="administrator")) is None
    named = account("by-name", (sub(topic),))
    assert Acl([named]).allows(Caller("1.2.3.4", named), topic_resource(topic))


@pytest.mark.parametrize(
    ("of_topics", "of_groups", "named", "may"),
    [
        (BOTH, SUB, {}, True),
        (SUB, DENY, {}, False),
        (SUB, PUB, {}, False),
        (DENY, SUB, {}, False),
        (PUB, SUB, {}, False),
        (BOTH, DENY, {"%RETRY%g": SUB}, True),
        (BOTH, SUB, {"%RETRY%g": DENY}, False),
        (DENY, DENY, {"%DLQ%g": SUB}, True),
        (BOTH, SUB, {"%DLQ%g": DENY}, False),
    ],
)
def test_dead_letters_are_a_topic_of_a_group(
    of_topics: int, of_groups: int, named: dict[str, int], may: bool
) -> None:
    one = Account("one-one", "12345678", AddressRule(""), False, of_topics, of_groups, named)
    assert Acl([one]).allows(Caller("1.2.3.4", one), topic_resource("%DLQ%g")) is may


def test_a_group_that_is_named_like_a_retry_topic_is_another(client: RemotingClient) -> None:
    for name in ("%RETRY%mine-g", "%DLQ%mine-g"):
        why = refused(signed(client, 38, {"consumerGroup": name}, key="mine-only"))
        assert why == f"No default permission for group:{name}"
    assert refused(signed(client, 38, {"consumerGroup": "mine-g"}, key="mine-only")) is None


def test_nothing_is_read_by_giving_back(client: RemotingClient, stored: Stored) -> None:
    for offset in stored:
        fields = {
            "group": "mine-g", "offset": offset, "delayLevel": -1, "originTopic": "mine",
            "originMsgId": "x",
        }  # fmt: skip
        assert refused(signed(client, 36, fields, key="mine-only")) is not None
    for topic in ("%RETRY%mine-g", "%DLQ%mine-g"):
        fields = {**PULL, "consumerGroup": "mine-g", "topic": topic}
        assert b"TOP SECRET" not in signed(client, 11, fields, key="mine-only").body


def test_a_record_inside_a_body_is_none(server: Server, client: RemotingClient) -> None:
    """Its topic is what the sender of the body has written, its end may be behind the body's."""
    store = server.store
    probe = store.at(store.put("mine", b"", uniq_key=False).physical_offset)
    start = probe.physical_offset + probe.store_size + 88
    forged = rmqstore._core.encode_record("mine", b"forged", physical_offset=start)
    store._put_stored("mine", 0, forged, "")
    assert store.at(start).topic == "mine"
    answer = signed(client, 33, {"offset": start}, key="mine-only")
    assert (answer.code, answer.body) == (1, b"")
    assert answer.remark == f"can not find message by the offset, {start}"
    plain = store.put("mine", b"my own").physical_offset
    assert b"my own" in signed(client, 33, {"offset": plain}, key="mine-only").body
    for wrong in (-1, 1 << 40):
        assert signed(client, 33, {"offset": wrong}, key="mine-only").code == 1


def test_only_who_may_write_is_asked_for_the_end(server: Server) -> None:
    """A check has the message in it, and anybody can say to be a producer of the group."""
    store = server.store
    with RemotingClient(server.address) as thief, RemotingClient(server.address) as producer:
        beat = heartbeat("thief", producers=["asked-p"])
        assert signed(thief, 34, {}, beat, key="mine-only").code == 0
        beat = heartbeat("producer", producers=["asked-p"])
        assert signed(producer, 34, {}, beat, key="everything").code == 0
        bodies = [b"half %d" % number for number in range(4)]
        for body in bodies:
            store._put_half_of("asked", 0, body, {"PGROUP": "asked-p", "TRAN_MSG": "true"})
        store.clock.advance(61)
        asked = [producer.next_request(39) for _ in bodies]
        seen = itertools.chain.from_iterable(
            [body for body in bodies if body in check.body] for check in asked
        )
        assert sorted(seen) == bodies
        assert signed(thief, 105, {"topic": "t"}, key="mine-only").code == 17
        assert not thief.pushed


def test_a_signature_is_not_passed_on(server: Server, client: RemotingClient) -> None:
    with RemotingClient(server.address) as member:
        beat = heartbeat("member", [consumer("mine-g", {"mine": "*"})])
        assert signed(member, 34, {}, beat, key="mine-only").code == 0
        asked = {"consumerGroup": "mine-g", "clientId": "member", "jstackEnable": "false"}
        number = client.send(307, sign(asked, b"", "administrator", "12345678"))
        seen = member.next_request(307)
        assert seen.fields == asked
        member.reply(seen)
        assert client.answer(number).code == 0
