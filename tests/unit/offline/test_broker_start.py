"""How a 4.9.3 broker's start ends, foretold; beside the real one: tests/interop."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rmqstore
from crash.checks import environment
from rmqstore import StoreConfig, offline

CONFIG = StoreConfig(
    mapped_file_size_commit_log=8192,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=10,
    max_index_num=40,
)
COUNT = 120
LOG = f"commitlog/{0:020d}"
QUEUE = "consumequeue/T/0"
FIRST = f"{QUEUE}/{0:020d}"
LENGTH = "length not matched message store config value, please check it manually"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made") / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for number in range(COUNT):
            store.put("T", b"%03d" % number * 60, queue_id=number % 4, keys=f"k{number}")
    return root


@pytest.fixture
def root(made, tmp_path):
    return shutil.copytree(made, tmp_path / "store")


def listing(root: Path) -> dict[str, tuple[int, int]]:
    return {str(one): (one.lstat().st_size, one.lstat().st_mtime_ns) for one in root.rglob("*")}


def start(root: Path, config=None) -> offline.BrokerStart:
    before = listing(root)
    found = offline.broker_start(root, config=config)
    assert listing(root) == before
    return found


def test_a_closed_store_starts(root):
    for config in (None, CONFIG, StoreConfig()):
        assert start(root, config) == offline.BrokerStart("starts", None, 0, ())


OWNER = """
import sys, rmqstore
store = rmqstore.open(sys.argv[1], "r+")
store.put("T", b"x", queue_id=1)
store.flush()
print("flushed", flush=True)
sys.stdin.read()
store.close()
"""


def test_beside_its_owner_and_after_a_kill(root):
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, root],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout.readline() == "flushed\n"
        owner.send_signal(signal.SIGSTOP)  # a thread of it writes blocks and zeros ahead
        try:
            os.waitid(os.P_PID, owner.pid, os.WSTOPPED)
            found = start(root)
        finally:
            owner.send_signal(signal.SIGCONT)
        owner.communicate("")
    assert owner.returncode == 0
    assert (found.broker, [one.kind for one in found.findings]) == ("starts", ["abort"])
    (root / "abort").touch()
    assert start(root).broker == "starts"


@pytest.mark.parametrize("name", [".DS_Store", "00000000000000000000.bak", ".nfs01", "notes"])
@pytest.mark.parametrize("directory", ["commitlog", QUEUE])
@pytest.mark.parametrize("size", [0, 5, 400, 8192])
def test_a_foreign_file(root, directory, name, size):
    (root / directory / name).write_bytes(bytes(size))
    found = start(root)
    assert found.broker == "refuses"
    one = found.findings[0]
    assert (one.severity, one.kind, one.file) == ("stop", "foreign-file", f"{directory}/{name}")
    fits = size == (8192 if directory == "commitlog" else 400)
    assert found.line == "load exception" if fits else found.line.endswith(LENGTH)
    assert ("once the process" if name == ".nfs01" else "move it") in one.message


@pytest.mark.parametrize("directory", ["commitlog", QUEUE])
def test_a_foreign_directory_and_a_dangling_link(root, directory):
    (root / directory / "lost+found").mkdir()
    assert start(root).findings[0].kind == "foreign-file"
    (root / directory / "lost+found").rmdir()
    (root / directory / f"{1 << 20:020d}").symlink_to("nowhere")
    found = start(root)
    assert (found.broker, found.findings[0].kind) == ("refuses", "link")


@pytest.mark.parametrize(
    ("size", "kind"), [(0, "empty-file"), (-1, "short-file"), (1, "size"), (1 << 30, "size")]
)
@pytest.mark.parametrize("directory", ["commitlog", QUEUE])
@pytest.mark.parametrize("number", [0, -1])
def test_a_file_of_another_length(root, directory, number, size, kind):
    path = sorted((root / directory).iterdir())[number]
    length = path.stat().st_size + size if size else 0
    os.truncate(path, length)
    found = start(root)
    assert found.broker == "refuses"
    assert found.line == f"{path}\t{length} {LENGTH}"
    assert [one.kind for one in found.findings if one.severity == "stop"] == [kind]


@pytest.fixture
def alone(tmp_path):
    """A store of one log file and one queue file."""
    root = tmp_path / "alone"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for number in range(8):
            store.put("T", b"x", queue_id=0, keys=f"k{number}")
    return root


@pytest.mark.parametrize("config", [None, StoreConfig()], ids=["none", "sizes left open"])
@pytest.mark.parametrize(
    ("file", "size", "broker", "default"),
    [
        (LOG, 8192, "starts", "1,073,741,824"),
        (LOG, 8193, "starts", "1,073,741,824"),
        (LOG, 4096, "starts", "1,073,741,824"),
        (LOG, (1 << 30) + 1, "starts", "1,073,741,824"),
        (FIRST, 400, "starts", "6,000,000"),
        (FIRST, 420, "starts", "6,000,000"),
        (FIRST, 414, "refuses", "6,000,000"),
    ],
)
def test_a_size_that_one_file_alone_shows(alone, file, size, broker, default, config):
    os.truncate(alone / file, size)
    found = start(alone, config)
    assert found.broker == broker
    [one] = [one for one in found.findings if one.file == file]
    assert (one.severity, one.kind) == ("stop" if broker == "refuses" else "warn", "size")
    assert one.message.startswith(f"{size:,} bytes")
    assert default in one.message
    assert "truncate" not in one.message
    configured = start(alone, CONFIG)
    assert configured.broker == ("starts" if size in (8192, 400) else "refuses")
    assert all("no other file" not in one.message for one in configured.findings)


def test_sizes_that_other_files_or_the_default_confirm(alone):
    with rmqstore.open(alone, "r+", config=CONFIG) as store:
        store.put("U", b"x", queue_id=0)
    assert [one.file for one in start(alone).findings] == [LOG]
    os.truncate(alone / LOG, 1 << 30)
    assert start(alone).findings == ()


def test_an_ext_file_whose_size_no_other_shows(root):
    file = f"consumequeue_ext/T/0/{0:020d}"
    (root / file).parent.mkdir(parents=True)
    (root / file).touch()
    found = start(root)
    assert [(one.file, one.kind) for one in found.findings] == [(file, "empty-file")]


@pytest.mark.parametrize("name", ["orders", "007", "+1", "-1", ".DS_Store", "99999999999"])
def test_directories_that_are_no_queue_of_ours(root, name):
    (root / "consumequeue/T" / name).mkdir()
    found = start(root)
    assert (found.broker, found.findings[0].kind) == ("starts", "foreign-file")


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ({"max_hash_slot_num": 20}, "maxHashSlotNum is 20, and the files have 10; maxIndexNum is"),
        ({"max_index_num": 80}, "maxHashSlotNum is 5000000, and the files have 10; maxIndexNum"),
        ({"max_hash_slot_num": 10, "max_index_num": 80}, "maxIndexNum is 80, and the files have"),
    ],
)
def test_a_configuration_of_other_index_files(root, sizes, named):
    config = StoreConfig(**sizes)
    with pytest.raises(rmqstore.IncompatibleStoreError):
        rmqstore.open(root, "r+", config=config)
    found = start(root, config)
    assert (found.broker, found.messages_lost) == ("loses", 0)
    for one in found.findings:
        assert (one.severity, one.kind) == ("lost", "config-size")
        assert named in one.message
    assert {one.file for one in found.findings} == {
        f"index/{path.name}" for path in (root / "index").iterdir()
    }


@pytest.mark.parametrize("sizes", [{}, {"max_hash_slot_num": 10, "max_index_num": 40}])
def test_a_configuration_of_the_index_files(root, sizes):
    assert start(root, StoreConfig(**sizes)).broker == "starts"


@pytest.mark.parametrize(
    ("field", "value", "file"),
    [
        ("mapped_file_size_commit_log", 16384, LOG),
        ("mapped_file_size_commit_log", 4096, LOG),
        ("mapped_file_size_consume_queue", 800, FIRST),
        ("mapped_file_size_consume_queue", 200, FIRST),
    ],
)
def test_a_configuration_of_another_size(root, tmp_path, field, value, file):
    found = start(root, StoreConfig(**{field: value}))
    assert (found.broker, found.findings[0].kind) == ("refuses", "config-size")
    assert found.findings[0].file.startswith(file.rpartition("/")[0].rpartition("/")[0])
    assert str(value) in found.findings[0].message


JSON_CASES = [
    # main, backup, verdict, kind; None: no file
    ("{}", None, "starts", None),
    ("", None, "starts", "json"),  # by a crash in the first write, or emptied
    ("", "", "loses", "json"),
    (None, "", "loses", "json"),
    (None, None, "starts", None),
    ('{"a', "{}", "starts", "json-backup-used"),
    (None, "{}", "starts", "json-backup-used"),
    ("", "{}", "starts", "json-backup-used"),
    ('{"a', '{"b', "refuses", "json"),
    (None, '{"b', "refuses", "json"),
    ("", "\0" * 40, "refuses", "json"),
    ("\0" * 40, None, "loses", "json"),
    ('{"a', "", "loses", "json"),
    ("[1]", None, "loses", "json"),
    ("[1]", "{}", "starts", "json-backup-used"),
    ("[1]", "[1]", "refuses", "json"),
    ("1", "true", "refuses", "json"),
    (None, '"text"', "refuses", "json"),
    ('{"TABLE":1}', "1", "refuses", "json"),
    ('{"TABLE":{"T":null}}', "{}", "starts", "json-backup-used"),
    ('{"TABLE":{"T@g":{}}}', None, "starts", None),
    # Taken for good: the .bak is not read.
    ("null", '{"TABLE":{}}', "loses", "json"),
    ("[]", "1", "loses", "json"),
    ("", "null", "loses", "json"),
]
# The groups' class has a constructor of its own, for which fastjson takes less.
JSON_BLANK = [" \n", '""', "[ ]"]
TABLES = {
    "topics": "topicConfigTable",
    "consumerOffset": "offsetTable",
    "subscriptionGroup": "subscriptionGroupTable",
    "consumerFilter": "filterDataByTopic",
    "delayOffset": "offsetTable",
}


def write_both(root: Path, name: str, main: str | None, backup: str | None) -> Path:
    path = root / "config" / f"{name}.json"
    for each, text in ((path, main), (path.with_name(f"{path.name}.bak"), backup)):
        each.unlink(missing_ok=True)
        if text is not None:
            each.write_text(text.replace("TABLE", TABLES[name]))
    return path


def test_a_json_file_of_any_size_is_not_read(root):
    path = write_both(root, "subscriptionGroup", "{}", None)
    os.truncate(path, 1 << 40)
    found = start(root)
    assert [one.kind for one in found.findings] == ["json"]
    assert "1,099,511,627,776 bytes" in found.findings[0].message


@pytest.mark.parametrize(("main", "backup", "broker", "kind"), JSON_CASES)
@pytest.mark.parametrize("name", ["consumerOffset", "subscriptionGroup", "consumerFilter"])
def test_json_files(root, name, main, backup, broker, kind):
    path = write_both(root, name, main, backup)
    found = start(root)
    assert (found.broker, [one.kind for one in found.findings]) == (broker, [kind] if kind else [])
    if broker == "refuses":
        assert found.line == f"load {path} Failed"


def test_topics_that_no_file_names(root):
    for path in (root / "config").glob("topics.json*"):
        path.unlink()
    found = start(root)
    assert (found.broker, found.messages_lost) == ("loses", COUNT)
    assert found.findings[0].kind == "topic-unknown"


@pytest.mark.parametrize("text", JSON_BLANK)
@pytest.mark.parametrize("name", ["consumerOffset", "consumerFilter", "subscriptionGroup"])
def test_json_files_without_a_value(root, name, text):
    write_both(root, name, text, "{}")
    taken = name != "subscriptionGroup"
    assert [one.kind for one in start(root).findings] == ["json" if taken else "json-backup-used"]
    write_both(root, name, text, "1")
    assert start(root).broker == ("loses" if taken else "refuses")


@pytest.mark.parametrize(("text", "kind"), [("1", "json"), ('{"TABLE":{1:{}}}', "json")])
def test_offsets_of_delayed_messages(root, text, kind):
    write_both(root, "delayOffset", text, text)
    assert start(root).broker == "refuses"
    write_both(root, "delayOffset", '{"TABLE":{1:2}}', None)
    assert start(root).broker == "starts"
    write_both(root, "delayOffset", '{"TABLE":null}', None)
    assert start(root).findings[0].severity == "lost"


@pytest.mark.parametrize(
    ("main", "backup", "broker"),
    [
        ('{"TABLE":{}}', None, "loses"),
        ("{}", '{"TABLE":{"T":{}}}', "loses"),
        ("null", '{"TABLE":{"T":{}}}', "loses"),
        ('{"TABLE":{"U":{}}}', None, "loses"),
        ("1", "{}", "loses"),
        ("1", '{"TABLE":{"T":{}}}', "starts"),
        ("", '{"TABLE":{"T":{}}}', "starts"),
        ('{"TABLE":{"T":{}}}', None, "starts"),
        ('{"TABLE":null}', "[1]", "refuses"),
        ('{"TABLE":{"T":{}},"dataVersion":null}', "1", "refuses"),
    ],
)
def test_topics_that_the_file_read_names(root, main, backup, broker):
    write_both(root, "topics", main, backup)
    found = start(root)
    assert (found.broker, found.messages_lost) == (broker, COUNT if broker == "loses" else 0)


def test_topics_without_an_entry_of_their_own(tmp_path):
    root = tmp_path / "store"
    light = CONFIG.replace(enable_multi_dispatch=True, enable_lmq=True)
    with rmqstore.open(root, "a", config=light) as store:
        store.put("made-by-a-put", b"x", lite_topics=["one"])
        store.put("made-by-a-put", b"x", delay_level=5)
        store.put("%RETRY%g", b"x")
    assert "topic-unknown" not in [one.kind for one in start(root).findings]


def test_a_queue_without_files_behind_the_dispatch(root):
    shutil.rmtree(root / QUEUE)
    found = start(root)
    assert (found.broker, found.messages_lost) == ("loses", COUNT // 4)
    assert found.findings[0].kind == "queue-missing"
    shutil.rmtree(root / "consumequeue")
    assert start(root).broker == "starts"  # all of them are dispatched again


def test_a_queue_that_lost_its_end(root):
    path = sorted((root / QUEUE).iterdir())[-1]
    used = COUNT // 4 - int(path.name) // 20
    with path.open("r+b") as file:
        file.seek((used - 3) * 20)
        file.write(bytes(60))
    found = start(root)
    assert (found.broker, found.messages_lost) == ("loses", 3)
    assert found.findings[0].kind == "unit-missing"


@pytest.mark.parametrize("how", ["gone", "zeros", "empty", "cut"])
def test_a_log_that_ends_before_what_the_queues_name(root, how):
    path = sorted((root / "commitlog").iterdir())[-1]
    size, offset = path.stat().st_size, int(path.name)
    with rmqstore.open(root) as store:
        behind = sum(m.physical_offset >= offset for m in store.scan())
    if how == "gone":
        path.unlink()
    else:
        os.truncate(path, 0 if how != "cut" else 100)
        if how == "zeros":
            os.truncate(path, size)
    found = start(root)
    if how in ("empty", "cut"):
        assert (found.broker, found.findings[0].severity) == ("refuses", "stop")
        return
    assert (found.broker, found.messages_lost) == ("loses", behind)
    [one] = found.findings
    assert (one.severity, one.kind, one.offset) == ("lost", "behind-log-end", offset)
    assert one.file == f"commitlog/{path.name}"
    assert "put it back" in one.message


def test_a_log_without_files(root):
    shutil.rmtree(root / "commitlog")
    found = start(root)
    assert (found.broker, found.findings[0].kind) == ("loses", "missing-file")
    assert found.line == "The commitlog files are deleted, and delete the consume queue files"


def test_a_dispatch_that_waits_for_ever(root):
    sorted((root / "commitlog").iterdir())[1].unlink()
    assert start(root).broker != "loops"
    shutil.rmtree(root / "consumequeue")
    found = start(root)
    assert (found.broker, "gap" in [one.kind for one in found.findings]) == ("loops", True)


def test_findings_as_json(root):
    os.truncate(root / FIRST, 0)
    one = start(root).findings[0].to_json()
    assert list(one) == ["severity", "kind", "file", "offset", "message"]
    assert json.loads(json.dumps(one)) == one


def test_what_is_no_store(tmp_path):
    with pytest.raises(rmqstore.StoreNotFoundError):
        offline.broker_start(tmp_path)


@pytest.mark.parametrize("kind", ["lock", "checkpoint"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("nowhere")])
def test_what_is_no_file_where_a_broker_opens_one(root, kind, make):
    (root / kind).unlink(missing_ok=True)
    make(root / kind)
    found = start(root)
    assert found.broker == "refuses"
    assert (found.findings[0].severity, found.findings[0].file) == ("stop", kind)


@pytest.mark.parametrize("name", ["topics.json", "delayOffset.json", "consumerOffset.json"])
def test_a_fifo_among_the_json_files(root, name):
    (root / "config" / name).unlink(missing_ok=True)
    os.mkfifo(root / "config" / name)
    one = next(one for one in start(root).findings if one.file == f"config/{name}")
    assert "not a regular file" in one.message


@pytest.mark.parametrize("name", ["index", "consumequeue", "consumequeue/T", QUEUE])
def test_a_directory_that_is_a_link_to_nothing(root, name):
    shutil.rmtree(root / name)
    (root / name).symlink_to("nowhere")
    found = start(root)
    assert found.broker == "loses"
    one = next(one for one in found.findings if one.kind == "link")
    assert (one.file, "leads nowhere" in one.message) == (name, True)
