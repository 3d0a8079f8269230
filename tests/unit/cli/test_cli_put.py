"""``rmqstore put``: lines become messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command_line import Run, one_line, rows

pytestmark = pytest.mark.pure


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


def test_put_counts_in_plain_english(run: Run, tmp_path: Path, conf: Path) -> None:
    one = run("put", tmp_path / "new", "events", "-c", conf, input=b"x\n")
    assert one.stderr == "rmqstore: 1 message stored in events\n"
    long = b"x" * (5 << 20)
    said = one_line(run("put", tmp_path / "new", "events", "-c", conf, input=long), 2)
    assert said.endswith("; 0 messages were stored before\n")


@pytest.mark.parametrize("before", [0, 1, 4, 200_000])  # then more than is read at once
@pytest.mark.parametrize("config", [True, False])
def test_put_names_the_line(
    run: Run, tmp_path: Path, conf: Path, before: int, config: bool
) -> None:
    root = tmp_path / "new"
    options = ["-c", conf] if config else []
    assert run("put", root, "t", "-c", conf, input=b"0\n").exit_code == 0
    lines = b"short\n" * before + b"x" * (5 << 20) + b"\nlast\n"
    said = one_line(run("put", root, "t", *options, input=lines), 2)
    assert said.startswith(f"rmqstore: line {before + 1}: ")
    stored = said.rpartition("; ")[2].split()[0].replace(",", "")
    assert rows(run("info", root))[0]["messages"] == 1 + int(stored)


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


@pytest.mark.parametrize("left", [["lock"], ["lock", "abort"], ["lock", "abort", "commitlog"]])
def test_put_goes_on_where_a_first_one_was_killed(
    run: Run, tmp_path: Path, left: list[str]
) -> None:
    root = tmp_path / "new"
    root.mkdir()
    for name in left:
        if name == "commitlog":
            (root / name).mkdir()
        else:
            (root / name).touch()
    assert run("put", root, "t", input=b"1\n").exit_code == 0
    assert len(rows(run("cat", root))) == 1
