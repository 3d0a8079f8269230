"""Export and import by functions: what is in a file, damage, redaction, and files of others."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import toolbox
from rmqstore.errors import StoreCorruptError, StoreLockedError
from support import damaged_store
from support.message_tables import table_of

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.pure

SMALL = rmqstore.StoreConfig.small()
FORMATS = ("parquet", "arrow", "csv", "jsonl")
SECRET_KEYS = ("customer-4711", "anna@example.org")
HOST = "192.168.77.31"


@pytest.fixture
def broker(broker_copy: Any, tmp_path: Path) -> Path:
    return Path(broker_copy("broker-clean", tmp_path).root)


def read(file: Path, form: str) -> list[dict[str, Any]]:
    if form == "parquet":
        return list(pq.read_table(file).to_pylist())
    if form == "arrow":
        with pa.ipc.open_file(file) as opened:
            return list(opened.read_all().to_pylist())
    if form == "csv":
        csv.field_size_limit(1 << 24)
        return list(csv.DictReader(io.StringIO(file.read_text("utf-8"), newline="")))
    return [json.loads(line) for line in file.read_bytes().splitlines()]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_columns_are_those_of_a_scan(broker: Path, tmp_path: Path, form: str) -> None:
    done = toolbox.export(broker, tmp_path / f"o.{form}")
    with rmqstore.open(broker) as store:
        wanted = table_of(store.scan())
    assert read(tmp_path / f"o.{form}", form) == wanted.to_pylist()
    assert (done.messages, done.skipped) == (wanted.num_rows, 0)
    assert not list(tmp_path.glob("*.unfinished"))


@pytest.mark.parametrize("form", FORMATS)
def test_a_selection(broker: Path, tmp_path: Path, form: str) -> None:
    given: dict[str, Any] = {"topics": ["payments"], "sql": "region = 'eu'", "tags": "paid"}
    toolbox.export(broker, tmp_path / f"o.{form}", **given)
    with rmqstore.open(broker) as store:
        wanted = [
            str(one.physical_offset)
            for one in store.scan("payments")
            if one.tags == "paid" and one.properties.get("region") == "eu"
        ]
    assert wanted
    rows = read(tmp_path / f"o.{form}", form)
    assert [str(row["physical_offset"]) for row in rows] == wanted


def test_a_sample_is_the_same_every_time_and_in_every_format(broker: Path, tmp_path: Path) -> None:
    found = []
    for form in FORMATS:
        toolbox.export(broker, tmp_path / f"o.{form}", sample=0.25)
        rows = read(tmp_path / f"o.{form}", form)
        found.append([int(row["physical_offset"]) for row in rows])
    assert found == found[:1] * 4
    assert 0.2 < len(found[0]) / 3498 < 0.3
    for wrong in (0, 1.5, -1, float("nan"), "1"):
        with pytest.raises((ValueError, TypeError), match="sample"):
            toolbox.export(broker, tmp_path / "x.csv", sample=wrong)  # type: ignore[arg-type]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A store whose bodies, keys and hosts are secret, the keys and hosts in properties too."""
    config = SMALL.replace(store_host=f"{HOST}:10911", record_checksum=True)
    with rmqstore.open(tmp_path / "secret", "a", config=config) as store:
        for number in range(20):
            store.put(
                "orders",
                b"the secret of %d" % (number % 2),
                keys=[*SECRET_KEYS, f"order-{number:04}"],
                tags="paid",
                properties={
                    "note": f"for {SECRET_KEYS[0]} by {HOST}",
                    "who": SECRET_KEYS[1],
                    "peer": "2001:db8::77, [2001:db8::77]:80 at 12:34:56",
                    "n": str(number),
                },
                born_host=f"{HOST}:5{number:04}",
            )
    return tmp_path / "secret"


@pytest.mark.parametrize("form", FORMATS)
def test_redaction_leaves_nothing(secret: Path, tmp_path: Path, form: str) -> None:
    file = tmp_path / f"o.{form}"
    with rmqstore.open(secret) as store:
        messages = list(store.scan())
    toolbox.export(secret, file, redact=["body", "keys", "hosts"])
    data = file.read_bytes() if form != "parquet" else repr(read(file, form)).encode()
    packed = bytes(map(int, HOST.split("."))).hex()
    hidden = [b"secret", HOST.encode(), packed.encode(), packed.upper().encode(), b"order-0"]
    hidden += [b"2001:db8", *(key.encode() for key in SECRET_KEYS)]
    hidden += [str(one.uniq_key).encode() for one in messages]
    hidden += [str(one.body_crc).encode() for one in messages]
    for text in hidden:
        assert text not in data, text
    rows = read(file, form)
    names = {"body", "body_base64"} & rows[0].keys()
    bodies = ["".join(str(row[name] or "") for name in names) for row in rows]
    assert len(set(bodies)) == 2  # equal ones stay equal
    if form == "jsonl":
        assert [len(row["body"]) for row in rows] == [len(one.body) for one in messages]
        assert {len({row["keys"][at] for row in rows}) for at in (0, 1)} == {1}
        assert len({row["keys"][2] for row in rows}) == 20
        assert [row["born_host"][-6:] for row in rows] == [f":5{at:04}" for at in range(20)]
        assert {row["properties"]["n"] for row in rows} == set(map(str, range(20)))
        assert {row["tags"] for row in rows} == {"paid"}
        (peer,) = {row["properties"]["peer"] for row in rows}
        bare, bracketed = peer.removesuffix(" at 12:34:56").split(", ")
        assert bracketed == f"[{bare}]:80"
    # It is a file of messages still, whose keys are found.
    toolbox.import_messages(file, tmp_path / "n", config=SMALL)
    with rmqstore.open(tmp_path / "n") as store:
        (one, *_) = store.scan()
        assert len(store.query("orders", one.keys[0])) == 20


@pytest.mark.parametrize("only", ["body", "keys", "hosts"])
def test_one_redaction_changes_its_fields_alone(secret: Path, tmp_path: Path, only: str) -> None:
    toolbox.export(secret, tmp_path / "a.jsonl")
    toolbox.export(secret, tmp_path / "b.jsonl", redact=[only])
    before, after = (read(tmp_path / f"{name}.jsonl", "jsonl") for name in "ab")
    changed = {name for a, b in zip(before, after, strict=True) for name in a if a[name] != b[name]}
    assert (
        changed
        == {
            "body": {"body", "body_crc", "properties"},  # without __CRC32#, of the body too
            "keys": {"keys", "uniq_key", "properties"},
            "hosts": {"born_host", "store_host", "msg_id", "uniq_key", "properties"},
        }[only]
    )


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("killed", [False, True])
def test_damage(tmp_path: Path, form: str, killed: bool) -> None:
    root = damaged_store.make(tmp_path / "s")
    records = damaged_store.records(root)
    for bad in (0, 50, 51, 90, len(records) - 1):
        damaged_store.flip(root, records[bad].physical_offset + 95)
    if killed:
        damaged_store.killed(root)
    file = tmp_path / f"o.{form}"
    with pytest.raises(StoreCorruptError, match="BODYCRC"):
        toolbox.export(root, file)
    assert [one.name for one in tmp_path.iterdir()] == ["s"]
    done = toolbox.export(root, file, on_corruption="skip")
    good = [at for at in range(len(records)) if at not in (0, 50, 51, 90, len(records) - 1)]
    rows = read(file, form)
    assert [int(row["physical_offset"]) for row in rows] == [
        records[at].physical_offset for at in good
    ]
    assert done.messages == len(good)
    assert done.skipped == 3  # 50 and 51 are one place; the last one lies behind the log's end


def test_a_body_that_cannot_be_inflated(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        columns = {"topic": ["t"] * 3, "sys_flag": pa.array([0, 1, 0], pa.int32())}
        store.put_table(pa.table({**columns, "raw_body": [b"a", b"no stream", b"c"]}))
    for form in FORMATS:
        with pytest.raises(StoreCorruptError, match="inflated"):
            toolbox.export(tmp_path / "s", tmp_path / f"o.{form}")
        done = toolbox.export(tmp_path / "s", tmp_path / f"o.{form}", on_corruption="skip")
        assert (done.messages, done.skipped) == (2, 1), form


def test_nothing_is_replaced_or_left(broker: Path, tmp_path: Path) -> None:
    file = tmp_path / "o.csv"
    file.write_text("mine")
    with pytest.raises(FileExistsError, match="not replaced"):
        toolbox.export(broker, file)
    assert file.read_text() == "mine"
    (tmp_path / "p.csv.unfinished").touch()
    with pytest.raises(FileExistsError, match="not finished"):
        toolbox.export(broker, tmp_path / "p.csv")
    with pytest.raises(ValueError, match="outside the store"):
        toolbox.export(broker, broker / "o.csv")
    (broker / "commitlog").rename(log := tmp_path / "log")
    elsewhere = damaged_store.CONFIG.replace(store_path_commit_log=str(log))
    with pytest.raises(ValueError, match="outside the store"):
        toolbox.export(broker, log / "o.csv", config=elsewhere)
    log.rename(broker / "commitlog")
    with pytest.raises(ValueError, match="ending"):
        toolbox.export(broker, tmp_path / "o.xls")
    with pytest.raises(ValueError, match="redact must be one of"):
        toolbox.export(broker, tmp_path / "q.csv", redact=["bodies"])
    assert not (tmp_path / "q.csv").exists()


@pytest.mark.parametrize("form", FORMATS)
def test_an_open_file(broker: Path, tmp_path: Path, form: str) -> None:
    toolbox.export(broker, tmp_path / f"o.{form}")
    into = io.BytesIO()
    done = toolbox.export(broker, into, format=form)  # type: ignore[arg-type]
    assert into.getvalue() == (tmp_path / f"o.{form}").read_bytes()
    assert done.bytes == len(into.getvalue())
    into.seek(0)
    given: dict[str, Any] = {"format": form, "config": SMALL}
    made = toolbox.import_messages(into, tmp_path / "n", **given)
    assert made.bytes == done.bytes


def visible(root: Path) -> list[tuple[Any, ...]]:
    with rmqstore.open(root) as store:
        return [
            (name, queue_id, one.body, tuple(one.keys), one.tags, dict(one.properties))
            for name in sorted(store.topics)
            if not name.startswith(("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS"))
            for queue_id in list(store[name])
            for one in store[name][queue_id]
        ]


@pytest.mark.parametrize("form", FORMATS)
def test_a_brokers_visible_messages(broker: Path, tmp_path: Path, form: str) -> None:
    toolbox.export(broker, tmp_path / f"o.{form}")
    done = toolbox.import_messages(
        tmp_path / f"o.{form}", tmp_path / "n", keep_queues=True, config=SMALL
    )
    assert visible(tmp_path / "n") == visible(broker)
    assert done.messages + done.skipped == 3498
    assert done.messages == len(visible(broker))
    assert not list(tmp_path.glob("*.unfinished"))
    with rmqstore.open(tmp_path / "n") as store:
        assert not list(store.delayed())
        assert not list(store.in_doubt())


def test_delayed_and_half_messages_where_they_are_asked_for(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        store.put("orders", b"later", delay_level=18, tags="x")
        store.put("orders", b"now")
        store.begin("orders", b"half", producer_group="g")
    file = tmp_path / "o.jsonl"
    toolbox.export(tmp_path / "s", file)
    done = toolbox.import_messages(file, tmp_path / "a", config=SMALL)
    assert (done.messages, done.skipped) == (1, 2)
    waiting = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC")
    for name in ("b", "c"):
        done = toolbox.import_messages(
            file, tmp_path / name, topics=waiting, keep_time=name == "c", config=SMALL
        )
        assert (done.messages, done.skipped) == (2, 1)
        with rmqstore.open(tmp_path / name) as store:
            (later,) = store.delayed()
            assert later.message is not None
            assert (later.level, later.message.properties["REAL_TOPIC"]) == (18, "orders")
            (half,) = store.in_doubt()
            assert half.message is not None
            assert half.message.body == b"half"


def test_queues_take_turns_unless_they_are_kept(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        store.create_topic("t", 8)
        store.put_many("t", [b"%d" % number for number in range(12)], queue_id=7)
    toolbox.export(tmp_path / "s", tmp_path / "o.csv")
    for name, keep_time in (("a", False), ("b", True)):
        toolbox.import_messages(
            tmp_path / "o.csv", tmp_path / name, keep_time=keep_time, config=SMALL
        )
        with rmqstore.open(tmp_path / name) as store:
            counts = [len(list(store["t"][queue_id])) for queue_id in store["t"]]
        assert counts == [3, 3, 3, 3]
    with rmqstore.open(tmp_path / "c", "a", config=SMALL) as store:
        store.create_topic("t", 2, perm=4)
    toolbox.import_messages(tmp_path / "o.csv", tmp_path / "c", keep_queues=True)
    with rmqstore.open(tmp_path / "c") as store:
        assert list(store["t"]) == list(range(8))
        entry = store.registry.get("t")
        assert (entry.write_queue_nums, entry.perm) == (8, 4)


def test_into_a_store_with_messages(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        store.put("t", b"one")
    file = tmp_path / "o.jsonl"
    toolbox.export(tmp_path / "s", file)
    toolbox.import_messages(file, tmp_path / "s")
    with rmqstore.open(tmp_path / "s") as store:
        assert [one.body for one in store.scan()] == [b"one"] * 2
    with pytest.raises(ValueError, match="in a new store alone"):
        toolbox.import_messages(file, tmp_path / "s", keep_time=True)
    with rmqstore.open(tmp_path / "s", "r+"), pytest.raises(StoreLockedError):
        toolbox.import_messages(file, tmp_path / "s")
    line = json.loads(file.read_bytes())
    file.write_text("\n".join(json.dumps({**line, "store_timestamp": at}) for at in (5, 7, 6)))
    with pytest.raises(ValueError, match="line 3: store_timestamp 6 is before the one above"):
        toolbox.import_messages(file, tmp_path / "n", keep_time=True)
    assert not (tmp_path / "n").exists()


GOOD = {"topic": "t", "body": "x"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[1]", "must be an object of JSON"),
        ("no", "is no JSON"),
        ("{" * 100_000, "is no JSON"),
        (json.dumps({"topic": "t"}), "neither body nor body_base64"),
        (json.dumps({"body": "x"}), "topic must be a text"),
        (json.dumps({**GOOD, "topic": "a/b"}), "topic"),
        (json.dumps({**GOOD, "tagz": "a"}), "no field 'tagz'; did you mean 'tags'"),
        (json.dumps({**GOOD, "body_base64": "eA=="}), "body and body_base64"),
        (json.dumps({"topic": "t", "body_base64": "%%"}), "cannot be decoded"),
        (json.dumps({**GOOD, "queue_id": "1"}), "queue_id must be an integer"),
        (json.dumps({**GOOD, "flag": 2**40}), "flag"),
        (json.dumps({**GOOD, "flag": 2**70}), "64 bits"),
        (json.dumps({**GOOD, "keys": [1]}), "keys must be a list"),
        (json.dumps({**GOOD, "keys": ["a b"]}), "keys"),
        (json.dumps({**GOOD, "tags": "\x01"}), "tags"),
        (json.dumps({**GOOD, "tags": "\ud800"}), "tags cannot be"),
        (json.dumps({**GOOD, "properties": {"a": 1}}), "properties must be an object of texts"),
        (json.dumps({**GOOD, "tags": "a", "properties": {"TAGS": "b"}}), "tags"),
        (json.dumps({**GOOD, "born_timestamp": "yesterday"}), "must be a time"),
        (json.dumps({**GOOD, "born_host": "nowhere"}), "born_host"),
        (json.dumps({**GOOD, "body": "x" * (5 << 20)}), "bytes"),
        (json.dumps({**GOOD, "body_error": "x"}), "could not be inflated"),
    ],
)
@pytest.mark.parametrize("there", [False, True])
def test_a_line_that_is_no_message(tmp_path: Path, line: str, says: str, there: bool) -> None:
    if there:
        with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
            store.put("t", b"before")
    file = tmp_path / "o.jsonl"
    file.write_text(f"{json.dumps(GOOD)}\n\n{line}\n{json.dumps(GOOD)}\n")
    with pytest.raises(ValueError, match=r"o.jsonl, line 3: ") as told:
        toolbox.import_messages(file, tmp_path / "s", config=SMALL)
    assert says in str(told.value)
    assert "\n" not in str(told.value)
    assert not list(tmp_path.glob("*.unfinished"))
    if there:
        with rmqstore.open(tmp_path / "s") as store:
            assert [one.body for one in store.scan()] == [b"before"]
    else:
        assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("topic,tags\nt,a\n", "o.csv: it has no column 'body'"),
        ("body\nx\n", "o.csv: it has no column 'topic'"),
        ("topic,body,amount\nt,x,1\n", "o.csv: messages have no column 'amount'"),
        ("topic,body,body\nt,x,1\n", "'body' twice"),
        ("topic,body,tags\nt,x,\nt,x\n", "o.csv, line 3: has 2 cells for 3 columns"),
        ("topic,body,flag\nt,x,1\nt,x,one\n", "o.csv, line 3: flag must be an integer"),
        ('topic,body\nt,"x', "o.csv, line 2: "),
        ("topic,body,properties\nt,x,[]\n", "line 2: must be an object"),
        ("", "no column 'topic'"),
    ],
)
def test_csv_of_others(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "o.csv").write_text(text)
    with pytest.raises(ValueError, match=says):
        toolbox.import_messages(tmp_path / "o.csv", tmp_path / "s", config=SMALL)
    assert not (tmp_path / "s").exists()


def test_two_columns_are_enough(tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_bytes(b'\xef\xbb\xbftopic,body\r\norders,"a\r\nb"\r\norders,\r\n')
    pq.write_table(pa.table({"topic": ["orders"], "body": [b"c"]}), tmp_path / "o.parquet")
    for name in ("o.csv", "o.parquet"):
        toolbox.import_messages(tmp_path / name, tmp_path / "s", config=SMALL)
    with rmqstore.open(tmp_path / "s") as store:
        assert [one.body for one in store.scan()] == [b"a\r\nb", b"", b"c"]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_columns_of_others(tmp_path: Path, form: str) -> None:
    def refused(file: Path, says: str) -> None:
        with pytest.raises(ValueError, match=says) as told:
            toolbox.import_messages(file, tmp_path / "s", config=SMALL)
        assert "\n" not in str(told.value)
        assert not (tmp_path / "s").exists()

    def write(table: Any) -> Path:
        file = tmp_path / f"o.{form}"
        if form == "parquet":
            pq.write_table(table, file)
        else:
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
        return file

    good = {"topic": ["t", "t"], "body": [b"a", b"b"]}
    refused(write(pa.table({"order": [1]})), "no column 'order'")
    refused(write(pa.table({**good, "tag": ["a", "b"]})), "did you mean 'tags'")
    refused(write(pa.table({"topic": ["t"]})), "no column 'body'")
    refused(write(pa.table({**good, "topic": ["t", None]})), "row 2: ")
    refused(write(pa.table({**good, "topic": [1, 2]})), "topic")
    refused(write(pa.table({**good, "queue_id": [0, -1]})), "row 2: ")
    file = tmp_path / f"o.{form}"
    data = write(pa.table(good)).read_bytes()
    for cut in (0, 3, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:cut])
        refused(file, f"is no {form} file")


def test_random_bytes_are_no_file_of_messages(tmp_path: Path) -> None:
    import random

    told = []
    chance = random.Random(7)
    pq.write_table(pa.table({"topic": ["t"] * 50, "body": [b"a"] * 50}), tmp_path / "o.parquet")
    data = (tmp_path / "o.parquet").read_bytes()
    for _ in range(100):
        bad = bytearray(data)
        for _ in range(3):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        (tmp_path / "o.parquet").write_bytes(bad)
        try:
            toolbox.import_messages(tmp_path / "o.parquet", tmp_path / "s", config=SMALL)
        except ValueError as error:
            told.append(str(error))
    assert len(told) > 10
    assert all("o.parquet" in text for text in told)
