"""The command line: what each verb prints, its exit code, and that it only reads."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import rmqstore
from rmqstore.cli import main
from rmqstore.config import StoreConfig
from rmqstore.times import to_millis

pytestmark = pytest.mark.pure

CONF = """
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=6000
maxHashSlotNum=1000
maxIndexNum=4000
"""
FIELDS = [
    "topic", "queue_id", "queue_offset", "physical_offset", "store_size", "msg_id", "uniq_key",
    "tags", "keys", "properties", "body", "flag", "sys_flag", "born_timestamp", "store_timestamp",
    "born_host", "store_host", "reconsume_times", "prepared_transaction_offset", "body_crc",
]  # fmt: skip

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three topics, closed."""
    root = tmp_path_factory.mktemp("cli") / "store"
    with rmqstore.open(root, "a", config=StoreConfig.small()) as store:
        store.create_topic("orders", 2)
        for number in range(20):
            store.put(
                "orders",
                f"order {number}".encode(),
                queue_id=number % 2,
                tags="even" if number % 4 < 2 else "odd",
                keys=[f"o-{number}", "all"],
                properties={"n": str(number)},
            )
        store.put("binary", b"\xff\xfe\0", queue_id=0, keys="all", tags="[red]\x1b[31m")
        store.put("binary", b'{"a":[1,2]}', queue_id=0)
        store.put("Topic1", b"Hello RocketMQ", queue_key=2, tags="TagA", keys="seed")
    return root


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("RMQSTORE_PATH", raising=False)

    def invoke(*args: object, **options: object) -> Result:
        return CliRunner().invoke(main, [str(one) for one in args], **options)  # type: ignore[arg-type]

    return invoke


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    file = tmp_path / "broker.conf"
    file.write_text(CONF)
    return file


def rows(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def listing(root: Path) -> dict[str, tuple[int, int]]:
    every = [root, *root.rglob("*")]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in every}


def one_line(result: Result, code: int) -> str:
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("rmqstore: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_help_loads_neither_store_nor_numpy() -> None:
    code = (
        "import sys, rmqstore; before = set(sys.modules)\n"
        "from rmqstore.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "new = set(sys.modules) - before\n"
        "assert not new & {'numpy', 'rich', 'rmqstore._core', 'rmqstore.store'}, new\n"
        "assert not {'numpy', 'xxhash', 'pyarrow'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for verb in ("info", "topics", "queues", "cat", "get", "find", "put", "demo"):
        assert f"\n  {verb} " in done.stdout


@pytest.mark.parametrize("verb", ["info", "topics", "queues", "cat", "get", "find", "put", "demo"])
def test_each_verb_has_help(run: Run, verb: str) -> None:
    result = run(verb, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: rmqstore {verb} [OPTIONS] ")


def test_no_verb_shows_help_and_is_usage(run: Run) -> None:
    result = run()
    assert result.exit_code == 2
    assert "Verbs:" in result.stderr


def test_info(run: Run, filled: Path) -> None:
    [facts] = rows(run("info", filled))
    assert facts["clean"] is True
    assert (facts["topics"], facts["messages"]) == (3, 23)
    assert facts["log_start"] == 0
    assert facts["sizes"] == {
        "mapped_file_size_commit_log": 16 << 20,
        "mapped_file_size_consume_queue": 120_000,
        "max_hash_slot_num": 50_000,
        "max_index_num": 200_000,
    }
    table = run("info", filled, "-o", "table")
    assert "closed cleanly" in table.stdout
    assert "23 in " in table.stdout
    [head, line] = csv.reader(io.StringIO(run("info", filled, "-o", "csv").stdout))
    assert dict(zip(head, line, strict=True))["clean"] == "true"


def test_topics(run: Run, filled: Path) -> None:
    found = {row["topic"]: row for row in rows(run("topics", filled))}
    assert list(found) == ["Topic1", "binary", "orders"]
    assert found["orders"]["messages"] == 20
    assert found["orders"]["read_queue_nums"] == 2
    assert found["orders"]["perm"] == "RW"
    begin, end = found["orders"]["first_store_timestamp"], found["orders"]["last_store_timestamp"]
    assert isinstance(begin, str)
    assert isinstance(end, str)
    assert to_millis(begin, name="") <= to_millis(end, name="")
    table = run("topics", filled, "-o", "table").stdout.splitlines()
    assert table[0].split()[:4] == ["topic", "perm", "read", "write"]
    assert len(table) == 4


def test_queues(run: Run, filled: Path) -> None:
    found = rows(run("queues", filled, "-t", "orders"))
    assert [(row["queue_id"], row["min_offset"], row["max_offset"]) for row in found] == [
        (0, 0, 10),
        (1, 0, 10),
    ]
    assert "nope" in one_line(run("queues", filled, "-t", "nope"), 1)


def test_cat_is_in_log_order_with_all_columns(run: Run, filled: Path) -> None:
    found = rows(run("cat", filled, "--body", "utf8"))
    assert len(found) == 23
    assert all(list(row) == FIELDS for row in found)
    offsets = [row["physical_offset"] for row in found]
    assert offsets == sorted(offsets)  # type: ignore[type-var]
    assert found[3]["body"] == "order 3"
    assert found[3]["keys"] == ["o-3", "all"]
    assert found[3]["tags"] == "odd"
    properties = found[3]["properties"]
    assert isinstance(properties, dict)
    assert properties["n"] == "3"
    assert str(found[3]["store_timestamp"]).endswith("Z")


@pytest.mark.parametrize(
    ("options", "bodies"),
    [
        (["-q", "0", "--from", "7"], [14, 16, 18]),
        (["-q", "1", "--from", "2", "--until", "4"], [5, 7]),
        (["-q", "1", "--from", "-2"], [17, 19]),
        (["--from", "-3"], [17, 18, 19]),
        (["-n", "2"], [0, 1]),
        (["-n", "0"], []),
        (["--tags", "odd", "-n", "3"], [2, 3, 6]),
        (["--tags", "odd || even", "-n", "2"], [0, 1]),
        (["--from", "-1h", "--until", "now", "-n", "1"], [0]),
        (["--until", "1999-01-01"], []),
        (["--from", "2999-01-01T00:00Z"], []),
        (["--from", "@0", "-n", "1"], [0]),
    ],
)
def test_cat_selects(run: Run, filled: Path, options: list[str], bodies: list[int]) -> None:
    time.sleep(0.002)  # "now" is later than the last message
    found = rows(run("cat", filled, "-t", "orders", *options))
    assert [row["body"] for row in found] == [f"order {number}" for number in bodies]


def test_cat_from_a_physical_offset(run: Run, filled: Path) -> None:
    every = rows(run("cat", filled))
    start, stop = every[5]["physical_offset"], every[9]["physical_offset"]
    assert rows(run("cat", filled, "--from", start, "--until", stop)) == every[5:9]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("auto", [{"body_base64": "//4A"}, {"body": '{"a":[1,2]}'}]),
        ("utf8", [{"body": "\ufffd\ufffd\0"}, {"body": '{"a":[1,2]}'}]),
        ("base64", [{"body_base64": "//4A"}, {"body_base64": "eyJhIjpbMSwyXX0="}]),
        ("hex", [{"body_hex": "fffe00"}, {"body_hex": "7b2261223a5b312c325d7d"}]),
        ("json", [{"body_base64": "//4A"}, {"body": {"a": [1, 2]}}]),
        ("none", [{}, {}]),
    ],
)
def test_body_modes(run: Run, filled: Path, mode: str, expected: list[dict[str, object]]) -> None:
    found = rows(run("cat", filled, "-t", "binary", "--body", mode))
    bodies = [
        {
            name: value
            for name, value in row.items()
            if name.startswith("body") and "crc" not in name
        }
        for row in found
    ]
    assert bodies == expected


def test_format(run: Run, filled: Path) -> None:
    form = r"%t|%q|%o|%k|%g|%s|%S|100%%\t\x41\n"
    result = run("cat", filled, "-t", "orders", "-n", "2", "-f", form)
    assert result.stdout == (
        "orders|0|0|o-0 all|even|order 0|7|100%\tA\norders|1|0|o-1 all|even|order 1|7|100%\tA\n"
    )
    raw = run("cat", filled, "-t", "binary", "-n", "1", "-f", "%s")
    assert raw.stdout_bytes == b"\xff\xfe\0"
    whole = run("cat", filled, "-t", "orders", "-n", "1", "-f", r"%J\n", "--body", "hex")
    assert json.loads(whole.stdout)["body_hex"] == b"order 0".hex()


@pytest.mark.parametrize("form", ["%z", "%", "\\q", "x\\"])
def test_format_that_means_nothing(run: Run, filled: Path, form: str) -> None:
    assert "in the format means nothing" in one_line(run("cat", filled, "-f", form), 2)


def test_table_and_csv(run: Run, filled: Path) -> None:
    table = run("cat", filled, "-t", "binary", "-o", "table")
    assert "\x1b" not in table.stdout
    assert r"[red]\x1b[31m" in table.stdout
    [first, second] = csv.DictReader(
        io.StringIO(run("cat", filled, "-t", "binary", "-o", "csv").stdout)
    )
    assert (first["body"], first["body_base64"]) == ("", "//4A")
    assert (second["body"], second["body_base64"]) == ('{"a":[1,2]}', "")
    assert json.loads(second["properties"])["UNIQ_KEY"] == second["uniq_key"]


def test_get(run: Run, filled: Path) -> None:
    [row] = rows(run("cat", filled, "-t", "Topic1"))
    assert rows(run("get", filled, row["msg_id"])) == [row]
    assert rows(run("get", filled, row["uniq_key"])) == [row]
    shown = run("get", filled, row["msg_id"], "-o", "table").stdout
    assert "Hello RocketMQ" in shown
    assert "tags" in shown
    assert run("get", filled, row["msg_id"], "-f", "%s").stdout == "Hello RocketMQ"
    one_line(run("get", filled, "F" * 32), 1)
    one_line(run("get", filled, "nonsense"), 1)


def test_find(run: Run, filled: Path) -> None:
    assert [row["body"] for row in rows(run("find", filled, "-k", "o-7"))] == ["order 7"]
    everywhere = rows(run("find", filled, "--key", "all"))
    assert len(everywhere) == 21
    offsets = [row["physical_offset"] for row in everywhere]
    assert offsets == sorted(offsets, reverse=True)  # type: ignore[type-var]
    assert rows(run("find", filled, "--key", "all", "-n", "2")) == everywhere[:2]
    assert len(rows(run("find", filled, "--key", "all", "-t", "orders"))) == 20
    assert rows(run("find", filled, "--key", "all", "--from", "-1h")) == everywhere
    assert "has the key 'all'" in one_line(run("find", filled, "-k", "all", "--until", "@1"), 1)
    assert "has the key 'zz'" in one_line(run("find", filled, "--key", "zz"), 1)
    assert "'nope'" in one_line(run("find", filled, "--key", "all", "-t", "nope"), 1)
    assert "--key" in one_line(run("find", filled), 2)


def test_reading_changes_nothing(run: Run, filled: Path) -> None:
    before = listing(filled)
    for args in (["info"], ["topics"], ["queues"], ["cat"], ["find", "-k", "all"]):
        assert run(args[0], filled, *args[1:]).exit_code == 0
    assert listing(filled) == before


def test_path_from_the_environment(
    run: Run, filled: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RMQSTORE_PATH", str(filled))
    assert len(rows(run("cat"))) == 23
    [row] = rows(run("cat", "-t", "Topic1"))
    assert rows(run("get", row["msg_id"])) == [row]
    one_line(run("cat", "--store", tmp_path / "none"), 4)
    one_line(run("cat", tmp_path / "none"), 4)
    assert "unexpected argument" in one_line(run("cat", filled, "more"), 2)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["cat"], "STORE is needed, or RMQSTORE_PATH"),
        (["get", "some-id"], "STORE and ID are needed"),
        (["nope"], "'nope'"),
        (["cat", "{}", "--nope"], "--nope"),
        (["cat", "{}", "-o", "xml"], "xml"),
        (["cat", "{}", "--from", "soon"], "--from is 'soon'"),
        (["cat", "{}", "--until", "-5"], "--until takes"),
        (["cat", "{}", "--until", "5", "--follow"], "do not go together"),
        (["cat", "{}", "-q", "-1"], "-1"),
        (["find", "{}", "-k", "x", "--from", "2026-99-99"], "--from is '2026-99-99'"),
        (["put", "{}", "t", "-p", "noequals"], "must be NAME=VALUE"),
    ],
)
def test_usage(run: Run, filled: Path, args: list[str], says: str) -> None:
    line = one_line(run(*[one.replace("{}", str(filled)) for one in args]), 2)
    assert says in line
    assert "--help')" in line


def test_no_such_store(run: Run, tmp_path: Path) -> None:
    for verb in (["info"], ["topics"], ["queues"], ["cat"], ["find", "-k", "x"]):
        line = one_line(run(verb[0], tmp_path / "none", *verb[1:]), 4)
        assert "commitlog" in line
    assert not (tmp_path / "none").exists()
    assert "queue 77" in one_line(run("cat", self_made(tmp_path), "-q", 77), 1)


def self_made(tmp_path: Path) -> Path:
    root = tmp_path / "own"
    with rmqstore.open(root, "a", config=StoreConfig.small()) as store:
        store.put("t", b"x")
    return root


def test_locked(run: Run, tmp_path: Path) -> None:
    root = self_made(tmp_path)
    with rmqstore.open(root, "r+"):
        line = one_line(run("put", root, "t", input=b"a\n"), 3)
        assert "stop the other process first" in line
        assert len(rows(run("cat", root))) == 1


def test_put(run: Run, tmp_path: Path, conf: Path) -> None:
    root = tmp_path / "new"
    lines = b"first\n\n\xff\xfe\nlast without an end"
    options = ["--tags", "T", "--keys", "a b", "-p", "x=1", "-p", "y=a=b", "-q", "1"]
    result = run("put", root, "events", "-c", conf, *options, input=lines)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert "4 messages stored in events" in result.stderr
    found = rows(run("cat", root, "--body", "hex"))
    assert [bytes.fromhex(str(row["body_hex"])) for row in found] == lines.split(b"\n")
    for row in found:
        assert (row["topic"], row["queue_id"], row["tags"]) == ("events", 1, "T")
        assert row["keys"] == ["a", "b"]
        properties = row["properties"]
        assert isinstance(properties, dict)
        assert (properties["x"], properties["y"]) == ("1", "a=b")
    [facts] = rows(run("info", root))
    sizes = facts["sizes"]
    assert isinstance(sizes, dict)
    assert sizes["mapped_file_size_commit_log"] == 1048576


def test_put_adds_to_a_store_and_goes_round(run: Run, tmp_path: Path, conf: Path) -> None:
    root = tmp_path / "new"
    for _ in range(2):
        assert run("put", root, "t", "-c", conf, input=b"1\n2\n3\n4\n").exit_code == 0
    assert {row["queue_id"]: row["messages"] for row in rows(run("queues", root))} == {
        0: 2, 1: 2, 2: 2, 3: 2,
    }  # fmt: skip


def test_put_many_lines(run: Run, tmp_path: Path, conf: Path) -> None:
    root = tmp_path / "new"
    lines = b"".join(b"%07d\n" % number * 3 for number in range(30_000))
    assert "90,000 messages" in run("put", root, "t", "-q", 0, "-c", conf, input=lines).stderr
    shown = run("cat", root, "-f", r"%s\n")
    assert shown.stdout_bytes == lines


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["bad/topic"], "topic"),
        (["t", "-p", "TAGS=x"], "TAGS"),
        (["t", "-p", "a=b\x01c"], "propert"),
    ],
)
def test_put_refuses(run: Run, tmp_path: Path, conf: Path, options: list[str], says: str) -> None:
    root = tmp_path / "new"
    line = one_line(run("put", root, *options, "-c", conf, input=b"a\n"), 2)
    assert says in line
    assert "0 messages were stored before" in line or not root.exists()


def test_put_without_a_message_leaves_the_store_alone(run: Run, tmp_path: Path, conf: Path) -> None:
    result = run("put", tmp_path / "new", "t", "-c", conf, input=b"")
    assert result.exit_code == 0
    assert "no messages" in result.stderr
    assert not (tmp_path / "new").exists()


def test_bad_configuration_names_its_line(run: Run, filled: Path, conf: Path) -> None:
    conf.write_text("maxIndexNum=0\n")
    assert "line 1: maxIndexNum is 0" in one_line(run("cat", filled, "-c", conf), 2)
    one_line(run("cat", filled, "-c", conf.with_name("none")), 4)


def test_demo(run: Run, tmp_path: Path, conf: Path) -> None:
    root = tmp_path / "demo"
    for times in (1, 2):
        result = run("demo", root, "-n", 3000, "-c", conf)
        assert result.exit_code == 0, result.output
        for part in ("put_many", "one by one", "queue orders/", "orders by key", "commitlog"):
            assert part in result.stdout
        assert "Topic1/2: 'Hello RocketMQ', tag TagA, psly=psly" in result.stdout
        [facts] = rows(run("info", root))
        assert facts["messages"] == 3000 * times
        assert facts["clean"] is True
    seeds = rows(run("cat", root, "-t", "Topic1"))
    assert {(row["queue_id"], row["tags"]) for row in seeds} == {(2, "TagA")}
    [order] = {row["body"] for row in rows(run("cat", root, "-t", "payments", "-n", 1))}
    name = json.loads(str(order))["order"]
    assert [row["tags"] for row in rows(run("find", root, "--key", name))] == [
        "closed",
        "delivered",
        "shipped",
        "paid",
        "created",
    ]


def test_demo_leaves_other_directories_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("dear")
    assert "something else" in one_line(run("demo", tmp_path / "letters"), 2)
    assert "no directory" in one_line(run("demo", tmp_path / "letters" / "a.txt"), 2)
    assert [path.name for path in (tmp_path / "letters").iterdir()] == ["a.txt"]


def start(*args: object) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONUNBUFFERED": ""}
    # A process in the background may ignore interrupts, and its children would too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "rmqstore", *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=StoreConfig.small()) as store:
        store.put_many("t", [b"x" * 500] * 5000, queue_id=0)
    with start("cat", root) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=30) == 0
        assert process.stderr.read() == b""


def test_follow_shows_what_comes(tmp_path: Path) -> None:
    root = self_made(tmp_path)
    with start("cat", root, "-t", "t", "--from", "-1", "--follow", "-f", r"%s\n") as following:
        assert following.stdout is not None
        assert following.stdout.readline() == b"x\n"
        with rmqstore.open(root, "r+") as store:
            store.put("t", b"later", queue_id=1)
            assert following.stdout.readline() == b"later\n"
            store.put("t", b"last", queue_id=0)
            assert following.stdout.readline() == b"last\n"
        following.send_signal(signal.SIGINT)
        try:
            assert following.wait(timeout=30) == 0
        finally:
            following.kill()
