"""Bodies that are flagged as compressed and cannot be inflated: shown as stored, with a mark."""

from __future__ import annotations

import csv
import io
import json
import pickle
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import StoreConfig
from rmqstore.bodies import BODY_MARK
from support import oracle
from support.command_line import Run
from support.scan_model import write_store

COUNT = 12
BAD = 5
KINDS: dict[str, tuple[bytes, int]] = {
    "plain": (b"plain body, not zlib", 0),
    "truncated": (zlib.compress(b"z" * 500)[:-6], 0),
    "a bomb": (zlib.compress(bytes((64 << 20) + 1)), 0),
    "LZ4 that is none": (b"plain", 1 << 8),
    "ZSTD that is none": (b"plain", 2 << 8),
    "an unknown way": (zlib.compress(b"x"), 5 << 8),
    "no UTF-8": (b"\xff\xfe plain", 0),
    "quotes": (b'a "quoted", body\n', 0),
}


@pytest.fixture(params=KINDS)
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, bytes]:
    """A store with one such body, and the stored one."""
    stored, kind = KINDS[request.param]
    records = [
        oracle.encode_record(
            "o",
            stored if n == BAD else zlib.compress(b"body %d" % n),
            queue_offset=n,
            sys_flag=oracle.FLAG_COMPRESSED | (kind if n == BAD else 0),
            born_timestamp=1_700_000_000_000,
            store_timestamp=1_700_000_000_000 + n,
            properties=b"KEYS\x01k%d" % n,
        )
        for n in range(COUNT)
    ]
    write_store(tmp_path, records, StoreConfig.small())
    return tmp_path, stored


def bodies_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("where", [[], ["-t", "o"], ["-t", "o", "-q", "0"]])
@pytest.mark.parametrize("body", ["auto", "utf8", "base64", "hex", "json"])
def test_cat_goes_on(run: Run, broken: tuple[Path, bytes], where: list[str], body: str) -> None:
    root, stored = broken
    shown = run("cat", root, *where, "--body", body)
    rows = bodies_of(shown.stdout)
    assert shown.exit_code == 4
    assert [row["queue_offset"] for row in rows] == list(range(COUNT))
    assert [n for n, row in enumerate(rows) if "body_error" in row] == [BAD]
    assert rows[BAD]["body_error"]
    if body == "hex":
        assert rows[BAD]["body_hex"] == stored.hex()
    lines = shown.stderr.splitlines()
    assert re.match(r"rmqstore: o/0 at 5: /\S+/commitlog/0{20}, offset \d+: the ", lines[0])
    text = "1 compressed body cannot be inflated and is shown as stored"
    assert lines[1:] == [f"rmqstore: {text}; leave bodies out with --body none"]


def test_other_forms_have_a_mark(run: Run, broken: tuple[Path, bytes]) -> None:
    root, stored = broken
    for output in ("csv", "table"):
        shown = run("cat", root, "-o", output, env={"COLUMNS": "200"})
        assert shown.exit_code == 4
        assert shown.stdout.count(BODY_MARK.strip()) == 1
    rows = list(csv.reader(io.StringIO(run("cat", root, "-o", "csv").stdout)))
    assert len(rows) == COUNT + 1
    assert {len(row) for row in rows} == {len(rows[0])}
    shown = run("cat", root, "-f", r"%s\x00")
    assert shown.exit_code == 4
    assert b"\0" + BODY_MARK.encode() + stored + b"\0" in shown.stdout_bytes
    assert run("cat", root, "-f", r"%o\n").exit_code == 0
    assert run("cat", root, "--body", "none").exit_code == 0
    assert run("cat", root, "-n", BAD).exit_code == 0


def test_one_message(run: Run, broken: tuple[Path, bytes]) -> None:
    root, _ = broken
    for arguments in (("get", root, f"o/0@{BAD}"), ("find", root, "-k", f"k{BAD}")):
        shown = run(*arguments)
        (row,) = bodies_of(shown.stdout)
        assert (shown.exit_code, bool(row["body_error"])) == (4, True)
        shown = run(*arguments, "-o", "table", env={"COLUMNS": "200"})
        assert shown.exit_code == 4
        assert "body_error" in shown.stdout or BODY_MARK in shown.stdout
    assert run("get", root, f"o/0@{BAD + 1}").exit_code == 0


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_the_error_names_the_file(broken: tuple[Path, bytes], mode: str) -> None:
    root, stored = broken
    with rmqstore.open(root, mode) as store:
        queue = store["o"][0]
        found = [
            queue[BAD],
            store.at(queue[BAD].physical_offset),
            store.query("o", f"k{BAD}")[0],
            list(store.scan())[BAD],
            list(store["o"].messages())[BAD],
            queue[BAD].detach(),
        ]
        for message in found:
            with pytest.raises(rmqstore.StoreCorruptError) as caught:
                _ = message.body
            assert caught.value.path == str(root / "commitlog" / f"{0:020d}")
            assert caught.value.offset == message.physical_offset
            assert message.raw_body == stored
        with pytest.raises(rmqstore.StoreCorruptError) as caught:
            _ = pickle.loads(pickle.dumps(queue[BAD])).body
        assert caught.value.path
        pytest.importorskip("pyarrow")
        with pytest.raises(rmqstore.StoreCorruptError, match="cannot be inflated"):
            store.scan(columns=["body"]).to_table()
        skipped = store.scan(columns=["queue_offset", "body"], on_corruption="skip").to_table()
        assert skipped.column(0).to_pylist() == [n for n in range(COUNT) if n != BAD]
        stopped = store.scan(columns=["body"], on_corruption="stop").to_table()
        assert stopped.num_rows == BAD
        assert store.scan(columns=["queue_offset", "raw_body"]).to_table().num_rows == COUNT


def test_no_error_is_made_without_a_path() -> None:
    source = Path(rmqstore.__file__).parent
    made = re.compile(r"""StoreCorruptError\(\s*(?:""|''|b""|None)\s*,""")
    files = [path for path in source.rglob("*") if path.suffix in {".py", ".pxi", ".pyx"}]
    assert len(files) > 200
    assert [str(path) for path in files if made.search(path.read_text(encoding="utf-8"))] == []
    with pytest.raises(rmqstore.StoreCorruptError) as caught:
        rmqstore.decode_record(bytes(200))
    assert caught.value.path
