"""``du``, ``stats``, ``grep``, ``trace``, ``unconsumed`` and ``offsets`` as people type them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rmqstore
from support.command_line import Run, one_line, rows

pytestmark = pytest.mark.pure

TOOLS = ("du", "stats", "grep", "trace", "unconsumed", "offsets")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    config = rmqstore.StoreConfig.small()
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        store.create_topic("orders", 2)
        for number in range(6):
            store.put(
                "orders", b"order %d" % number, queue_id=number % 2, keys=f"k{number}", tags="t"
            )
        store.put("audit", b"x" * 1000, queue_id=0)
        with store.consumer("orders", group="billing") as orders:
            messages = iter(orders)
            for _ in range(4):
                next(messages)
            orders.commit()
    return tmp_path / "s"


def test_du(run: Run, root: Path) -> None:
    audit, orders = rows(run("du", root))
    assert (audit["topic"], audit["messages"], orders["messages"]) == ("audit", 1, 6)
    assert list(orders) == ["topic", "messages", "bytes", "first", "last"]
    assert rows(run("du", root, "--by", "topic,queue", "--top", "1"))[0]["queue"] == 0
    assert {one["tag"] for one in rows(run("du", root, "--by", "tag"))} == {"t", None}
    heading, line, _ = run("du", root, "-o", "table").stdout.splitlines()
    assert heading.split() == ["topic", "messages", "bytes", "share", "first", "last"]
    assert "%" in line
    assert "#" in line
    assert run("du", root, "-o", "csv").stdout.startswith("topic,messages,bytes,first,last\n")
    error = one_line(run("du", root, "--by", "size"), 2)
    assert "--by must be some of topic queue group day hour tag, got 'size'" in error


def test_du_tells_of_damage(run: Run, root: Path) -> None:
    with rmqstore.open(root) as store:
        offsets = [store["orders"][0][number].physical_offset for number in (0, 2)]
    (log,) = (root / "commitlog").iterdir()
    with log.open("r+b") as file:
        for offset in offsets:
            file.seek(offset + 90)
            file.write(b"#")
    result = run("du", root, "--by", "tag,day")
    assert sum(int(str(row["messages"])) for row in rows(result)) == 5
    assert result.stderr.count("\n") == 1
    assert "rmqstore: 2 damaged places of the log left out, the first: " in result.stderr
    assert f"offset {offsets[0]}: " in result.stderr
    by_topic = run("du", root)  # reads no record but the first and last
    assert sum(int(str(row["messages"])) for row in rows(by_topic)) == 7
    assert by_topic.stderr == ""


def test_stats(run: Run, root: Path) -> None:
    (found,) = rows(run("stats", root, "orders"))
    assert (found["messages"], found["tags"], found["keys_distinct_estimate"]) == (6, {"t": 6}, 6)
    assert str(found["first"]).endswith("Z")
    assert "6 different" in run("stats", root, "orders", "-o", "table").stdout
    assert "did you mean 'orders'" in one_line(run("stats", root, "order"), 1)
    assert "STORE and TOPIC are needed" in one_line(run("stats", root), 2)


def test_grep(run: Run, root: Path) -> None:
    assert run("grep", root, "order [34]", "-f", "%s\\n").stdout == "order 3\norder 4\n"
    assert len(rows(run("grep", root, "ORDER", "-i", "-t", "orders", "-n", "2"))) == 2
    assert len(rows(run("grep", root, "-F", "KEYS=k1", "--properties", "--jobs", "1"))) == 1
    assert "no message has 'nothing'" in one_line(run("grep", root, "nothing"), 1)
    assert "no message has" in one_line(run("grep", root, "[[o]rder nothing"), 1)  # no warning
    assert "invalid regular expression" in one_line(run("grep", root, "("), 2)
    assert "no topic 'order'" in one_line(run("grep", root, "x", "-t", "order"), 1)


def test_grep_beside_damage(run: Run, root: Path) -> None:
    with rmqstore.open(root) as store:
        offset = store["orders"][0][1].physical_offset
    (log,) = (root / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(offset + 90)
        file.write(b"#")
    result = run("grep", root, "order", "-f", "%s\\n")
    assert (result.exit_code, len(result.stdout.splitlines())) == (4, 5)
    assert "1 damaged message was left out" in result.stderr


def test_trace(run: Run, root: Path) -> None:
    stored, passed = rows(run("trace", root, "k0"))
    assert (stored["step"], passed["step"], passed["group"]) == ("stored", "passed", "billing")
    assert (passed["time"], stored["queue_offset"]) == (None, 0)
    table = run("trace", root, "k0", "-o", "table").stdout.splitlines()
    assert len(table) == 3
    assert table[0].startswith("time")
    assert "no message has the key or id 'k9'" in one_line(run("trace", root, "k9"), 1)
    assert "for topic 'audit'" in one_line(run("trace", root, "k0", "-t", "audit"), 1)


def test_unconsumed(run: Run, root: Path) -> None:
    every = rows(run("unconsumed", root, "-g", "billing"))
    assert len(every) == 2
    assert rows(run("unconsumed", root, "-g", "billing", "-n", "1")) == every[:1]
    assert "did you mean 'billing'" in one_line(run("unconsumed", root, "-g", "bill"), 1)
    assert "-g" in run("unconsumed", root).stderr


def test_offsets(run: Run, root: Path) -> None:
    before = rows(run("offsets", root, "get", "-g", "billing"))
    planned = run("offsets", root, "set", "-g", "billing", "--to", "first")
    assert (planned.exit_code, planned.stderr) == (
        1,
        "rmqstore: nothing was changed; --apply sets these\n",
    )
    changed = [json.loads(line) for line in planned.stdout.splitlines()]
    assert [(one["was"], one["is"]) for one in changed] == [
        (one["is"], 0) for one in before if one["is"]
    ]
    assert rows(run("offsets", root, "set", "-g", "billing", "--to", "first", "--apply")) == changed
    assert rows(run("offsets", root, "set", "-g", "billing", "--to", "first")) == []
    assert rows(run("offsets", root, "clone", "-g", "b", "--from-group", "billing", "--apply"))
    late = rows(run("offsets", root, "by-time", "-g", "b", "--to", "now", "--apply"))
    assert {one["is"] for one in late} == {3}


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("get", "-g", "nobody"), 1, "group 'nobody' has no offset"),
        (("get", "-g", "billing", "--to", "1"), 2, "get takes no --to"),
        (("get", "-g", "billing", "--apply"), 2, "get takes no --apply"),
        (("set", "-g", "billing"), 2, "set needs --to"),
        (("set", "-g", "billing", "--to", "soon"), 2, "--to must be an offset, first or last"),
        (("set", "-g", "billing", "--to", "99"), 2, "--to must be 0 to 3 in orders/0, got 99"),
        (("by-time", "-g", "billing", "--to", "soon"), 2, "--to must be a time"),
        (("clone", "-g", "billing"), 2, "clone needs --from-group"),
        (("reset", "-g", "billing"), 2, "ACTION is one of get, set, by-time, clone"),
    ],
)
def test_refused_offsets(
    run: Run, root: Path, words: tuple[str, ...], code: int, text: str
) -> None:
    assert text in one_line(run("offsets", root, *words), code)


def test_locked_store(run: Run, root: Path) -> None:
    with rmqstore.open(root, "r+"):
        refused = run("offsets", root, "set", "-g", "billing", "--to", "first", "--apply")
        assert "open for writing elsewhere" in one_line(refused, 3)
        for words in (("du",), ("stats", "orders"), ("trace", "k0"), ("grep", "order")):
            assert run(words[0], root, *words[1:]).exit_code == 0


@pytest.mark.parametrize("verb", TOOLS)
def test_no_store(run: Run, tmp_path: Path, verb: str) -> None:
    words = {"stats": ["t"], "grep": ["x"], "trace": ["k"], "offsets": ["get", "-g", "g"]}
    options = ["-g", "g"] if verb == "unconsumed" else words.get(verb, [])
    one_line(run(verb, tmp_path / "missing", *options), 4)
    assert list(tmp_path.iterdir()) == []
