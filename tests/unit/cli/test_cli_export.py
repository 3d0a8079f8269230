"""``export``, ``import`` and the lines of ``cat`` given to ``put``, as people type them."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rmqstore
from support import damaged_store
from support.command_line import Run, one_line, rows

pytestmark = pytest.mark.pure

FORMATS = ("parquet", "arrow", "csv", "jsonl")
RMQSTORE = [sys.executable, "-m", "rmqstore"]
COUNT = 40


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "s", "a", config=rmqstore.StoreConfig.small()) as store:
        store.create_topic("orders", 2)
        for number in range(COUNT):
            store.put(
                "orders",
                b"\xff\n%d" % number if number % 2 else b'{"order": %d}' % number,
                keys=f"k{number} all",
                tags="paid" if number % 4 else None,
                properties={"amount": str(number)},
            )
        store.put("audit", b"x" * 1000)
    return tmp_path / "s"


@pytest.mark.parametrize("form", FORMATS)
def test_there_and_back(run: Run, root: Path, tmp_path: Path, conf: Path, form: str) -> None:
    file = tmp_path / f"o.{form}"
    (summary,) = rows(run("export", root, file, "-t", "orders"))
    assert list(summary) == ["messages", "bytes", "seconds", "skipped"]
    assert (summary["messages"], summary["bytes"]) == (COUNT, file.stat().st_size)
    options = ["--keep-queues", "--keep-time", "-c", conf]
    (summary,) = rows(run("import", file, tmp_path / "n", *options))
    assert (summary["messages"], summary["skipped"]) == (COUNT, 0)
    kept = ("topic", "queue_id", "queue_offset", "keys", "tags", "uniq_key", "properties", "body",
            "body_base64", "born_timestamp", "store_timestamp", "born_host", "flag")  # fmt: skip
    shown = [
        [[row.get(name) for name in kept] for row in rows(run("cat", one, "-t", "orders"))]
        for one in (root, tmp_path / "n")
    ]
    assert shown[0] == shown[1]
    assert rows(run("info", tmp_path / "n"))[0]["broker"] == "starts"
    assert not list(tmp_path.glob("*.unfinished"))


def test_standard_streams(run: Run, root: Path, tmp_path: Path, conf: Path) -> None:
    for form in FORMATS:
        done = run("export", root, "-", "--format", form)
        assert done.exit_code == 0
        assert json.loads(done.stderr)["messages"] == COUNT + 1
        given = {"input": done.stdout_bytes}
        back = run("import", "-", tmp_path / form, "-c", conf, "--format", form, **given)
        assert rows(back)[0]["messages"] == COUNT + 1
    lines = run("cat", root).stdout_bytes
    assert run("export", root, "-", "--format", "jsonl").stdout_bytes == lines
    assert (
        run("export", root, "-", "--format", "csv").stdout == run("cat", root, "-o", "csv").stdout
    )
    assert "give --format" in one_line(run("export", root, "-"), 2)


def test_usage(run: Run, root: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.csv"
    there.write_text("mine")
    assert "is not replaced" in one_line(run("export", root, there), 2)
    assert there.read_text() == "mine"
    new = tmp_path / "o.csv"
    assert "did you mean 'orders'" in one_line(run("export", root, new, "-t", "order"), 1)
    assert "--redact must be one of" in one_line(run("export", root, new, "--redact", "key"), 2)
    assert "--sample" in one_line(run("export", root, new, "--sample", "2"), 2)
    assert "none of .parquet" in one_line(run("export", root, tmp_path / "o.xls"), 2)
    assert "outside the store" in one_line(run("export", root, root / "o.csv"), 2)
    assert "STORE and FILE are needed" in one_line(run("export"), 2)
    assert "FILE and STORE are needed" in one_line(run("import"), 2)
    assert "make it first" in one_line(run("export", root, tmp_path / "no" / "o.csv"), 4)
    assert "No such file" in one_line(run("import", new, tmp_path / "n"), 4)
    assert not new.exists()


def test_import_of_what_is_no_message(run: Run, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "o.jsonl"
    run("export", root, file, "--tags", "paid")
    file.write_text(file.read_text() + '{"topic": "t"}\n')
    before = run("cat", root).stdout
    error = one_line(run("import", file, root), 2)
    assert f"o.jsonl, line {COUNT * 3 // 4 + 1}: has neither body nor body_base64" in error
    assert run("cat", root).stdout == before
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    assert "something else than a store" in one_line(run("import", file, other), 2)
    good = tmp_path / "p.jsonl"
    run("export", root, good)
    assert "without --keep-time" in one_line(run("import", good, root, "--keep-time"), 2)
    with rmqstore.open(root, "r+"):
        one_line(run("import", good, root), 3)


def test_the_store_may_be_named_by_the_environment(
    run: Run, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RMQSTORE_PATH", str(root))
    assert rows(run("export", tmp_path / "o.jsonl"))[0]["messages"] == COUNT + 1
    assert rows(run("import", tmp_path / "o.jsonl"))[0]["messages"] == COUNT + 1
    assert len(rows(run("cat"))) == 2 * (COUNT + 1)


def test_what_is_left_out_is_said(run: Run, root: Path, tmp_path: Path, conf: Path) -> None:
    run("export", root, tmp_path / "o.csv")
    done = run("import", tmp_path / "o.csv", tmp_path / "n", "-t", "audit", "-c", conf)
    assert rows(done)[0]["skipped"] == COUNT
    assert f"{COUNT} rows were left out" in done.stderr
    other = run("import", tmp_path / "o.csv", tmp_path / "m", "-t", "order", "-c", conf)
    assert "no message of topic 'order'; did you mean 'orders'?" in one_line(other, 1)
    assert not (tmp_path / "m").exists()
    other = run("import", tmp_path / "o.csv", tmp_path / "m", "-t", "zzz", "-c", conf)
    assert one_line(other, 1).endswith("no message of topic 'zzz'; it has audit, orders\n")


def test_without_pyarrow(
    run: Run, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for name in ("parquet", "ipc"):
        monkeypatch.setitem(sys.modules, f"pyarrow.{name}", None)
    for form in ("parquet", "arrow"):
        error = one_line(run("export", root, tmp_path / f"o.{form}"), 4)
        assert error == "rmqstore: this needs pyarrow: pip install 'rmqstore[arrow]'\n"
    for form in ("csv", "jsonl"):
        assert rows(run("export", root, tmp_path / f"o.{form}"))[0]["messages"] == COUNT + 1
    assert "rmqstore[arrow]" in one_line(run("import", tmp_path / "o.csv", tmp_path / "n"), 4)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["o.csv", "o.jsonl", "s"]


@pytest.fixture
def large(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "large", "a", config=rmqstore.StoreConfig.small()) as store:
        store.put_many("t", [b"%07d" % number * 100 for number in range(20_000)], tags="x")
    return tmp_path / "large"


@pytest.mark.parametrize("form", FORMATS)
def test_a_full_disk_leaves_nothing(large: Path, tmp_path: Path, form: str) -> None:
    file = tmp_path / f"o.{form}"

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))

    done = subprocess.run(
        [*RMQSTORE, "export", large, file], capture_output=True, preexec_fn=limited, check=False
    )
    assert done.returncode == 4, done.stderr
    assert done.stdout == b""
    text = f"rmqstore: {file}: File too large: nothing of the export is left\n"
    assert done.stderr.decode() == text
    assert [one.name for one in tmp_path.iterdir()] == ["large"]


def test_a_full_disk_leaves_no_store(large: Path, tmp_path: Path) -> None:
    done = subprocess.run([*RMQSTORE, "export", large, tmp_path / "o.jsonl"], check=True)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))

    conf = tmp_path / "b.conf"
    conf.write_text("mappedFileSizeCommitLog=16777216\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n")
    done = subprocess.run(
        [*RMQSTORE, "import", tmp_path / "o.jsonl", tmp_path / "n", "-c", conf],
        capture_output=True, preexec_fn=limited, check=False,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert done.stderr.count(b"\n") == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["b.conf", "large", "o.jsonl"]


@pytest.mark.parametrize("form", FORMATS)
def test_a_reader_that_goes_away(large: Path, form: str) -> None:
    with subprocess.Popen(
        [*RMQSTORE, "export", large, "-", "--format", form],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert len(process.stdout.read(100)) == 100
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


def test_interrupted(large: Path, tmp_path: Path) -> None:
    with rmqstore.open(large, "r+") as store:
        for _ in range(10):
            store.put_many("t", [b"%07d" % number * 100 for number in range(20_000)])
    # A shell's job in the background ignores the signal, and so would the process.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [*RMQSTORE, "export", large, tmp_path / "o.csv"], stderr=subprocess.PIPE
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        unfinished = tmp_path / "o.csv.unfinished"
        deadline = time.monotonic() + 30
        while not unfinished.exists() or unfinished.stat().st_size < 1 << 20:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr is not None
        assert process.stderr.read().strip() == b""
    assert [one.name for one in tmp_path.iterdir()] == ["large"]


def test_import_interrupted(root: Path, tmp_path: Path) -> None:
    """It says how far it came: what is in a store that was there stays there."""
    lines, count = tmp_path / "in.jsonl", 300_000
    with lines.open("w") as file:
        file.writelines(f'{{"topic":"t","body":"{number:07d}"}}\n' for number in range(count))
    log = root / "commitlog" / f"{0:020d}"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen([*RMQSTORE, "import", lines, root], stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        deadline = time.monotonic() + 60
        while b"0000000" not in log.read_bytes():
            assert time.monotonic() < deadline
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr is not None
        said = process.stderr.read().decode()
    with rmqstore.open(root) as store:
        bodies = [message.body for message in store.scan("t")]
    assert bodies == [b"%07d" % number for number in range(len(bodies))]
    assert 0 < len(bodies) < count
    match = re.search(r"interrupted: ([0-9,]+) messages", said)
    known = int(match[1].replace(",", "")) if match else 0
    assert known <= len(bodies) <= known + 4096


def test_put_reads_lines_of_cat(run: Run, root: Path, tmp_path: Path, conf: Path) -> None:
    lines = run("cat", root, "-t", "orders").stdout_bytes
    done = run("put", tmp_path / "n", "other", "-c", conf, "-q", "0", input=lines)
    assert done.exit_code == 0
    assert "the lines are messages as cat writes them; --raw stores the lines" in done.stderr
    kept = ("keys", "tags", "uniq_key", "body", "body_base64", "properties")
    found = rows(run("cat", tmp_path / "n"))
    assert [[row.get(name) for name in kept] for row in found] == [
        [json.loads(line).get(name) for name in kept] for line in lines.splitlines()
    ]
    assert {row["topic"] for row in found} == {"other"}
    raw = run("put", tmp_path / "r", "other", "-c", conf, "-q", "0", "--raw", input=lines)
    assert raw.stderr == f"rmqstore: {COUNT} messages stored in other\n"
    assert run("cat", tmp_path / "r", "-f", r"%s\n").stdout_bytes == lines


@pytest.mark.parametrize(
    "body",
    [b'{"order": 1}', b'{"topic": "orders", "queue_offset": 5, "physical_offset": 7}', b"{", b"{}"],
)
def test_put_stores_other_json_as_it_is(run: Run, tmp_path: Path, conf: Path, body: bytes) -> None:
    assert run("put", tmp_path / "n", "t", "-c", conf, input=body).exit_code == 0
    assert run("cat", tmp_path / "n", "-f", "%s").stdout_bytes == body


def test_put_of_mixed_lines(run: Run, root: Path, tmp_path: Path, conf: Path) -> None:
    lines = run("cat", root, "-n", "3").stdout_bytes + b'{"order": 1}\n'
    said = run("put", tmp_path / "n", "t", "-c", conf, input=lines)
    assert said.exit_code == 2
    error = said.stderr.splitlines()[-1]
    assert "line 4: messages have no field 'order'" in error
    assert "--raw stores lines as they are" in error
    tagged = run("put", tmp_path / "m", "t", "-c", conf, "--tags", "x", input=lines)
    assert "--raw stores the lines themselves" in one_line(tagged, 2)
    assert not (tmp_path / "m").exists()
    without = run("cat", root, "--body", "none").stdout_bytes
    nothing = run("put", tmp_path / "m", "t", "-c", conf, input=without)
    assert nothing.exit_code == 2
    assert "line 1: has neither body" in nothing.stderr
    assert nothing.stderr.endswith("; nothing was stored\n")
    assert not (tmp_path / "m").exists()


def test_the_names_that_put_reserves_are_known(root: Path) -> None:
    from rmqstore.toolbox.exchange.parsed_lines import own_properties

    parts = Path(__file__).parents[3] / "src/rmqstore/_native"
    names = (parts / "python/property_names.pxi").read_text()
    listed = names.partition("tuple((\n")[2].partition(").split")[0]
    core = "".join(part for part in listed.split('"')[1::2]).split()
    assert len(core) > 30
    assert own_properties({"properties": [(name, "x") for name in [*core, "mine"]]}) == {
        "mine": "x"
    }
    with rmqstore.open(root, "r+") as store:
        for name in core:
            with pytest.raises(rmqstore.MessageIllegalError):
                store.put("t", b"", properties={name: "x"})


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    root = damaged_store.make(tmp_path / "d")
    places = [one.physical_offset for one in damaged_store.records(root)]
    (tmp_path / "places.json").write_text(json.dumps(places))
    damaged_store.flip(root, places[50] + 95)
    return root


def test_cat_and_find_of_damage(run: Run, damaged: Path) -> None:
    good = damaged_store.COUNT - 1
    for options, code, count in (
        ([], 4, good),
        (["--on-corruption", "skip"], 0, good),
        (["--on-corruption", "raise"], 4, None),
    ):
        done = run("cat", damaged, *options)
        assert done.exit_code == code
        shown = len(done.stdout.splitlines())
        assert shown == count if count is not None else shown <= 50
        assert ("1 damaged message was left out" in done.stderr) == (count is not None)
        assert "BODYCRC" in done.stderr
        assert run("find", damaged, "--key", "k50", *options).exit_code in (code, 1, 4)
        assert run("find", damaged, "--key", "k51", *options).exit_code == 0


def test_snapshot_of_damage(run: Run, damaged: Path, tmp_path: Path) -> None:
    damaged_store.killed(damaged)
    error = one_line(run("snapshot", damaged, tmp_path / "c"), 4)
    assert error.endswith(
        "no snapshot is made of such a store; --on-corruption skip fills the damage\n"
    )
    assert not (tmp_path / "c").exists()
    assert run("snapshot", damaged, tmp_path / "c", "--on-corruption", "skip").exit_code == 0
    found = [row["physical_offset"] for row in rows(run("cat", tmp_path / "c"))]
    places = json.loads((tmp_path / "places.json").read_text())
    assert found == [place for at, place in enumerate(places) if at != 50]
    assert rows(run("info", tmp_path / "c"))[0]["broker"] == "starts"
    assert list((tmp_path / "c" / "rmqstore-quarantine").iterdir())


def test_export_of_damage(run: Run, damaged: Path, tmp_path: Path) -> None:
    error = one_line(run("export", damaged, tmp_path / "o.parquet"), 4)
    assert "BODYCRC" in error
    done = run("export", damaged, tmp_path / "o.parquet", "--on-corruption", "skip")
    assert rows(done)[0]["skipped"] == 1
    assert "1 damaged place was passed over" in done.stderr


def test_standard_streams_need_a_format(run: Run, tmp_path: Path) -> None:
    for verb, stream in (("export", "output"), ("import", "input")):
        words = (tmp_path, "-") if verb == "export" else ("-", tmp_path / "new")
        line = one_line(run(verb, *words), 2)
        assert f"standard {stream}: give --format jsonl" in line
    assert not (tmp_path / "new").exists()
