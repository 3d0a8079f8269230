"""The verdict of ``info``, and refusals in the words of the command line."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import rmqstore
from rmqstore.cli import main
from rmqstore.config.store_config import StoreConfig

pytestmark = pytest.mark.pure

CONFIG = StoreConfig.small(
    mapped_file_size_commit_log=8192, mapped_file_size_consume_queue=400
)  # fmt: skip
FIRST = f"{0:020d}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        for number in range(60):
            store.put("T", b"x" * 200, queue_id=number % 2, keys=f"k{number}")
    return tmp_path / "store"


def run(*words: object, given: str | None = None) -> Result:
    return CliRunner().invoke(main, [*map(str, words)], input=given)


def refusal(root: Path, *options: object) -> str:
    done = run("put", root, "T", *options, given="one more\n")
    assert done.exit_code == 4, done.output
    [line] = done.stderr.splitlines()
    assert "config=" not in line
    assert "on_corruption" not in line
    return line


def test_a_healthy_store(root: Path) -> None:
    done = run("info", root, "-o", "table")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == f"{root}: a 4.9.3 broker would start"
    facts = json.loads(run("info", root, "-o", "jsonl").stdout)
    assert list(facts)[:4] == ["broker", "line", "messages_lost", "findings"]
    assert (facts["broker"], facts["line"], facts["messages_lost"]) == ("starts", None, 0)
    assert facts["findings"] == []


BAD = {
    "log too long": ("commitlog", lambda path: os.truncate(path / FIRST, 8193)),
    "empty queue file": (
        "consumequeue/T/0", lambda path: os.truncate(sorted(path.iterdir())[-1], 0)),
    "foreign": ("commitlog", lambda path: (path / ".DS_Store").touch()),
    "no topics": ("config", lambda path: [one.unlink() for one in path.glob("topics.json*")]),
    "offsets": ("config", lambda path: [
        (path / f"consumerOffset.json{end}").write_text('{"a') for end in ("", ".bak")]),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_store_that_a_broker_refuses_or_loses_from(root: Path, name: str) -> None:
    directory, harm = BAD[name]
    harm(root / directory)
    before = {path: path.lstat().st_mtime_ns for path in root.rglob("*")}
    done = run("info", root, "-o", "jsonl")
    assert done.exit_code == 4
    facts = json.loads(done.stdout)
    wanted = "loses" if name == "no topics" else "refuses"
    assert facts["broker"] == wanted
    assert facts["line"]
    assert facts["findings"][0]["severity"] == ("lost" if wanted == "loses" else "stop")
    shown = run("info", root, "-o", "table")
    assert "a 4.9.3 broker would " in shown.stdout.splitlines()[0]
    assert "its log" in shown.stdout
    assert "a 4.9.3 broker would " in shown.stderr
    assert run("info", root, "-o", "csv").exit_code == 4
    assert {path: path.lstat().st_mtime_ns for path in root.rglob("*")} == before


@pytest.mark.parametrize(
    ("name", "way"),
    [
        (".nfs0001", "ends"),
        ("lost+found", "mount the disk"),
        (".DS_Store", "move it out of the directory"),
        (f"{FIRST}.bak", "move it out of the directory"),
    ],
)
@pytest.mark.parametrize("directory", ["commitlog", "consumequeue/T/0"])
def test_a_foreign_file_and_the_way_on(root: Path, directory: str, name: str, way: str) -> None:
    (root / directory / name).mkdir()
    line = refusal(root)
    assert f"{directory}/{name}: a foreign file: a broker would not start; " in line
    assert way in line
    assert "--config" not in line


def test_files_of_the_log_that_do_not_fit(root: Path) -> None:
    every = sorted((root / "commitlog").iterdir())
    os.truncate(every[1], 100)
    assert "(100, not 8192); put a whole copy of it back" in refusal(root)
    every[1].unlink()
    assert "; put the missing one back from a copy" in refusal(root)


def test_a_size_of_the_broker_conf(root: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=300000\n")
    line = refusal(root, "-c", conf)
    assert (
        "mappedFileSizeConsumeQueue (400, not 300000); name the right size in the file of" in line
    )
    assert "mapped_file" not in line
    done = run("info", root, "-c", conf, "-o", "jsonl")
    assert done.exit_code == 4
    assert json.loads(done.stdout)["findings"][0]["kind"] == "config-size"


def test_json_without_a_backup(root: Path) -> None:
    (root / "config" / "topics.json").write_bytes(bytes(200))
    (root / "config" / "topics.json.bak").unlink(missing_ok=True)
    assert "topics.json.bak; put a copy back, or move what is there away" in refusal(root)


def test_a_directory_before_the_first_message(tmp_path: Path) -> None:
    for name in ("commitlog", "consumequeue", "config"):
        (tmp_path / "store" / name).mkdir(parents=True)
    done = run("info", tmp_path / "store")
    assert done.exit_code == 4
    assert "no message was put yet" in done.stderr
    assert "give the directory" not in done.stderr


def test_a_colon_between_paths_of_the_log(root: Path, tmp_path: Path) -> None:
    both = f"{root}/commitlog:{tmp_path}/other"
    config = StoreConfig(store_path_commit_log=both)
    for mode in ("r", "r+", "a"):
        with pytest.raises(ValueError, match=r"with a ',' .*, not ':'"):
            rmqstore.open(root, mode, config=config)  # type: ignore[arg-type]
    assert not Path(both).exists()
    assert not (root / "commitlog:").exists()
    Path(tmp_path / "a:b").mkdir()
    shutil.copytree(root / "commitlog", tmp_path / "a:b", dirs_exist_ok=True)
    shutil.rmtree(root / "commitlog")
    with rmqstore.open(
        root, config=StoreConfig(store_path_commit_log=str(tmp_path / "a:b"))
    ) as store:
        assert store.scan().count() == 60


@pytest.mark.parametrize("key", ["storePathCommitLog", "readOnlyCommitLogStorePaths"])
@pytest.mark.parametrize("paths", ["{0}:{1}", "{0};{1}", "{0}, {1}", ",{0}"])
def test_paths_of_a_broker_conf_that_do_not_fit(
    root: Path, tmp_path: Path, key: str, paths: str
) -> None:
    """Each verb ends with one line that names the key, and makes nothing."""
    value = paths.format(root / "commitlog", tmp_path / "other")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{key}={value}\n")
    before = sorted(tmp_path.rglob("*"))
    for words in (
        ("info", root), ("cat", root), ("put", root, "T"), ("restore", root), ("clean", root),
        ("serve", root, "--port", "0"), ("snapshot", root, tmp_path / "copy"),
    ):  # fmt: skip
        done = run(*words, "-c", conf, given="one more\n")
        assert done.exit_code == 2, (words, done.output)
        assert f"rmqstore: {key} is " in done.stderr.splitlines()[-1], words
        assert "must be paths with a ','" in done.stderr
    assert sorted(tmp_path.rglob("*")) == before
    for opening in (rmqstore.open, rmqstore.serve):
        with pytest.raises(ValueError, match=f"^{key} is "):
            opening(root, config=conf)


def test_paths_of_another_store(root: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={tmp_path}/other\nstorePathCommitLog={tmp_path}/third/log\n")
    done = run("info", root, "-c", conf)
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].startswith("rmqstore: storePathCommitLog names ")
    assert "storePathRootDir names" in done.stderr


@pytest.mark.parametrize("torn", [bytes(100), b'{"topics": {"T"', b'{"topics": 5}'])
def test_a_file_of_deleted_topics_that_is_torn(root: Path, torn: bytes) -> None:
    (root / "rmqstore-deleted.json").write_bytes(torn)
    assert "rmqstore-deleted.json, offset " in refusal(root)
    done = run("info", root, "-o", "jsonl")
    assert done.exit_code == 4
    facts = json.loads(done.stdout)
    [damage] = facts["damage"]
    assert damage.startswith(f"{root}/rmqstore-deleted.json, offset ")
    assert "put a copy back, or move what is there away to begin without it" in damage
    assert facts["broker"] == "starts"  # which reads no such file


def test_sizes_of_index_files_in_a_broker_conf(root: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("maxHashSlotNum=20\nmaxIndexNum=40\n")
    assert "maxHashSlotNum" in refusal(root, "-c", conf)
    done = run("info", root, "-c", conf, "-o", "table")
    assert done.exit_code == 4
    assert "lose data: index/" in done.stderr
    assert "maxHashSlotNum is 20, and the files have " in done.stderr


@pytest.mark.parametrize(("first", "count"), [(3, 1), (5, 9), (1, 28)])
def test_zeros_within_a_queue_file(root: Path, first: int, count: int) -> None:
    """The ends of each file are good, so that opening does not look between them."""
    file = max((root / "consumequeue" / "T" / "0").iterdir(), key=lambda path: path.name == FIRST)
    assert file.name == FIRST
    count = min(count, 19 - first)
    with file.open("r+b") as opened:
        opened.seek(20 * first)
        opened.write(bytes(20 * count))
    done = run("info", root, "-o", "jsonl")
    assert done.exit_code == 4
    [damage] = json.loads(done.stdout)["damage"]
    assert damage.startswith(f"{count} entr")
    assert f"of consumequeue/T/0 {'is' if count == 1 else 'are'} zeroed" in damage
    assert f"the first at queue offset {first}: " in damage
    assert "opened to write with 'rmqstore serve --verify full', " in damage
    assert damage in run("info", root, "-o", "table").stdout
    with rmqstore.open(root, "r+", verify="full"):
        pass
    assert run("info", root).exit_code == 0
