"""``broker.conf`` shown and checked; the broker's JSON converted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rmqstore
from rmqstore.config.fields import specs_of
from rmqstore.config.meanings import MEANINGS, meaning_of
from rmqstore.toolbox import ConfigEntry, config_convert, config_lint, config_show

pytestmark = pytest.mark.pure

OFFSETS = '{\n\t"offsetTable":{\n\t\t"orders@billing":{0:247,1:250\n\t\t}\n\t}\n}'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "s", "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("orders", b"1", keys="k")
    return tmp_path / "s"


def lint(tmp_path: Path, text: str, root: Path | None = None) -> dict[str, ConfigEntry]:
    file = tmp_path / "broker.conf"
    file.write_text(text)
    return {one.key: one for one in config_lint(file, root) if one.problem is not None}


def test_every_field_has_a_meaning() -> None:
    assert {one.java for one in specs_of(rmqstore.StoreConfig).values() if one.java} == set(
        MEANINGS
    )


@pytest.mark.parametrize(
    ("key", "start"),
    [("haListenPort", "no effect here"), ("listenPort", "of another part"), ("x", None)],
)
def test_meanings_of_other_keys(key: str, start: str | None) -> None:
    meaning = meaning_of(key)
    assert (meaning or "").startswith(start or "")
    assert (meaning is None) == (start is None)


def test_a_good_file(tmp_path: Path) -> None:
    text = "brokerName=a\ndeleteWhen=04;16\nfileReservedTime=48\nflushDiskType=SYNC_FLUSH\n"
    text += "listenPort=3\n"
    assert lint(tmp_path, text) == {}


@pytest.mark.parametrize(
    ("line", "key", "problem"),
    [
        ("fileReservedTime=x", "fileReservedTime", "whole number"),
        ("diskMaxUsedSpaceRatio=200", "diskMaxUsedSpaceRatio", "10 to 95"),
        ("flushDiskType=SYNC", "flushDiskType", "ASYNC_FLUSH or SYNC_FLUSH"),
        ("enableLmq=yes", "enableLmq", "true or false"),
        ("deleteWhen=25", "deleteWhen", "00 to 23"),
        ("fileReservedTime=0", "fileReservedTime", "every log file but the last"),
        ("fileReservedTime=72h", "fileReservedTime", "ignores it without a word"),
        ("flushDiskType=SYNC", "flushDiskType", "ignores it without a word"),
        ("enableLmq=yes", "enableLmq", "takes it as false"),
        ("mappedFileSizeConsumeQueue=6010", "mappedFileSizeConsumeQueue", "takes 6020"),
        ("listenPort=65535", "listenPort", "3 to 65534"),
        ("listenPort=2", "listenPort", "3 to 65534"),
        ("listenPort=10911;", "listenPort", "whole number"),
        ("fileReservedTime=48 ", "fileReservedTime", "space behind"),
        ("flushCommitLogThoroughInterval=100", "flushCommitLogThoroughInterval", "no effect"),
        ("enableDLegerCommitLog=true", "enableDLegerCommitLog", "refused"),
        ("storePathCommitLog=/none/there", "storePathCommitLog", "/none/there"),
        ("storePathRootDir=/", "storePathCommitLog", "$HOME/store/commitlog"),
        ("mappedFileSizeCommitLog=4096\nmaxMessageSize=5000", "maxMessageSize", "4096"),
        ("mapedFileSizeCommitLog=1", "mapedFileSizeCommitLog", "ignores it"),
    ],
)
def test_problems(tmp_path: Path, line: str, key: str, problem: str) -> None:
    found = lint(tmp_path, line + "\n")
    assert list(found) == [key]
    assert problem in (found[key].problem or "")


def test_unknown_and_repeated_keys(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("# c\nmapedFileSizeCommitLog=1\nbrokerName=a\nbrokerName=b\nqqqq=1\n")
    first, one, two, far = config_lint(file)
    assert (first.line, first.nearest, first.meaning) == (2, "mappedFileSizeCommitLog", None)
    assert "line 4, which wins" in (one.problem or "")
    assert two.problem is None
    assert (far.nearest, far.value, far.line) == (None, "1", 5)


def test_sizes_of_a_store(tmp_path: Path, root: Path) -> None:
    found = lint(tmp_path, "mappedFileSizeCommitLog=1048576\n", root)
    log, queue = found["mappedFileSizeCommitLog"], found["mappedFileSizeConsumeQueue"]
    assert "have 16777216" in (log.problem or "")
    assert "length not matched message store config value" in (log.problem or "")
    assert (queue.line, queue.value) == (None, "6000000")
    assert "have 120000" in (queue.problem or "")
    good = (
        "mappedFileSizeCommitLog=16777216\nmappedFileSizeConsumeQueue=120000\n"
        "maxHashSlotNum=50000\nmaxIndexNum=200000\n"
    )
    assert lint(tmp_path, good, root) == {}
    paths = f"{good}storePathRootDir={root}\nstorePathCommitLog={root}/commitlog\n"
    assert lint(tmp_path, paths, root) == {}
    (tmp_path / "other").mkdir()
    other = paths.replace(f"Dir={root}", f"Dir={tmp_path}/other")
    assert "another store" in (lint(tmp_path, other, root)["storePathRootDir"].problem or "")


def test_show(tmp_path: Path, root: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("haListenPort=1\n")
    before = [(one, one.stat().st_mtime_ns) for one in sorted(root.rglob("*"))]
    shown = config_show(file, root)
    assert [(one, one.stat().st_mtime_ns) for one in sorted(root.rglob("*"))] == before
    assert [(one.key, one.value, one.line) for one in shown] == [
        ("haListenPort", "1", 1),
        ("mappedFileSizeCommitLog", "16777216", None),
        ("mappedFileSizeConsumeQueue", "120000", None),
        ("maxHashSlotNum", "50000", None),
        ("maxIndexNum", "200000", None),
    ]
    assert all(one.meaning for one in shown)
    assert config_show(file) == shown[:1]
    with pytest.raises(rmqstore.StoreNotFoundError):
        config_show(None, tmp_path / "none")


def test_convert_both_ways(tmp_path: Path) -> None:
    file = tmp_path / "consumerOffset.json"
    file.write_text(OFFSETS)
    standard = config_convert(file)
    assert json.loads(standard) == {"offsetTable": {"orders@billing": {"0": 247, "1": 250}}}
    file.write_text(standard)
    assert config_convert(file, to="fastjson") == OFFSETS
    assert config_convert(file) == standard


def test_a_topic_named_by_a_number_stays_quoted(tmp_path: Path) -> None:
    file = tmp_path / "topics.json"
    file.write_text('{"topicConfigTable":{"1":{"perm":6}}}')
    assert '"1":{' in config_convert(file, to="fastjson")


def test_convert_keeps_other_bytes(tmp_path: Path) -> None:
    file = tmp_path / "topics.json"
    file.write_bytes(b'{"a\xff":"\xc3\xa9"}')
    text = config_convert(file, to="fastjson").encode("utf-8", "surrogateescape")
    assert text == b'{\n\t"a\xff":"\xc3\xa9"\n}'


def test_convert_a_torn_file(tmp_path: Path) -> None:
    file = tmp_path / "consumerOffset.json"
    file.write_text(OFFSETS[:-9])
    with pytest.raises(rmqstore.StoreCorruptError) as raised:
        config_convert(file)
    assert raised.value.offset == len(OFFSETS) - 9
    assert "line 3" in str(raised.value)
    assert ".bak" not in str(raised.value)
    Path(f"{file}.bak").write_text(OFFSETS)
    with pytest.raises(rmqstore.StoreCorruptError, match=r"consumerOffset\.json\.bak"):
        config_convert(file)
