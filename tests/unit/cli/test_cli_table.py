"""Tables on terminals of different widths: what is shortened, what is left out, what is not."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from rmqstore.cli import output
from rmqstore.cli.output import Column
from rmqstore.cli.table import TableWriter, fit
from rmqstore.cli.text import shorten, width_of
from rmqstore.config.store_config import StoreConfig
from support.terminals import on_terminal

pytestmark = pytest.mark.pure

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)(?=\s|$)")
BEGUN = re.compile(r"\d{4}-\d\d")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with topics, keys and bodies of many widths."""
    path = tmp_path_factory.mktemp("table") / "store"
    with rmqstore.open(path, "a", config=StoreConfig.small()) as store:
        for number in range(300):
            store.put("orders", b"%d " % number * 40, queue_id=1, tags="paid", keys=f"o-{number}")
        store.put("%RETRY%a-group-with-a-long-name", b"x" * 500, queue_id=0, keys="k" * 50)
        store.put(
            "orders",
            "\u8ba2\u5355\x1b[31m".encode() * 30,
            queue_id=0,
            tags="\u652f\u4ed8" * 20,
            keys="all",
        )
        for number in range(300):
            store.put("late-and-rather-long-topic", b"%d" % number, queue_id=number % 2)
    return path


class Screen(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


VERBS: dict[str, list[str]] = {
    "info": [],
    "topics": [],
    "queues": [],
    "cat": [],
    "find": ["-k", "k" * 50],
    "restore": [],
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_row_is_a_line(root: Path, verb: str, columns: int) -> None:
    shown = on_terminal(columns, verb, root, *VERBS[verb], "--local", TZ="CET-1")
    assert shown.code == 0, shown.errors
    assert shown.lines
    lines = shown.lines[1:] if verb == "info" else shown.lines  # the title is a path
    assert max(map(width_of, lines)) <= columns
    assert all(line == line.rstrip() and line for line in shown.lines)
    for line in lines:  # no time is broken
        assert len(BEGUN.findall(line)) == len(TIME.findall(line)), line
    if verb == "cat":
        assert len(lines) == 603


def headings(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


@pytest.mark.parametrize(
    ("verb", "columns", "expected"),
    [
        ("cat", 40, ["topic", "queue", "offset", "body"]),
        ("cat", 80, ["stored", "topic", "queue", "offset", "tags", "keys", "body"]),
        ("find", 80, ["stored", "topic", "queue", "offset", "keys", "body"]),
        ("find", 200, ["stored", "topic", "queue", "offset", "tags", "keys", "id", "body"]),
        ("cat", 200, ["stored", "topic", "queue", "offset", "tags", "keys", "body"]),
        ("topics", 40, ["topic", "messages"]),
        ("topics", 80, ["topic", "messages", "bytes", "last stored"]),
        ("queues", 40, ["topic", "queue", "max"]),
        ("queues", 80, ["topic", "queue", "max", "bytes", "last stored"]),
        (
            "queues",
            200,
            ["topic", "queue", "min", "max", "messages", "bytes", "first stored", "last stored"],
        ),
    ],
)
def test_what_gives_way(root: Path, verb: str, columns: int, expected: list[str]) -> None:
    lines = on_terminal(columns, verb, root, *VERBS[verb]).lines
    assert headings(lines[lines[0].startswith("in all rows: ")]) == expected


def test_what_is_equal_in_all_rows_gives_way_first(root: Path) -> None:
    assert on_terminal(80, "queues", root).lines[0] == "in all rows: min 0"
    assert on_terminal(200, "queues", root).lines[0].startswith("topic")
    assert on_terminal(80, "topics", root).lines[0] == "in all rows: perm RW"
    # Of more rows than are held back none is known to be the last.
    assert headings(on_terminal(40, "cat", root).lines[0])[0] == "topic"


def table(
    monkeypatch: pytest.MonkeyPatch, width: int, rows: list[dict[str, object]], asked: str = ""
) -> list[str]:
    screen = Screen(io.BytesIO(), encoding="utf-8", write_through=True)
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")  # no styles
    columns = [
        Column("name", "name", least=4),
        Column("kind", rank=1, asked=asked == "kind"),
        Column("place", rank=2),
        Column("bytes", "count"),
        Column("body", least=8),
    ]
    with TableWriter(columns, typed={"name": "orders"}) as writer:
        for row in rows:
            writer.row(row)
    return screen.buffer.getvalue().decode().splitlines()  # type: ignore[attr-defined]


def test_equal_columns_are_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"name": "audit", "kind": "half", "place": "far away", "bytes": 7}
    rows = [row | {"body": "b" * 30}, row | {"body": "c" * 30}]
    assert headings(table(monkeypatch, 80, rows)[0]) == ["name", "kind", "place", "bytes", "body"]
    # Of more rows, which are shown before the last one is known, a later one may differ.
    assert table(monkeypatch, 50, rows[:1] * 255)[0] == "in all rows: place far away"
    assert headings(table(monkeypatch, 50, rows[:1] * 256)[0])[0] == "name"
    # As many as needed go, the least important first; a count stays.
    lines = table(monkeypatch, 50, rows)
    assert lines[0] == "in all rows: place far away"
    assert headings(lines[1]) == ["name", "kind", "bytes", "body"]
    lines = table(monkeypatch, 40, rows)
    assert lines[0] == "in all rows: name audit  kind half"  # "place far away" has no room
    assert headings(lines[1]) == ["bytes", "body"]
    assert lines[2].split() == ["7", "b" * 30]
    lines = table(monkeypatch, 38, [one | {"kind": ""} for one in rows])
    assert lines[0] == "in all rows: name audit"
    asked = table(monkeypatch, 38, rows, asked="kind")
    assert headings(asked[1])[0] == "kind"
    # One row says nothing about others.
    assert headings(table(monkeypatch, 40, rows[:1])[0])[0] == "name"


def test_what_the_user_typed_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"name": "orders", "kind": "half", "place": "far away", "bytes": 7}
    lines = table(monkeypatch, 200, [row | {"body": "b"}, row | {"kind": "op", "body": "c"}])
    assert headings(lines[0]) == ["kind", "place", "bytes", "body"]
    assert headings(table(monkeypatch, 200, [row])[0]) == ["kind", "place", "bytes", "body"]
    other = table(monkeypatch, 200, [row, row | {"name": "other"}])
    assert headings(other[0])[0] == "name"


def test_what_goes_to_a_file_has_every_column(root: Path) -> None:
    shown = on_terminal(80, "cat", root, "-o", "table", output_too=False)
    assert headings(shown.lines[0])[-2:] == ["keys", "body"]
    assert max(map(width_of, shown.lines)) > 150


@pytest.mark.long
def test_without_rich_it_looks_the_same(root: Path, tmp_path: Path) -> None:
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich" / "__init__.py").write_text("raise ImportError('not installed')\n")
    path = f"{tmp_path}:{Path(rmqstore.__file__).parents[1]}"
    for verb, options in VERBS.items():
        plain = on_terminal(80, verb, root, *options, PYTHONPATH=path)
        assert plain == on_terminal(80, verb, root, *options)


def test_demo_fits(tmp_path: Path) -> None:
    for columns in (40, 80):
        shown = on_terminal(columns, "demo", tmp_path / f"d{columns}", "-n", "1000")
        assert shown.code == 0, shown.errors
        tables = [line for line in shown.lines if line.startswith("  ") and "rmqstore" not in line]
        assert len(tables) > 12
        assert max(map(len, tables)) <= columns


def test_rows_that_come_later_fit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(io.BytesIO(), encoding="utf-8", write_through=True)
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "40")
    assert output.stdout_is_terminal()
    columns = [Column("name", least=4), Column("size", "count"), Column("body", least=8)]
    with TableWriter(columns) as writer:
        for number in range(600):
            length = 3 if number < 300 else 90
            writer.row({"name": "n" * length, "size": 10 ** (number // 100), "body": "b" * length})
    lines = screen.buffer.getvalue().decode().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 601
    assert max(map(len, lines)) == 40
    assert lines[1].split() == ["nnn", "1", "bbb"]
    assert "100,000" in lines[-1]


COLUMNS = st.lists(
    st.builds(
        Column, st.just("x"), rank=st.integers(0, 3), least=st.sampled_from([0, 4, 12])
    ).flatmap(lambda one: st.tuples(st.just(one), st.integers(1, 60))),
    min_size=1,
    max_size=6,
)


@given(COLUMNS, st.integers(20, 150))
def test_fit(given: list[tuple[Column, int]], available: int) -> None:
    columns, widths = [one for one, _ in given], [width for _, width in given]
    shown = fit(columns, widths, available)
    assert set(shown) >= {number for number, one in enumerate(columns) if one.rank == 0}
    used = sum(shown.values()) + 2 * (len(shown) - 1)
    for number, width in shown.items():
        assert width <= widths[number]
        assert width == widths[number] or columns[number].least
    if used > available:  # then nothing more can give way
        assert all(columns[number].rank == 0 for number in shown)
        assert all(width == 1 for number, width in shown.items() if columns[number].least)
    elif any(width < widths[number] for number, width in shown.items()):
        assert used == available
    if sum(widths) + 2 * (len(widths) - 1) <= available:
        assert shown == dict(enumerate(widths))


def test_a_column_stays_only_with_those_of_lower_rank() -> None:
    columns = [Column("name"), Column("a", rank=1), Column("b", rank=2), Column("c", rank=3)]
    assert list(fit(columns, [4, 4, 4, 1], 40)) == [0, 1, 2, 3]
    assert list(fit(columns, [4, 4, 9, 1], 16)) == [0, 1]
    assert list(fit(columns, [4, 20, 4, 1], 16)) == [0]


def test_topics_that_begin_alike_are_told_apart(tmp_path: Path) -> None:
    topics = ["RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"]
    with rmqstore.open(tmp_path / "s", "a", config=StoreConfig.small()) as store:
        for topic in topics:
            store.put(topic, b"x", queue_id=0)
            with store.consumer(topic, group="a-group-with-a-rather-long-name") as messages:
                next(iter(messages))
                messages.commit()
    shown = on_terminal(80, "lag", tmp_path / "s").lines
    assert shown[0] == "in all rows: committed 1  min 0  max 1  bytes 0 B  behind, s 0.0"
    assert headings(shown[1]) == ["group", "topic", "queue", "messages"]
    assert [line.split()[1] for line in shown[2:]] == topics
    narrow = on_terminal(34, "lag", tmp_path / "s").lines
    assert headings(narrow[1]) == ["topic", "messages"]
    first, second = (line.split()[0] for line in narrow[2:])
    assert first != second
    assert topics[0].startswith(first.removesuffix("..."))
    assert topics[1].startswith(second.removesuffix("..."))
    wide = on_terminal(200, "lag", tmp_path / "s").lines
    assert [line.split()[1] for line in wide[1:]] == topics


@given(st.text(), st.integers(1, 30), st.booleans())
def test_shorten(text: str, width: int, keep_end: bool) -> None:
    cut = shorten(text, width, keep_end=keep_end)
    assert width_of(cut) <= width
    assert cut == text or width_of(text) > width


def test_a_path_keeps_its_end(tmp_path: Path) -> None:
    root = tmp_path / "a-directory-with-a-rather-long-name" / "store"
    with rmqstore.open(root, "a", config=StoreConfig.small()) as store:
        store.put("t", b"x")
    (root / "abort").touch()
    log = root / "commitlog" / ("0" * 20)
    with rmqstore.open(root) as store, log.open("r+b") as file:
        file.seek(store.recovery.log_end)
        file.write(b"torn")
    with rmqstore.open(root, "r+") as store:
        [name] = store.recovery.saved_to
    lines = on_terminal(80, "restore", root).lines
    assert max(map(len, lines)) <= 80
    file_name = lines[1].split()[0]
    assert file_name.startswith("...")
    assert name.endswith(file_name.removeprefix("..."))
    assert on_terminal(300, "restore", root).lines[1].split()[0] == name


def test_times_give_way_before_the_keys_of_du(root: Path) -> None:
    shown = on_terminal(80, "du", root, "--by", "topic,day")
    assert any("%RETRY%a-group-with-a-long-name" in line for line in shown.lines)


def test_a_meaning_and_a_difference_are_not_cut(root: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=1048576\nflushDiskType=ASYNC_FLUSH\n")
    shown = on_terminal(80, "config", "show", conf)
    assert "..." not in "".join(shown.lines)
    assert any(line.startswith("    ") for line in shown.lines)
    with rmqstore.open(tmp_path / "other", "a", config=StoreConfig.small()) as store:
        store.put("orders", b"x", queue_id=1)
    shown = on_terminal(50, "diff", root, tmp_path / "other")
    assert shown.lines
    assert "..." not in "".join(line for line in shown.lines if line.startswith("    "))
    assert any(line.startswith("    ") for line in shown.lines)


def test_headings_of_offsets(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=StoreConfig.small()) as store:
        store.put("orders", b"x", queue_id=0)
    to = ["-g", "billing", "-t", "orders", "--to", "last"]
    planned = on_terminal(80, "offsets", tmp_path / "s", "set", *to)
    assert headings(planned.lines[0]) == ["queue", "now", "then"]
    on_terminal(80, "offsets", tmp_path / "s", "set", *to, "--apply")
    shown = on_terminal(80, "offsets", tmp_path / "s", "get", "-g", "billing")
    assert headings(shown.lines[0]) == ["topic", "queue", "committed"]


def test_one_message_keeps_its_body(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=StoreConfig.small()) as store:
        store.put("orders", b"to be seen", queue_id=0, keys="one", tags="t")
    shown = on_terminal(60, "find", tmp_path / "s", "--key", "one")
    assert "to be seen" in "".join(shown.lines)


def test_a_way_keeps_its_groups_and_details(tmp_path: Path) -> None:
    key = "long-name-of-an-order"
    with rmqstore.open(tmp_path / "s", "a", config=StoreConfig.small()) as store:
        store.put("orders", b"x", queue_id=0, keys=key, delay_level=3)
    lines = on_terminal(80, "trace", tmp_path / "s", key).lines
    assert max(map(len, lines)) <= 80
    assert headings(lines[0])[-1] == "group"
    assert any(line.strip().startswith("level 3, for orders") for line in lines)


def test_delays_show_a_unique_key_whole_or_not_at_all(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=StoreConfig.small()) as store:
        done = store.put("orders", b"x", queue_id=0, keys="a-key", delay_level=18)
        unique = store.at(done.physical_offset).uniq_key
    narrow = on_terminal(80, "delays", tmp_path / "s").lines
    assert "a-key" in "".join(narrow)
    assert "..." not in "".join(narrow)
    assert unique in "".join(on_terminal(250, "delays", tmp_path / "s").lines)
