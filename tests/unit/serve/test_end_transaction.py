"""END_TRANSACTION and CHECK_TRANSACTION_STATE: records, checks, words, who is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

import rmqstore
from rmqstore import _core
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import StoreError
from rmqstore.serve import Server
from rmqstore.serve.settings import Settings
from rmqstore.services.stored import HALF_TOPIC, MAX_TIME_TOPIC, OP_TOPIC
from support.gates import Gate
from support.remoting import Frame, RemotingClient
from support.serving import wait_until

END, CHECK = 37, 39
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
SMALL = StoreConfig.small()
Wait = Callable[[Callable[[], object]], None]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(None, Settings(), SMALL) as made:
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def prepare(store: rmqstore.MessageStore, body: bytes = b"1", **more: str) -> rmqstore.PutResult:
    properties = {
        "KEYS": "k", "TRAN_MSG": "true", "UNIQ_KEY": f"FD{body.hex():0>30}", "WAIT": "true",
        "PGROUP": "p", "TAGS": "t",
    } | more  # fmt: skip
    born = store.clock.now()
    return store.transactions.put_half(
        "tx", 2, body, properties, flag=7, sys_flag=4, born_timestamp=born,
        born_host="127.0.0.1:33050", store_host="127.0.0.1:21911",
    )  # fmt: skip


def end_fields(half: rmqstore.PutResult, how: int, **other: object) -> dict[str, object]:
    return {
        "producerGroup": "p", "tranStateTableOffset": half.queue_offset,
        "commitLogOffset": half.physical_offset, "commitOrRollback": how,
        "fromTransactionCheck": "false", "msgId": "x",
    } | other  # fmt: skip


def end(client: RemotingClient, half: rmqstore.PutResult, how: int, **other: object) -> Frame:
    return client.ask(END, end_fields(half, how, **other))


def bodies(store: rmqstore.MessageStore, topic: str = "tx") -> list[bytes]:
    return [message.body for message in store.scan(topic)] if topic in store else []


def doubtful(store: rmqstore.MessageStore) -> list[bytes]:
    return [one.message.body for one in store.in_doubt()]


def test_the_half_message(server: Server) -> None:
    """As a broker stores it; a delay, which a broker takes for a reason to lose it, is left out."""
    store = server.store
    done = prepare(store, DELAY="3")
    half = store.at(done.physical_offset)
    assert (half.topic, half.queue_id, half.queue_offset) == (HALF_TOPIC, 0, 0)
    assert half.properties == {
        "KEYS": "k", "TRAN_MSG": "true", "UNIQ_KEY": "FD" + "31".zfill(30), "WAIT": "true",
        "PGROUP": "p", "TAGS": "t", "REAL_TOPIC": "tx", "REAL_QID": "2",
    }  # fmt: skip
    assert (half.sys_flag, half.flag) == (0, 7)
    assert (half.born_host, half.store_host) == ("127.0.0.1:33050", "127.0.0.1:21911")
    assert done.msg_id == half.msg_id
    assert doubtful(store) == [b"1"]


def test_commit(server: Server, client: RemotingClient) -> None:
    store = server.store
    done = prepare(store)
    half = store.at(done.physical_offset)
    answer = end(client, done, COMMIT)
    assert (answer.code, answer.remark, answer.fields, answer.body) == (0, None, None, b"")
    [real] = store["tx"][2]
    assert (real.sys_flag, real.prepared_transaction_offset) == (8, half.physical_offset)
    assert (real.topic, real.queue_id, real.queue_offset) == ("tx", 2, 0)
    for name in ("properties", "body", "flag", "born_timestamp", "born_host", "store_host"):
        assert getattr(real, name) == getattr(half, name), name
    [op] = store[OP_TOPIC][0]
    assert (op.body, op.properties) == (b"0", {"WAIT": "true", "TAGS": "d"})
    assert doubtful(store) == []


def test_oneway_as_clients_send_it(
    server: Server, client: RemotingClient, wait_until: Wait
) -> None:
    store = server.store
    one, two, three = (prepare(store, body) for body in (b"1", b"2", b"3"))
    client.tell(END, end_fields(one, COMMIT))
    client.tell(END, end_fields(two, ROLLBACK))
    client.tell(END, end_fields(three, UNKNOWN))
    client.tell(END, end_fields(three, COMMIT, producerGroup="other"))
    wait_until(lambda: doubtful(store) == [b"3"])
    assert bodies(store) == [b"1"]
    assert client.is_quiet(0.2)


@pytest.mark.parametrize("how", [UNKNOWN, 4, 7, -1])
@pytest.mark.parametrize("from_check", ["true", "false"])
def test_what_is_not_known_is_not_answered(
    server: Server, client: RemotingClient, how: int, from_check: str
) -> None:
    store = server.store
    half = prepare(store)
    client.send(END, end_fields(half, how, fromTransactionCheck=from_check))
    assert client.is_quiet(0.05)
    assert doubtful(store) == [b"1"]
    assert end(client, half, ROLLBACK).code == 0


def test_each_ends_once(server: Server, client: RemotingClient) -> None:
    store = server.store
    one, two = prepare(store, b"1"), prepare(store, b"2")
    for half, first in ((one, COMMIT), (two, ROLLBACK)):
        for how in (first, COMMIT, ROLLBACK, COMMIT):
            assert end(client, half, how).code == 0
    assert bodies(store) == [b"1"]
    assert [op.body for op in store[OP_TOPIC][0]] == [b"0", b"1"]


def test_checks_and_their_words(server: Server, client: RemotingClient) -> None:
    store = server.store
    half, other = prepare(store, b"1"), prepare(store, b"2")
    normal = store.put("tx", b"normal", queue_id=2)
    not_found = "Find prepared transaction message failed"
    for wrong, says in (
        ({"producerGroup": "q"}, "The producer group wrong"),
        ({"tranStateTableOffset": 1}, "The transaction state table offset wrong"),
        ({"producerGroup": "q", "tranStateTableOffset": 1}, "The producer group wrong"),
        ({"commitLogOffset": other.physical_offset}, "The transaction state table offset wrong"),
        ({"commitLogOffset": half.physical_offset + 1}, not_found),
        ({"commitLogOffset": 1 << 50}, not_found),
        ({"commitLogOffset": normal.physical_offset}, not_found),
    ):
        for how in (COMMIT, ROLLBACK):
            answer = end(client, half, how, **wrong)
            assert (answer.code, answer.remark) == (1, says), wrong
    for missing in ("producerGroup", "commitOrRollback", "commitLogOffset", "tranStateTableOffset"):
        fields = end_fields(half, COMMIT)
        del fields[missing]
        assert client.ask(END, fields).remark == f"the custom field <{missing}> is null"
        for bad in ("x", "", "9" * 30) if missing != "producerGroup" else ("x" * 5000,):
            answer = client.ask(END, fields | {missing: bad})
            assert answer.code == 1
            assert f"<{missing}> must be" in (answer.remark or "")
    assert doubtful(store) == [b"1", b"2"]
    assert bodies(store) == [b"normal"]


def test_a_half_message_that_a_body_holds(server: Server, client: RemotingClient) -> None:
    store = server.store
    prepare(store, b"1")
    probe = store.at(store.put("t", b"", uniq_key=False).physical_offset)
    at = probe.physical_offset + probe.store_size + 88
    forged = _core.encode_record(
        HALF_TOPIC, b"forged", queue_offset=0, physical_offset=at,
        properties={"REAL_TOPIC": "tx", "REAL_QID": "0", "PGROUP": "p"},
    )  # fmt: skip
    store.core.put_stored("t", 0, forged, "")
    assert store.at(at).topic == HALF_TOPIC
    answer = client.ask(
        END,
        {"producerGroup": "p", "tranStateTableOffset": 0, "commitLogOffset": at,
         "commitOrRollback": COMMIT, "msgId": "x"},
    )  # fmt: skip
    assert answer.remark == "Find prepared transaction message failed"
    assert bodies(store) == []
    assert doubtful(store) == [b"1"]


def have_producers(*clients: RemotingClient, group: str = "p") -> None:
    """Make these producers of the group, in this order."""
    for client in clients:
        heartbeat = {
            "clientID": client.name, "consumerDataSet": [],
            "producerDataSet": [{"groupName": group}],
        }  # fmt: skip
        assert client.ask(34, None, json.dumps(heartbeat).encode()).code == 0


def test_a_check(server: Server, client: RemotingClient, wait_until: Wait) -> None:
    """After a minute the half message is put back, and the check names the new copy."""
    store = server.store
    half = prepare(store)
    have_producers(client)
    store.clock.advance(61)
    check = client.next_request(CHECK)
    assert (check.flag, check.remark) == (2, None)
    [_, copy] = store[HALF_TOPIC][0]
    uniq_key = "FD" + "31".zfill(30)
    assert check.fields == {
        "commitLogOffset": str(copy.physical_offset), "tranStateTableOffset": "1",
        "msgId": uniq_key, "transactionId": uniq_key, "offsetMsgId": copy.msg_id,
    }  # fmt: skip
    assert copy.properties == store.at(half.physical_offset).properties | {
        "TRANSACTION_CHECK_TIMES": "1"
    }
    shown = _core.decode_record(check.body)
    assert (shown.topic, shown.queue_id, shown.queue_offset) == ("tx", 2, 1)
    assert (shown.physical_offset, shown.body, shown.sys_flag) == (copy.physical_offset, b"1", 0)
    assert shown.properties == copy.properties | {"WAIT": "false"}
    fields = check.fields | {"producerGroup": "p", "commitOrRollback": COMMIT}
    assert client.ask(END, fields | {"fromTransactionCheck": "true"}).code == 0
    [real] = store["tx"][2]
    assert real.prepared_transaction_offset == copy.physical_offset
    assert real.properties == copy.properties
    # The producer's first word comes late: it names the older copy.
    assert end(client, half, COMMIT).code == 0
    assert bodies(store) == [b"1"]
    store.clock.advance(61)
    wait_until(lambda: store.offsets.get((HALF_TOPIC, "CID_RMQ_SYS_TRANS")) == {0: 2})
    assert client.is_quiet(0.05)


def test_the_end_of_an_older_copy_is_the_end(server: Server, client: RemotingClient) -> None:
    store = server.store
    half = prepare(store)
    have_producers(client)
    store.clock.advance(61)
    client.next_request(CHECK)
    assert end(client, half, COMMIT).code == 0
    assert bodies(store) == [b"1"]
    assert doubtful(store) == []


def test_producers_take_turns(server: Server, wait_until: Wait) -> None:
    store = server.store
    with RemotingClient(server.address) as one, RemotingClient(server.address) as two:
        wait_until(lambda: len(server.gateway.connections.open) == 2)
        have_producers(one, two)
        for body in (b"1", b"2", b"3", b"4"):
            prepare(store, body)
        store.clock.advance(61)
        asked = [[one.next_request(CHECK), one.next_request(CHECK)],
                 [two.next_request(CHECK), two.next_request(CHECK)]]  # fmt: skip
        shown = [[_core.decode_record(check.body).body for check in checks] for checks in asked]
        assert sorted(shown) == [[b"1", b"3"], [b"2", b"4"]]
        one.close()
        wait_until(lambda: len(server.gateway.connections.open) == 1)
        store.clock.advance(61)
        again = [_core.decode_record(two.next_request(CHECK).body) for _ in range(4)]
        assert [message.body for message in again] == [b"1", b"2", b"3", b"4"]
        assert {message.properties["TRANSACTION_CHECK_TIMES"] for message in again} == {"2"}


def test_nobody_to_ask_counts_as_asked_and_fifteen_are_the_most(
    server: Server, client: RemotingClient, wait_until: Wait
) -> None:
    store = server.store
    prepare(store)
    for times in range(1, 16):
        store.clock.advance(61)
        wait_until(lambda times=times: [one.checks for one in store.in_doubt()] == [times])
    have_producers(client)
    store.clock.advance(61)
    wait_until(lambda: bodies(store, MAX_TIME_TOPIC) == [b"1"])
    assert doubtful(store) == []
    [given_up] = store[MAX_TIME_TOPIC][0]
    assert given_up.properties["TRANSACTION_CHECK_TIMES"] == "15"
    assert given_up.properties["REAL_TOPIC"] == "tx"
    assert store[MAX_TIME_TOPIC].write_queue_nums == 1
    assert client.is_quiet(0.05)


def test_a_producer_that_came_back_is_asked(server: Server, wait_until: Wait) -> None:
    store = server.store
    with RemotingClient(server.address) as first:
        have_producers(first)
        half = prepare(store)
        assert end(first, half, COMMIT, producerGroup="q").code == 1
    store.clock.advance(61)
    wait_until(lambda: [one.checks for one in store.in_doubt()] == [1])
    with RemotingClient(server.address) as again:
        wait_until(lambda: len(server.gateway.connections.open) == 1)
        have_producers(again)
        store.clock.advance(61)
        check = again.next_request(CHECK)
        fields = check.fields | {"producerGroup": "p", "commitOrRollback": COMMIT}
        assert again.ask(END, fields).code == 0
        assert bodies(store) == [b"1"]


@pytest.mark.parametrize(
    ("seconds", "asked"), [(None, True), ("30", True), ("600", False), ("-1", True), ("x", True)]
)
def test_immunity(
    server: Server, client: RemotingClient, wait_until: Wait, seconds: str | None, asked: bool
) -> None:
    store = server.store
    have_producers(client)
    more = {} if seconds is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": seconds}
    prepare(store, **more)
    store.clock.advance(61)
    if asked:
        assert client.next_request(CHECK).code == CHECK
    else:
        assert client.is_quiet(0.3)
        store.clock.advance(600)
        assert client.next_request(CHECK).code == CHECK


def test_intervals_are_those_of_the_settings(wait_until: Wait) -> None:
    config = SMALL.replace(transaction_check_interval=50, transaction_timeout=0)
    with Server(None, Settings(), config) as server, RemotingClient(server.address) as client:
        have_producers(client)
        prepare(server.store)
        assert client.next_request(CHECK).fields["tranStateTableOffset"] == "1"
        assert client.next_request(CHECK).fields["tranStateTableOffset"] == "2"


def test_what_the_program_knows_need_not_be_asked(wait_until: Wait) -> None:
    """The callback of the settings comes first; where it does not know, a producer is asked."""
    config = SMALL.replace(
        transaction_check=lambda one: "commit" if one.message.body == b"known" else None
    )
    with Server(None, Settings(), config) as server, RemotingClient(server.address) as client:
        store = server.store
        have_producers(client)
        prepare(store, b"known")
        prepare(store, b"other")
        store.clock.advance(61)
        assert _core.decode_record(client.next_request(CHECK).body).body == b"other"
        wait_until(lambda: bodies(store) == [b"known"])
        assert client.is_quiet(0.05)


def test_halves_from_before_the_opening(tmp_path: Path) -> None:
    """Their ends are looked for first: committed before a kill, they are not committed again."""
    with Server(tmp_path / "s", Settings(), SMALL) as server:
        store = server.store
        halves = [prepare(store, body) for body in (b"1", b"2", b"3")]
        with (
            mock.patch.object(store.transactions, "put_op", side_effect=StoreError("as if killed")),
            RemotingClient(server.address) as client,
        ):
            answer = end(client, halves[0], COMMIT)
        assert (answer.code, answer.remark) == (1, "StoreError: as if killed")
        assert bodies(store) == [b"1"]
    with Server(tmp_path / "s", Settings(), SMALL) as server:
        store = server.store
        assert doubtful(store) == [b"1", b"2", b"3"]
        with RemotingClient(server.address) as client:
            for half in halves[:2]:
                for _ in range(2):
                    assert end(client, half, COMMIT).code == 0
            assert end(client, halves[2], ROLLBACK).code == 0
        assert bodies(store) == [b"1", b"2"]
        assert doubtful(store) == []


def test_an_older_copy_is_known_after_a_restart(tmp_path: Path) -> None:
    with Server(tmp_path / "s", Settings(), SMALL) as server:
        half = prepare(server.store)
        with RemotingClient(server.address) as client:
            have_producers(client)
            server.store.clock.advance(61)
            client.next_request(CHECK)
    with Server(tmp_path / "s", Settings(), SMALL) as server:
        with RemotingClient(server.address) as client:
            for _ in range(2):
                assert end(client, half, COMMIT).code == 0
        assert bodies(server.store) == [b"1"]
        assert doubtful(server.store) == []


# Where it is done


def test_a_topic_is_never_made_in_the_loop(
    server: Server, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the one of ends, nor one that was deleted since its half message."""
    store, gate = server.store, Gate(monkeypatch)
    for before in ("tx", "other"):
        store.create_topic(before, 4)
        assert end(client, prepare(store), ROLLBACK).code == 0
    for how, made in ((COMMIT, "tx"), (ROLLBACK, OP_TOPIC)):
        half = prepare(store, how.to_bytes(1))
        if made == OP_TOPIC:
            with store.registry.lock:
                store.registry.remove(OP_TOPIC, 0)
            store.core.set_topic(OP_TOPIC, 0)
        else:
            store.delete_topic(made)
        gate.close()
        asked = client.send(END, end_fields(half, how))
        assert gate.reached.wait(60)
        with RemotingClient(server.address) as other:
            assert other.ask(105, {"topic": "other"}).code == 0
        gate.open.set()
        assert client.answer(asked).code == 0
    assert bodies(store) == [b"\x08"]
    assert doubtful(store) == []


def test_many_ends_in_other_threads_leave_the_loop_to_others(
    server: Server, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is gone meanwhile has ended its transactions all the same."""
    store = server.store
    store.create_topic("tx", 4)
    halves = [prepare(store, b"%d" % number) for number in range(60)]
    monkeypatch.setattr(store.transactions, "ends_at_once", lambda *place: False)
    many = [RemotingClient(server.address) for _ in range(20)]
    with store.transactions.lock, RemotingClient(server.address) as other:
        for one in many:
            for half in halves:
                one.tell(END, end_fields(half, COMMIT))
        wait_until(lambda: server.gateway.requests[END] == 20 * 60)
        for one in many:
            one.close()
        asked = client.send(END, end_fields(halves[0], COMMIT))
        assert other.ask(105, {"topic": "tx"}, seconds=20).code == 0
    assert client.answer(asked).code == 0
    wait_until(lambda: not doubtful(store))
    assert sorted(bodies(store)) == sorted(b"%d" % number for number in range(60))
