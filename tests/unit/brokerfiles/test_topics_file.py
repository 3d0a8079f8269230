"""topics.json and consumerOffset.json: loaded, kept, replaced, and recovered from .bak."""

import json
import os
import shutil
import stat
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rmqstore.brokerfiles import configfile
from rmqstore.brokerfiles.configfile import ConfigFile
from rmqstore.brokerfiles.consumerfilters import ConsumerFilterTable
from rmqstore.brokerfiles.delays import DelayTable
from rmqstore.brokerfiles.groups import GroupTable
from rmqstore.brokerfiles.offsets import OffsetTable
from rmqstore.brokerfiles.topics import TopicConfig, TopicTable
from rmqstore.errors import StoreCorruptError
from rmqstore.offline.start_json import JSON_FILES, read_json

pytestmark = pytest.mark.pure

CONFIG = Path(__file__).parents[2] / "data" / "config"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(CONFIG / "broker", tmp_path / "config")
    return tmp_path


def topics_file(root: Path) -> Path:
    return root / "config" / "topics.json"


def test_reads_a_broker_s_topics(root: Path) -> None:
    table = TopicTable.load(root)
    assert table.version.counter == 13
    assert table.version.timestamp == 1795189698012
    assert "SCHEDULE_TOPIC_XXXX" in table
    assert table.get("Topic1") == TopicConfig("Topic1", 4, 4, 6)
    assert table.get("%DLQ%orders-group") is not None
    assert len(table) == len(list(table)) > 10


def test_writes_what_the_broker_would(root: Path) -> None:
    before = topics_file(root).read_bytes()
    table = TopicTable.load(root)
    table.save()
    assert topics_file(root).read_bytes() == before
    assert topics_file(root).with_suffix(".json.bak").read_bytes() == before


def test_no_file_is_an_empty_table(tmp_path: Path) -> None:
    table = TopicTable.load(tmp_path)
    assert len(table) == 0
    assert not (tmp_path / "config").exists()


def test_put_and_remove_count(tmp_path: Path) -> None:
    table = TopicTable(tmp_path)
    table.put(TopicConfig("a", 4, 4))
    table.put(TopicConfig("b", 1, 2, perm=4, order=True))
    assert not table.remove("c")
    assert table.remove("a")
    table.save()
    assert not topics_file(tmp_path).with_suffix(".json.bak").exists()
    again = TopicTable.load(tmp_path)
    assert again.version.counter == 3
    assert again.version.timestamp > 0
    assert list(again) == [TopicConfig("b", 1, 2, perm=4, order=True)]
    assert again.get("a") is None


def test_unknown_fields_are_kept(root: Path) -> None:
    topics_file(root).write_text(
        '{"dataVersion":{"counter":1,"stateVersion":5,"timestamp":2},"more":[1],'
        '"topicConfigTable":{"t":{"attributes":{"+k":"v"},"perm":6,"topicName":"t","zeta":1}}}'
    )
    table = TopicTable.load(root)
    table.put(TopicConfig("u", 1, 1))
    table.save()
    text = topics_file(root).read_text()
    assert '"stateVersion":5' in text
    assert '"more":[1]' in text
    assert text.index('"attributes"') < text.index('"order"') < text.index('"zeta"')
    loaded = TopicTable.load(root).get("t")
    assert loaded is not None
    assert loaded.other == {"attributes": {"+k": "v"}, "zeta": 1}
    assert loaded.read_queue_nums == 16


@pytest.mark.parametrize(
    "torn",
    [
        "",
        "  \n",
        "{",
        '{"topicConfigTable":{"t":{"perm":6',
        "[]",
        '{"topicConfigTable":[1]}',
        '{"topicConfigTable":{"t":5}}',
        '{"topicConfigTable":{"t":{"readQueueNums":"four"}}}',
        '{"topicConfigTable":{"t":{"readQueueNums":-1}}}',
        '{"topicConfigTable":{"t":{"order":1}}}',
        '{"topicConfigTable":{"t":{"topicFilterType":1}}}',
    ],
)
def test_torn_file_is_read_from_bak(root: Path, torn: str) -> None:
    main = topics_file(root)
    backup = main.with_suffix(".json.bak")
    shutil.copy(main, backup)
    main.write_text(torn)
    table = TopicTable.load(root)
    assert "Topic1" in table
    assert table.file.loaded_from == backup
    backup.write_text(torn)
    with pytest.raises(StoreCorruptError) as caught:
        TopicTable.load(root)
    assert str(main) in str(caught.value)
    assert str(backup) in str(caught.value)
    assert main.read_text() == backup.read_text() == torn


def test_missing_main_file_is_read_from_bak(root: Path) -> None:
    topics_file(root).rename(topics_file(root).with_suffix(".json.bak"))
    assert "Topic1" in TopicTable.load(root)


def test_torn_file_without_bak(root: Path) -> None:
    topics_file(root).write_text("{")
    with pytest.raises(StoreCorruptError, match=r"expected a key .*there is no .*\.bak"):
        TopicTable.load(root)


def test_a_torn_file_never_becomes_bak(root: Path) -> None:
    main = topics_file(root)
    backup = main.with_suffix(".json.bak")
    good = main.read_bytes()
    main.rename(backup)
    main.write_text("{")
    table = TopicTable.load(root)
    table.save()
    assert main.read_bytes() == backup.read_bytes() == good


def test_bak_is_one_writing_behind(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "x.json")
    for number in range(4):
        file.save({"n": number})
        assert file.path.read_text() == f'{{\n\t"n":{number}\n}}'
        if number:
            assert file.backup.read_text() == f'{{\n\t"n":{number - 1}\n}}'
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.json", "x.json.bak"]
    assert file.load(lambda data: data) == {"n": 3}


def test_permissions_stay(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "x.json")
    file.save({})
    file.path.chmod(0o640)
    file.save({"a": 1})
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o640


def test_a_failed_writing_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ConfigFile(tmp_path / "x.json")
    file.save({"n": 1})
    real = os.fsync

    def fail(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(configfile.os, "fsync", fail)
    with pytest.raises(OSError, match=r"No space left .*x\.json\.tmp"):
        file.save({"n": 2})
    monkeypatch.setattr(configfile.os, "fsync", real)
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert file.load(lambda data: data) == {"n": 1}


def test_leftovers_of_a_crash_are_overwritten(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "x.json")
    file.save({"n": 1})
    (tmp_path / "x.json.tmp").write_text("left")
    (tmp_path / "x.json.bak.tmp").write_text("left")
    file.save({"n": 2})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.json", "x.json.bak"]


def test_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(configfile.os, "link", refuse)
    file = ConfigFile(tmp_path / "x.json")
    file.save({"n": 1})
    file.save({"n": 2})
    assert file.backup.read_text() == '{\n\t"n":1\n}'


@pytest.mark.parametrize("which", ["path", "backup", "both"])
def test_links_stay_and_what_they_lead_to_is_replaced(tmp_path: Path, which: str) -> None:
    file = ConfigFile(tmp_path / "x.json")
    chosen = [file.path, file.backup] if which == "both" else [getattr(file, which)]
    for number, path in enumerate(chosen):
        target = tmp_path / f"disk{number}" / "y"
        target.parent.mkdir()
        target.write_text("{}")
        target.chmod(0o640)
        path.symlink_to(target)
    if which == "backup":
        file.path.write_text("{}")
    assert file.load(lambda data: data) == {}
    file.save({"n": 1})
    file.save({"n": 2})
    assert all(path.is_symlink() for path in chosen)
    assert file.path.read_text() == '{\n\t"n":2\n}'
    assert file.backup.read_text() == '{\n\t"n":1\n}'
    assert [path.name for path in tmp_path.glob("disk*/*")] == ["y"] * len(chosen)
    assert which == "backup" or file.path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("to", ["nowhere/y", "y", "x.json"])
def test_a_link_that_leads_nowhere(tmp_path: Path, to: str) -> None:
    """Its disk may not be mounted: the copy is read, and nothing is written."""
    file = ConfigFile(tmp_path / "x.json")
    file.path.symlink_to(tmp_path / to)
    with pytest.raises(StoreCorruptError, match=r"x\.json is a symbolic link to .*, which "):
        file.load(lambda data: data)
    with pytest.raises(FileNotFoundError, match=r"x\.json is a symbolic link to .*, which "):
        file.save({"n": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    file.backup.write_text('{"n": 7}')
    assert file.load(lambda data: data) == {"n": 7}


def _bak_to_main(main: Path, backup: Path) -> None:
    backup.symlink_to(main.name)


def _main_to_bak(main: Path, backup: Path) -> None:
    main.rename(backup)
    main.symlink_to(backup)


def _both_to_one(main: Path, backup: Path) -> None:
    target = main.parent / "disk" / "y"
    target.parent.mkdir()
    main.rename(target)
    main.symlink_to(target)
    backup.symlink_to("disk/y")


def _by_a_linked_directory(main: Path, backup: Path) -> None:
    (main.parent.parent / "by").symlink_to(main.parent)
    backup.symlink_to(Path("..", "by", main.name))


def _main_to_the_temporary_of_bak(main: Path, backup: Path) -> None:
    target = main.rename(backup.with_name(backup.name + ".tmp"))
    main.symlink_to(target.name)


def _one_inode(main: Path, backup: Path) -> None:
    backup.hardlink_to(main)


@pytest.mark.parametrize("through", ["directory", "link"])
@pytest.mark.parametrize(
    "join",
    [
        _bak_to_main,
        _main_to_bak,
        _both_to_one,
        _by_a_linked_directory,
        _main_to_the_temporary_of_bak,
        _one_inode,
    ],
)
def test_one_file_for_both_is_replaced(
    tmp_path: Path, join: Callable[[Path, Path], None], through: str
) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (tmp_path / "link").symlink_to(config)
    file = ConfigFile((config if through == "directory" else tmp_path / "link") / "x.json")
    (config / "x.json").write_text('{"n": 0}')
    join(config / "x.json", config / "x.json.bak")
    before = sorted(path.name for path in config.iterdir())
    linked = [path for path in config.iterdir() if path.is_symlink()]
    assert file.load(lambda data: data) == {"n": 0}
    for number in (1, 2):
        file.save({"n": number})
        assert ConfigFile(file.path).load(lambda data: data) == {"n": number}
        if file.backup.exists():
            assert json.loads(file.backup.read_text())["n"] in (number - 1, number)
    assert all(path.is_symlink() for path in linked)
    assert sorted(path.name for path in config.iterdir()) == before


@pytest.mark.parametrize("step", range(8))
def test_a_save_behind_links_that_ends_midway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Whatever was done of it, the old contents or the new ones are there, and the links are."""
    file = ConfigFile(tmp_path / "x.json")
    for number, path in enumerate((file.path, file.backup)):
        target = tmp_path / f"disk{number}" / "y"
        target.parent.mkdir()
        target.write_text("{}")
        path.symlink_to(target)
    file.save({"n": 1})
    left = step

    def stops(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def step_of(*arguments: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(5, name)
            return call(*arguments, **options)

        return step_of

    monkeypatch.setattr(configfile.os, "link", stops("link", os.link))
    monkeypatch.setattr(configfile.os, "write", stops("write", os.write))
    monkeypatch.setattr(configfile, "sync_file", stops("sync", configfile.sync_file))
    monkeypatch.setattr(Path, "replace", stops("replace", Path.replace))
    try:
        file.save({"n": 2})
    except OSError:
        assert left < 0
    monkeypatch.undo()
    assert file.path.is_symlink()
    assert file.backup.is_symlink()
    again = ConfigFile(file.path)
    assert again.load(lambda data: data) in ({"n": 1}, {"n": 2})
    again.save({"n": 3})
    assert again.load(lambda data: data) == {"n": 3}
    assert json.loads(file.backup.read_text()) in ({"n": 1}, {"n": 2})


def test_pipes_are_not_read(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "x.json")
    os.mkfifo(file.path)
    with pytest.raises(StoreCorruptError, match="not a regular file"):
        file.load(lambda data: data)


def test_other_charsets_come_back_as_they_were(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "x.json")
    file.path.write_bytes(b'{"expression":"caf\xe9"}')
    data = file.load(lambda data: data)
    file.save(data)
    assert file.path.read_bytes() == b'{\n\t"expression":"caf\xe9"\n}'


def test_a_file_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configfile, "MAX_BYTES", 10)
    (tmp_path / "x.json").write_text("[1,2,3,4,5]")
    with pytest.raises(StoreCorruptError, match="at most 10 are read"):
        ConfigFile(tmp_path / "x.json").load(lambda data: data)


def test_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[" + "1," * 100_000 + "1]")
    tracemalloc.start()
    try:
        ConfigFile(tmp_path / "x.json").load(lambda data: None)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20  # of the 256 MiB that are allowed
    finally:
        tracemalloc.stop()


def test_reads_a_broker_s_offsets(root: Path) -> None:
    table = OffsetTable.load(root)
    assert table.offsets["orders", "orders-group"] == {0: 250, 1: 251, 2: 250, 3: 250}
    assert table.offsets["%RETRY%orders-group", "orders-group"] == {0: 13}
    before = table.file.path.read_bytes()
    table.save()
    assert table.file.path.read_bytes() == before


def test_offsets_of_other_forms(root: Path) -> None:
    (root / "config" / "consumerOffset.json").write_text(
        '{"lmqOffsetTable":{"%LMQ%x@%LMQ%y":12},'
        '"offsetTable":{"t@g":{"0":5,"1":6},"noGroup":{0:1},"a@b@c":{0:2}}}'
    )
    table = OffsetTable.load(root)
    assert table.offsets == {("t", "g"): {0: 5, 1: 6}}
    table.offsets["u", "g"] = {3: 4}
    table.save()
    text = table.file.path.read_text()
    for kept in ('"%LMQ%x@%LMQ%y":12', '"noGroup":{0:1', '"a@b@c":{0:2', '"t@g":{0:5,1:6'):
        assert kept in text
    assert OffsetTable.load(root).offsets == table.offsets


@pytest.mark.parametrize(
    "table",
    ['{"t@g":5}', '{"t@g":{"x":1}}', '{"t@g":{0:"1"}}', '{"t@g":{-1:1}}', '{"t@g":{0:1.5}}', "[1]"],
)
def test_bad_offsets_are_refused(root: Path, table: str) -> None:
    (root / "config" / "consumerOffset.json").write_text(f'{{"offsetTable":{table}}}')
    with pytest.raises(StoreCorruptError, match=r"consumerOffset\.json"):
        OffsetTable.load(root)


@pytest.mark.parametrize("key", [("t@x", "g"), ("t", "g@x"), ("", "g"), ("t", "")])
def test_names_that_cannot_be_told_apart(tmp_path: Path, key: tuple[str, str]) -> None:
    table = OffsetTable(tmp_path)
    table.offsets[key] = {0: 1}
    with pytest.raises(ValueError, match="must not be empty or contain '@'"):
        table.save()
    assert not (tmp_path / "config").exists()


LONG = json.dumps("x" * 5_000_000)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("topics", f'{{"topicConfigTable":{{"a":{{"perm":{LONG}}}}}}}'),
        ("topics", f'{{"topicConfigTable":{{{LONG}:{{"perm":-1}}}}}}'),
        ("topics", f'{{"topicConfigTable":{{{LONG}:0}}}}'),
        ("subscriptionGroup", f'{{"subscriptionGroupTable":{{"a":{{"retryMaxTimes":{LONG}}}}}}}'),
        ("subscriptionGroup", f'{{"subscriptionGroupTable":{{{LONG}:0}}}}'),
        ("consumerOffset", f'{{"offsetTable":{{"a@b":{{{LONG}:0}}}}}}'),
        ("consumerOffset", f'{{"offsetTable":{{"a@{LONG[1:-1]}":{{0:null}}}}}}'),
        ("consumerOffset", f'{{"offsetTable":{{"a@b":{{0:{LONG}}}}}}}'),
        ("delayOffset", f'{{"offsetTable":{{{LONG}:0}}}}'),
        ("delayOffset", f'{{"offsetTable":{{1:{LONG}}}}}'),
        ("consumerFilter", f'{{"filterDataByTopic":{{{LONG}:0}}}}'),
        ("consumerFilter", f'{{"filterDataByTopic":{{"a":{{"groupFilterData":{{{LONG}:0}}}}}}}}'),
    ],
)
def test_an_error_shows_a_bounded_part_of_a_value(root: Path, name: str, text: str) -> None:
    for path in (root / "config").glob(f"{name}.json*"):
        path.unlink()
    (root / f"config/{name}.json").write_text(text)
    load = {
        "topics": TopicTable.load,
        "subscriptionGroup": GroupTable.load,
        "consumerOffset": OffsetTable.load,
        "delayOffset": DelayTable.load,
        "consumerFilter": partial(ConsumerFilterTable.load, now=0),
    }[name]
    with pytest.raises(StoreCorruptError) as caught:
        load(root)
    assert len(str(caught.value)) < 1000
    for one in JSON_FILES:
        if one[0] == f"{name}.json":
            assert len(read_json(root / f"config/{name}.json", *one[1:3]).reason) < 1000
