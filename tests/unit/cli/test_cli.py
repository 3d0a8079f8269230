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
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore.base.times import to_millis
from rmqstore.config.store_config import StoreConfig
from support.command_line import Run, one_line, rows

pytestmark = pytest.mark.pure

FIELDS = [
    "topic", "queue_id", "queue_offset", "physical_offset", "store_size", "msg_id", "uniq_key",
    "tags", "keys", "properties", "body", "flag", "sys_flag", "born_timestamp", "store_timestamp",
    "born_host", "store_host", "reconsume_times", "prepared_transaction_offset", "body_crc",
]  # fmt: skip


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


def listing(root: Path) -> dict[str, tuple[int, int]]:
    every = [root, *root.rglob("*")]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in every}


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
        (["--sql", "n BETWEEN 7 AND 11"], [7, 8, 9, 10, 11]),
        (["--sql", "n > 4 AND KEYS IS NOT NULL", "--tags", "odd", "-n", "2"], [6, 7]),
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


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--tags", "a |"], "found a single '|' (at character 2)"),
        (["--tags", "paid && x"], "found '&&' (at character 5)"),
        (["--tags", "amount > 5"], "found '>' (at character 7)"),
        (["--sql", "n >"], "found the end (at character 3)"),
        (["--sql", ""], "found the end (at character 0)"),
        (["-t", "no such topic", "--sql", "n > 5 AND 'a\nb"], "an unfinished text"),
    ],
)
def test_cat_refuses_a_bad_filter(
    run: Run, filled: Path, tmp_path: Path, options: list[str], text: str
) -> None:
    assert text in one_line(run("cat", filled, *options), 2)
    with rmqstore.open(tmp_path / "empty", "a", config=StoreConfig.small()):
        pass
    assert text in one_line(run("cat", tmp_path / "empty", *options), 2)


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
        (["nope"], "no verb 'nope' (see"),
        (["topic"], "no verb 'topic'; did you mean 'topics'?"),
        (["cat", "{}", "-t", "a", "-t", "b"], "--topic is given 2 times"),
        (["queues", "{}", "--topic", "a", "-t", "a"], "--topic is given 2 times"),
        (["find", "{}", "-k", "x", "-t", "a", "-t", "b"], "--topic is given 2 times"),
        (["cat", "{}", "--nope"], "--nope"),
        (["cat", "{}", "-o", "xml"], "xml"),
        (["cat", "{}", "--from", "soon"], "got 'soon'"),
        (["cat", "{}", "--until", "-5"], "--until takes"),
        (["cat", "{}", "--until", "5", "--follow"], "do not go together"),
        (["cat", "{}", "-q", "-1"], "-1"),
        (["find", "{}", "-k", "x", "--from", "2026-99-99"], "got '2026-99-99'"),
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


def test_put_makes_no_store_among_other_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    line = one_line(run("put", tmp_path, "t", input=b"a\n"), 2)
    assert "holds something else than a store" in line
    assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]
    assert "is no directory" in one_line(run("put", tmp_path / "notes.txt", "t", input=b"a\n"), 2)
    (tmp_path / "empty").mkdir()
    assert run("put", tmp_path / "empty", "t", input=b"a\n").exit_code == 0


def test_until_is_the_end_itself_not_included(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=StoreConfig.small()) as store:
        times = []
        for _ in range(3):
            times.append(store.put("t", b"x", keys="k", queue_id=0).store_timestamp)
            while time.time() * 1000 < times[-1] + 2:
                time.sleep(0.001)
    for verb in (["cat"], ["find", "-k", "k"]):
        found = rows(run(verb[0], root, *verb[1:], "--until", f"@{times[2]}"))
        assert sorted(row["queue_offset"] for row in found) == [0, 1]
        found = rows(run(verb[0], root, *verb[1:], "--from", f"@{times[1]}"))
        assert sorted(row["queue_offset"] for row in found) == [1, 2]


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
def test_a_time_is_read_as_it_is_shown(run: Run, filled: Path) -> None:
    [seed] = rows(run("cat", filled, "-t", "Topic1"))
    stored = to_millis(str(seed["store_timestamp"]), name="")
    for zone, zones in (("--utc", "Z"), ("--local", ("+01:00", "+02:00"))):
        for verb in (["cat", "-t", "Topic1"], ["find", "-k", "seed"]):
            [row] = rows(run(verb[0], filled, *verb[1:], zone))
            shown = str(row["store_timestamp"])
            assert shown.endswith(zones)
            assert to_millis(shown, name="") == stored
            assert str(row["born_timestamp"]).endswith(zones)
            # Without its zone it means the same, whichever of the options stands first.
            bare = shown.removesuffix("Z")[: len("2026-01-31T08:00:00.000")]
            for options in ([zone, "--from", bare], ["--from", bare, zone]):
                assert rows(run(verb[0], filled, *verb[1:], *options)) == [row]
            later = run(verb[0], filled, *verb[1:], zone, "--until", bare)
            assert later.stdout == ""
        for verb in (["info"], ["topics"], ["queues"]):
            for row in rows(run(verb[0], filled, *verb[1:], zone)):
                assert str(row["last_store_timestamp"]).endswith(zones)
        assert run("cat", filled, "-t", "Topic1", zone, "-f", "%T %B").stdout.endswith(zones)
        assert seed["uniq_key"] in run("get", filled, seed["uniq_key"], zone).stdout
    by_default = rows(run("cat", filled, "-t", "Topic1"))
    assert by_default == rows(run("cat", filled, "-t", "Topic1", "--utc"))


@pytest.mark.parametrize("verb", ["cat", "find"])
def test_help_says_how_a_time_is_read(run: Run, verb: str) -> None:
    text = " ".join(run(verb, "--help").stdout.split())
    assert "without a zone it is UTC, with --local local time" in text
    assert "--utc / --local" in text


def test_locked(run: Run, tmp_path: Path) -> None:
    root = self_made(tmp_path)
    code = """if True:
        import rmqstore, sys
        with rmqstore.open(sys.argv[1], 'r+'):
            print(flush=True)
            sys.stdin.read()"""
    with subprocess.Popen(
        [sys.executable, "-c", code, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == b"\n"
        line = one_line(run("put", root, "t", input=b"a\n"), 3)
        assert "stop the other process first" in line
        assert f"by process {other.pid} (" in line
        assert len(rows(run("cat", root))) == 1


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
        assert process.wait(timeout=60) == 0
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
            assert following.wait(timeout=60) == 0
        finally:
            following.kill()
