"""Multi-dispatch and light queues: put, read, limits, and records that no put of ours made."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rmqstore
from rmqstore import MessageIllegalError, PutError, PutStatus, StoreConfig
from support import oracle, oracle_store
from support.light_model import LightModel, named

SMALL = StoreConfig.small(mapped_file_size_consume_queue=200)
LOG_SIZE = SMALL.mapped_file_size_commit_log
DISPATCH, OFFSET = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"


def filled(root: Path, count: int = 45, **options: Any) -> LightModel:
    """Make a store whose messages go to no, one or several light queues."""
    model = LightModel()
    with rmqstore.open(root, "a", config=SMALL.replace(**options)) as store:
        fill(store, model, count)
    return model


def fill(store: Any, model: LightModel, count: int) -> None:
    for n in range(count):
        names = [["a"], [], ["%LMQ%a", "b"], ["c", "a", "%LMQ%c"]][n % 4]
        body = b"%d" % n
        done = store.put("orders", body, tags="TagA" if n % 2 else None, lite_topics=names)
        offsets = model.put(body, names)
        assert named(store.at(done.physical_offset)) == offsets


def killed(root: Path) -> None:
    """What a killed process leaves, where all its pages came to the disk."""
    (root / "abort").touch()


def test_a_message_names_its_light_queues(store: rmqstore.MessageStore) -> None:
    done = store.put(
        "t", b"1", tags="T", keys="k", properties={"p": "v"}, lite_topics=["%LMQ%a", "b", "a"]
    )
    assert list(store.at(done.physical_offset).properties.items()) == [
        ("p", "v"),
        ("KEYS", "k"),
        ("TAGS", "T"),
        ("UNIQ_KEY", done.uniq_key),
        (DISPATCH, "%LMQ%a,%LMQ%b"),
        (OFFSET, "0,0"),
    ]
    again = store.put("u", b"2", uniq_key=False, lite_topics=iter(["b"]))
    assert store.at(again.physical_offset).properties == {DISPATCH: "%LMQ%b", OFFSET: "1"}
    assert [m.body for m in store["%LMQ%b"][0]] == [b"1", b"2"]
    assert [m.topic for m in store["%LMQ%b"].messages()] == ["t", "u"]
    plain = store.put("t", b"3", lite_topics=[])
    assert DISPATCH not in store.at(plain.physical_offset).properties


def test_a_light_queue_is_read_as_any_other(store: rmqstore.MessageStore) -> None:
    tags = [None, "TagA", "paid"]
    done = []
    for n in range(30):
        store.clock.advance(1)
        done.append(store.put("t", b"%d" % n, keys=f"k{n}", tags=tags[n % 3], lite_topics=["l"]))
    queue = store["%LMQ%l"][0]
    assert (len(queue), queue[-1].body, [m.body for m in queue[3:5]]) == (30, b"29", [b"3", b"4"])
    units = queue.units()
    assert units["physical_offset"].tolist() == [one.physical_offset for one in done]
    assert units["tags_code"].tolist() == [
        oracle.tags_code(None if n % 3 == 0 else tags[n % 3]) for n in range(30)
    ]
    got = store.get("%LMQ%l", 0, 0, 100, tags="paid")
    assert [m.body for m in got.messages] == [b"%d" % n for n in range(2, 30, 3)]
    assert queue.offset_at(done[7].store_timestamp) == 7
    assert queue.offset_at(done[7].store_timestamp + 1) == 8
    # A record reached through a light queue is still its own topic's, and indexed there alone.
    assert store.scan("%LMQ%l").count() == 0
    assert store.scan("t").count() == 30
    assert len(store.query("t", "k5")) == 1
    assert store.query("%LMQ%l", "k5") == []
    store.put("%LMQ%l", b"own", queue_id=0, lite_topics=["l", "m"])
    assert (queue.max_offset, store["%LMQ%l"][0][-1].body) == (31, b"own")
    assert store.scan("%LMQ%l").count() == 1


@pytest.mark.parametrize(
    "names", [["../x"], [""], ["%LMQ%"], ["a/b"], ["a,b"], ["x" * 123], ["good", "\x01"], ["\xe4"]]
)
def test_a_name_that_is_none_is_refused(
    store: rmqstore.MessageStore, names: list[str], tmp_path: Path
) -> None:
    before = store.stats()["wrote_position"]
    with pytest.raises(MessageIllegalError, match=r"lite_topics must be 1 to 122 of") as caught:
        store.put("fresh", b"", lite_topics=names)
    assert caught.value.status == PutStatus.MESSAGE_ILLEGAL
    assert store.stats()["wrote_position"] == before
    assert "fresh" not in store.topics
    assert {path.name for path in tmp_path.iterdir()} == {"store"}


@pytest.mark.parametrize("names", ["abc", b"abc", 5, [5], [None], [b"x"]])
def test_names_of_another_type_are_refused(store: rmqstore.MessageStore, names: Any) -> None:
    with pytest.raises(TypeError, match="lite_topics must be"):
        store.put("t", b"", lite_topics=names)


def test_the_longest_name(store: rmqstore.MessageStore) -> None:
    store.put("t", b"1", lite_topics=["x" * 122])
    assert len(store["%LMQ%" + "x" * 122][0]) == 1


def test_a_delayed_message_goes_to_no_light_queue(store: rmqstore.MessageStore) -> None:
    with pytest.raises(ValueError, match="lite_topics and delay_level must not be given both"):
        store.put("t", b"", delay_level=1, lite_topics=["a"])
    assert store.stats()["wrote_position"] == 0


def test_as_many_light_queues_as_may_be(tmp_path: Path) -> None:
    config = SMALL.replace(max_lmq_consume_queue_num=2)
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        store.put("t", b"1", lite_topics=["a"])
        for names in (["b", "c"], ["a", "b", "c"]):
            with pytest.raises(PutError, match="there are 1 light queues, of at most 2") as caught:
                store.put("t", b"", lite_topics=names)
            assert caught.value.status == PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
            assert caught.value.result is None
        store.put("t", b"2", lite_topics=["a", "b"])
        for _ in range(3):
            with pytest.raises(PutError, match="max_lmq_consume_queue_num"):
                store.put("t", b"", lite_topics=["d"])
        store.put("t", b"3", lite_topics=["a", "b"])
    with rmqstore.open(tmp_path / "s", "r+", config=config) as store:
        with pytest.raises(PutError, match="there are 2 light queues"):
            store.put("t", b"", lite_topics=["c"])
        assert sorted(store.topics) == ["%LMQ%a", "%LMQ%b", "t"]
        store.delete_topic("%LMQ%b")
        store.put("t", b"4", lite_topics=["c", "a"])
        assert [m.body for m in store["%LMQ%a"][0]] == [b"1", b"2", b"3", b"4"]
        with pytest.raises(PutError, match="max_lmq_consume_queue_num"):
            store.put("t", b"", lite_topics=["b"])
    with rmqstore.open(tmp_path / "s", "r+", config=SMALL) as store:
        store.put("t", b"5", lite_topics=["b"])
        assert [m.body for m in store["%LMQ%b"][0]] == [b"5"]  # begun anew when it was deleted
        assert (store["%LMQ%c"][0].max_offset, store.stats()["skipped_records"]) == (1, 0)


@pytest.mark.parametrize("digits", [1, 2])
def test_properties_that_only_the_offsets_make_too_large(tmp_path: Path, digits: int) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        for _ in range(10 * (digits - 1)):
            store.put("t", b"", lite_topics=["a"])
        fixed = len(f"v\x01\x02{DISPATCH}\x01%LMQ%a\x02{OFFSET}\x01")
        room = 32767 - fixed - digits
        done = store.put("t", b"", uniq_key=False, properties={"v": "x" * room}, lite_topics=["a"])
        assert len(store.at(done.physical_offset).properties["v"]) == room
        before = store.stats()["wrote_position"]
        with pytest.raises(MessageIllegalError) as caught:
            store.put("t", b"", uniq_key=False, properties={"v": "x" * (room + 1)},
                      lite_topics=["a"])  # fmt: skip
        assert caught.value.status == PutStatus.PROPERTIES_SIZE_EXCEEDED
        assert store.stats()["wrote_position"] == before
        store.put("t", b"", lite_topics=["a"])
        assert store["%LMQ%a"][0].max_offset == 10 * (digits - 1) + 2


def test_a_record_that_only_the_offsets_make_too_large(tmp_path: Path) -> None:
    config = SMALL.replace(max_message_size=1000)
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        for _ in range(10):
            store.put("t", b"", lite_topics=["a"], uniq_key=False)
        size = store.at(0).store_size + 1  # an offset of two digits
        store.put("t", bytes(1000 - size), lite_topics=["a"], uniq_key=False)
        with pytest.raises(MessageIllegalError, match="1000 of max_message_size"):
            store.put("t", bytes(1001 - size), lite_topics=["a"], uniq_key=False)
        assert store["%LMQ%a"][0].max_offset == 11


@pytest.mark.parametrize(
    "options", [{"record_checksum": True}, {"flush_disk_type": "SYNC_FLUSH"},
                {"record_checksum": True, "compress_above": 1}]
)  # fmt: skip
def test_with_other_settings(tmp_path: Path, options: dict[str, Any]) -> None:
    root = tmp_path / "s"
    model = filled(root, **options)
    with rmqstore.open(root, "r", verify="full") as store:
        model.assert_holds(store)
        for message in store["orders"].messages():
            assert ("__CRC32#" in message.properties) == ("record_checksum" in options)


@pytest.mark.parametrize("given", [None, SMALL], ids=["told", "configured"])
@pytest.mark.parametrize("lost", ["nothing", "all", "light", "one", "end"])
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_units_are_completed(
    tmp_path: Path, end: str, lost: str, given: StoreConfig | None
) -> None:
    root = tmp_path / "s"
    model = filled(root)
    queues = root / "consumequeue"
    if lost == "all":
        shutil.rmtree(queues)
    elif lost == "light":
        for path in queues.glob("%LMQ%*"):
            shutil.rmtree(path)
    elif lost == "one":
        shutil.rmtree(queues / "%LMQ%b")
    elif lost == "end":
        for name in ("%LMQ%a", "%LMQ%c"):
            last = max((queues / name / "0").iterdir())
            os.truncate(last, 40)
            os.truncate(last, 200)
    if end == "killed":
        killed(root)
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode, config=given) as store:
            model.assert_holds(store)
            if mode == "r+":
                assert store.stats()["skipped_records"] == 0
                fill(store, model, 20)
                model.assert_holds(store)
    oracle_store.check_store(root)


def test_after_a_kill(tmp_path: Path) -> None:
    root = tmp_path / "s"
    model = LightModel()
    child = os.fork()
    if child == 0:
        try:
            store = rmqstore.open(root, "a", config=SMALL)
            fill(store, model, 101)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    for n in range(101):
        model.put(b"%d" % n, [["a"], [], ["a", "b"], ["c", "a"]][n % 4])
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode) as store:
            model.assert_holds(store)
    oracle_store.check_store(root)


def test_beside_a_writer(tmp_path: Path) -> None:
    root = tmp_path / "s"
    model = LightModel()
    with rmqstore.open(root, "a", config=SMALL) as store, rmqstore.open(root, "r") as reader:
        for _ in range(4):
            fill(store, model, 12)
            store.wait_durable(timeout=60)
            store.flush()
            reader["orders"]
            for name, bodies in model.queues.items():
                assert [m.body for m in store[name][0]] == bodies
            with rmqstore.open(root, "r") as fresh:
                model.assert_holds(fresh)
        assert [m.body for m in reader["%LMQ%b"][0]] == model.queues["%LMQ%b"]


def test_a_table_that_is_stored_again(tmp_path: Path) -> None:
    """Offsets are made anew, in the queues of the store that takes it."""
    model = filled(tmp_path / "from")
    with (
        rmqstore.open(tmp_path / "from") as source,
        rmqstore.open(tmp_path / "to", "a", config=SMALL) as store,
    ):
        store.put("t", b"first", lite_topics=["b"])
        store.put_table(source.scan())
        model.queues["%LMQ%b"].insert(0, b"first")
        model.assert_holds(store)
        for message in store["orders"].messages():
            assert [*message.properties][-1] in (OFFSET, "UNIQ_KEY")
    with rmqstore.open(tmp_path / "to", "r", verify="full") as store:
        model.assert_holds(store)
    oracle_store.check_store(tmp_path / "to")


def table_of(*maps: list[tuple[str, str]]) -> pa.Table:
    return pa.table({
        "topic": ["t"] * len(maps),
        "body": [b"%d" % n for n in range(len(maps))],
        "properties": pa.array(maps, pa.map_(pa.string(), pa.string())),
    })  # fmt: skip


@pytest.mark.parametrize("enabled", [False, True])
def test_names_without_offsets_are_the_settings_to_decide(tmp_path: Path, enabled: bool) -> None:
    config = SMALL.replace(enable_multi_dispatch=enabled, enable_lmq=enabled)
    names = f"{DISPATCH}\x01%LMQ%a,other\x02WAIT\x01false\x02x\x01y"
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        store.put_table(table_of([(DISPATCH, "%LMQ%a,other"), ("WAIT", "false"), ("x", "y")]))
        done = store.core.put_stored("t", 3, b"1", names)
        found = [store.at(0).properties, store.at(done.physical_offset).properties]
        if enabled:
            # As 4.9.3: WAIT goes, and other names are queues under the id of the record's.
            assert found == [
                {DISPATCH: "%LMQ%a,other", "x": "y", OFFSET: f"{n},0"} for n in range(2)
            ]
            assert [m.body for m in store["%LMQ%a"][0]] == [b"0", b"1"]
            assert {q: [m.body for m in store["other"][q]] for q in store["other"]} == {
                0: [b"0"], 3: [b"1"]
            }  # fmt: skip
        else:
            assert found == [{DISPATCH: "%LMQ%a,other", "WAIT": "false", "x": "y"}] * 2
            assert list(store.topics) == ["t"]


def test_light_queues_need_their_own_setting(tmp_path: Path) -> None:
    config = SMALL.replace(enable_multi_dispatch=True)
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        table = table_of([("a", "b")], [(DISPATCH, "other,%LMQ%a")])
        with pytest.raises(MessageIllegalError, match="row 1: INNER_MULTI_DISPATCH names the light "
                           "queue '%LMQ%a', which needs enable_lmq"):  # fmt: skip
            store.put_table(table)
        with pytest.raises(MessageIllegalError, match="enable_lmq"):
            store.core.put_stored("t", 0, b"", f"{DISPATCH}\x01%LMQ%a")
        assert store.stats()["wrote_position"] == 0
        store.put("t", b"1", lite_topics=["a"])  # asked for by name
        assert [m.body for m in store["%LMQ%a"][0]] == [b"1"]


@pytest.mark.parametrize("names", ["../x", "a,,b", "%LMQ%", "a b", "%LMQ%" + "x" * 123])
def test_a_given_name_that_is_none_is_refused(tmp_path: Path, names: str) -> None:
    config = SMALL.replace(enable_multi_dispatch=True, enable_lmq=True)
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        for properties in (f"{DISPATCH}\x01{names}", f"{DISPATCH}\x01{names}\x02{OFFSET}\x010"):
            with pytest.raises(MessageIllegalError, match="INNER_MULTI_DISPATCH must name topics"):
                store.core.put_stored("t", 0, b"", properties)
        with pytest.raises(MessageIllegalError, match="row 0: INNER_MULTI_DISPATCH must name"):
            store.put_table(table_of([(DISPATCH, names), (OFFSET, "7")]))
        assert store.stats()["wrote_position"] == 0


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_what_waits_goes_to_light_queues_when_it_is_delivered(tmp_path: Path, topic: str) -> None:
    config = SMALL.replace(enable_multi_dispatch=True, enable_lmq=True)
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        given = f"{DISPATCH}\x01%LMQ%a\x02{OFFSET}\x019\x02x\x01y"
        done = store.core.put_stored(topic, 2, b"waits", given)
        waiting = store.at(done.physical_offset)
        assert waiting.properties == {DISPATCH: "%LMQ%a", "x": "y"}
        assert "%LMQ%a" not in store.topics
        text = f"{DISPATCH}\x01%LMQ%a\x02x\x01y"
        store.core.put_stored("t", 0, b"delivered", text, sys_flag=0x8)
        assert [m.body for m in store["%LMQ%a"][0]] == [b"delivered"]
        store.core.put_stored("t", 0, b"prepared", text, sys_flag=0x4)
        store.put("t", b"last", lite_topics=["a"])
        assert [m.body for m in store["%LMQ%a"][0]] == [b"delivered", b"last"]


def record(body: bytes, queue_offset: int, names: str, offsets: str, **fields: Any) -> bytes:
    properties = f"TAGS\x01TagA\x02{DISPATCH}\x01{names}\x02{OFFSET}\x01{offsets}".encode()
    fields = {"topic": "t", "queue_id": 3, "store_timestamp": 1_700_000_000_000} | fields
    return rmqstore.encode_record(
        fields.pop("topic"), body, queue_offset=queue_offset, properties=properties, **fields
    )


def log_of(root: Path, records: list[bytes]) -> None:
    (root / "consumequeue").mkdir(parents=True)
    with rmqstore.CommitLog(root / "commitlog", file_size=LOG_SIZE, mode="a") as log:
        log.append(records)


BAD = [
    ("../x", "0"), ("..", "0"), ("%LMQ%a/b", "0"), ("x" * 256, "0"), ("good,", "-1"),
    ("%LMQ%good", "+1"), ("%LMQ%good", "x"), ("%LMQ%good", "99999999999999999999"),
    ("%LMQ%good,%LMQ%good", "1"), ("%LMQ%good", "0,1"), (".", "0"), (",", "0"), (",x", "0"),
    ("%LMQ%good", "900000000000000000"), ("%LMQ%\x00", "0"),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_bad_names_of_the_log_are_skipped(tmp_path: Path, mode: str) -> None:
    root = tmp_path / "s"
    good = record(b"good", len(BAD), "%LMQ%good", "0")
    log_of(root, [record(b"bad", n, *pair) for n, pair in enumerate(BAD)] + [good])
    with rmqstore.open(root, mode, config=SMALL) as store:
        # One name is good in a list whose first one is not: ",x" names "" and "x".
        assert [name for name in store.topics if name != "t"] == ["%LMQ%good"]
        assert len(store["t"][3]) == len(BAD) + 1
        assert [m.body for m in store["%LMQ%good"][0]] == [b"good"]
        if mode == "r+":
            assert store.stats()["skipped_records"] >= len(BAD)
    assert {path.name for path in tmp_path.iterdir()} == {"s"}
    if mode == "r+":
        assert {path.name for path in (root / "consumequeue").iterdir()} == {"t", "%LMQ%good"}


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_offsets_that_begin_again_are_skipped(tmp_path: Path, mode: str) -> None:
    """4.9.3 forgets the next offsets of light queues when it starts, and skips such units.

    But for the first, whose unit it puts at the end.
    """
    root = tmp_path / "s"
    offsets = [0, 1, 2, 0, 1, 2, 3, 4, 0, 1]
    expected = [b"0", b"1", b"2", b"3", b"7", b"8"]
    log_of(root, [record(b"%d" % n, n, "%LMQ%a", str(at)) for n, at in enumerate(offsets)])
    with rmqstore.open(root, mode, config=SMALL) as store:
        assert [m.body for m in store["%LMQ%a"][0]] == expected
        if mode == "r":
            return
        store.put("t", b"next", lite_topics=["a"])
        assert store["%LMQ%a"][0][6].body == b"next"
    killed(root)
    with rmqstore.open(root, "r+", verify="full") as store:
        assert [m.body for m in store["%LMQ%a"][0]] == [*expected, b"next"]


def test_a_broker_without_enable_lmq_has_them_under_the_records_queue(tmp_path: Path) -> None:
    root = tmp_path / "s"
    log_of(root, [record(b"%d" % n, n, "%LMQ%a", str(n)) for n in range(3)])
    units = root / "consumequeue" / "%LMQ%a" / "3"
    size = oracle.decode_record((root / "commitlog" / f"{0:020d}").read_bytes()).store_size
    with rmqstore.ConsumeQueue(units, file_size=200, mode="a") as queue:
        for n in range(3):
            assert queue.put_unit(n * size, size, oracle.tags_code("TagA"), n)
    with rmqstore.open(root, "r", config=SMALL) as store:
        assert [m.body for m in store["%LMQ%a"][3]] == [b"0", b"1", b"2"]


def test_a_light_topic_that_was_deleted_begins_anew(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=SMALL) as store:
        store.put("t", b"old", lite_topics=["a", "b"])
        store.delete_topic("%LMQ%a")
        assert "%LMQ%a" not in store.topics
        done = store.put("t", b"new", lite_topics=["a", "b"])
        assert store.at(done.physical_offset).properties[OFFSET] == "0,1"
    killed(root)
    shutil.rmtree(root / "consumequeue")
    for mode in ("r", "r+"):
        with rmqstore.open(root, mode) as store:
            assert [m.body for m in store["%LMQ%a"][0]] == [b"new"]
            assert [m.body for m in store["%LMQ%b"][0]] == [b"old", b"new"]


def test_many_threads(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=SMALL) as store:

        def work(thread: int) -> None:
            for n in range(100):
                store.put("t", b"%d" % n, lite_topics=["a", f"b{thread}"])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert np.all(np.diff(store["%LMQ%a"][0].units()["physical_offset"]) > 0)
        assert store["%LMQ%a"][0].max_offset == 400
        for thread in range(4):
            assert [m.body for m in store[f"%LMQ%b{thread}"][0]] == [b"%d" % n for n in range(100)]
    oracle_store.check_store(root)


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_units_have_the_plain_tags_code_beside_ext_units(tmp_path: Path, end: str) -> None:
    """As with 4.9.3: a healthy store is not taken for one whose light queues lack ext units."""
    root = tmp_path / "store"
    given = SMALL.replace(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=1000)
    for count in (30, 60, 90):
        with rmqstore.open(root, "a", config=given) as store:
            assert end == "killed" or not store.recovery.notes
            for _ in range(30):
                store.put("t", b"x", queue_id=0, tags="A", lite_topics=["a"])
        if end == "killed":
            killed(root)
        for mode in ("r", "r+"):
            with rmqstore.open(root, mode, config=given) as store:  # type: ignore[arg-type]
                assert not any("ext" in note for note in store.recovery.notes)
                assert len(store.get("%LMQ%a", 0, 0, 100).messages) == count
        units = oracle_store.read_queue(root / "consumequeue/%LMQ%a/0")
        assert {code for _, _, code in units} == {oracle.tags_code("A")}
        assert not (root / "consumequeue_ext/%LMQ%a").exists()
