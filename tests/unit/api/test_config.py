"""StoreConfig: defaults, ranges, and a broker's own file."""

import dataclasses
import inspect
import pydoc
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.cli.common import load_config
from rmqstore.config import brokerconf
from rmqstore.config.fields import Spec, specs_of
from rmqstore.config.reasons import MEANINGLESS, REFUSED
from rmqstore.config.store_config import RmqStoreWarning, StoreConfig

pytestmark = pytest.mark.pure

SPECS = specs_of(StoreConfig)
BROKER_S = StoreConfig(file_reserved_time=72)  # of a file without a field

# Some of release 4.9.3's defaults, by the Java name.
JAVA_DEFAULTS = {
    "mappedFileSizeCommitLog": 1073741824,
    "mappedFileSizeConsumeQueue": 6000000,
    "mappedFileSizeConsumeQueueExt": 50331648,
    "flushIntervalCommitLog": 500,
    "flushIntervalConsumeQueue": 1000,
    "deleteWhen": "04",
    "diskMaxUsedSpaceRatio": 75,
    "maxMessageSize": 4194304,
    "checkCRCOnRecover": True,
    "flushCommitLogLeastPages": 4,
    "flushConsumeQueueLeastPages": 2,
    "flushCommitLogThoroughInterval": 10000,
    "flushConsumeQueueThoroughInterval": 60000,
    "maxTransferBytesOnMessageInMemory": 262144,
    "maxTransferBytesOnMessageInDisk": 65536,
    "maxHashSlotNum": 5000000,
    "maxIndexNum": 20000000,
    "flushDiskType": "ASYNC_FLUSH",
    "syncFlushTimeout": 5000,
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
}


def write(path: Path, text: str) -> Path:
    file = path / "broker.conf"
    file.write_text(text, encoding="utf-8")
    return file


def test_has_all_fields_and_ours() -> None:
    names = {one.name for one in dataclasses.fields(StoreConfig)}
    ours = {name for name, spec in SPECS.items() if spec.ours}
    assert {"store_host", "max_body_size", "retention_clock"} < ours < names
    explained = MEANINGLESS.keys() | REFUSED.keys()
    assert len(names - ours) + len(explained) == 77
    assert explained.isdisjoint(spec.java for spec in SPECS.values())
    keys = [spec.java for spec in SPECS.values() if spec.java]
    assert len(set(keys)) == len(keys) == len(SPECS) - 1  # a callable has none


def test_defaults_are_java_s() -> None:
    by_java = {spec.java: name for name, spec in SPECS.items()}
    config = StoreConfig()
    for java, default in JAVA_DEFAULTS.items():
        assert getattr(config, by_java[java]) == default, java


def test_nothing_is_deleted_unless_told(tmp_path: Path) -> None:
    config = StoreConfig()
    assert config.file_reserved_time is None
    assert config.clean_file_forcibly_enable is False
    assert config.disk_space_warning_level_ratio is None
    broker = StoreConfig.from_file(write(tmp_path, "brokerId=0\n"))
    assert broker == config.replace(file_reserved_time=72)
    conf = "fileReservedTime=0\ncleanFileForciblyEnable=true\ndiskSpaceWarningLevelRatio=95\n"
    told = StoreConfig.from_file(write(tmp_path, conf))
    assert told == StoreConfig(
        file_reserved_time=0, clean_file_forcibly_enable=True, disk_space_warning_level_ratio=95
    )


def test_small() -> None:
    config = StoreConfig.small(max_message_size=1000, max_index_num=30)
    assert config.mapped_file_size_commit_log == 16 << 20
    assert config.mapped_file_size_consume_queue == 120_000
    assert config.max_hash_slot_num == 50_000
    assert config.max_index_num == 30
    assert config.max_message_size == 1000
    assert StoreConfig.small().max_index_num == 200_000


@pytest.mark.parametrize(("given_size", "used"), [(20, 20), (21, 40), (5999, 6000), (6000, 6000)])
def test_queue_files_are_rounded_up_to_units(given_size: int, used: int) -> None:
    config = StoreConfig(mapped_file_size_consume_queue=given_size)
    assert config.mapped_file_size_consume_queue == used


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("mapped_file_size_commit_log", 0, "1024 to 2147483647"),
        ("mapped_file_size_commit_log", 1 << 31, "1024 to 2147483647"),
        ("mapped_file_size_consume_queue", 19, "20 to 2147483640"),
        ("mapped_file_size_consume_queue", 2147483641, "20 to 2147483640"),
        ("max_hash_slot_num", 0, "1 to 2147483647"),
        ("max_index_num", 1, "2 to 2147483647"),
        ("flush_disk_type", "SYNC", "ASYNC_FLUSH or SYNC_FLUSH"),
        ("flush_disk_type", "", "ASYNC_FLUSH or SYNC_FLUSH"),
        ("delete_when", "24", "hours of the day"),
        ("delete_when", "4,5", "hours of the day"),
        ("disk_max_used_space_ratio", 96, "10 to 95"),
        ("message_delay_level", "1s  5s", "delays such as"),
        ("message_delay_level", "5x", "delays such as"),
        ("store_host", "localhost:10911", "'ip:port'"),
        ("store_host", "1.2.3.4", "'ip:port'"),
        ("store_host", "1.2.3.256:1", "'ip:port'"),
        ("store_host", "1.2.3.4:65536", "'ip:port'"),
        ("store_host", "[::zz]:1", "'ip:port'"),
        ("default_topic_queue_nums", 0, "1 to"),
        ("retention_clock", "ctime", "message or mtime"),
        ("store_path_commit_log", "a\0b", "text"),
    ],
)
def test_out_of_range_is_named(field: str, value: object, allowed: str) -> None:
    with pytest.raises(ValueError, match=field) as caught:
        StoreConfig(**{field: value})  # type: ignore[arg-type]
    assert repr(value) in str(caught.value)
    assert allowed in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_message_size", "4096"),
        ("max_message_size", True),
        ("max_message_size", None),
        ("message_index_enable", 1),
        ("store_host", 5),
    ],
)
def test_wrong_type(field: str, value: object) -> None:
    with pytest.raises(TypeError, match=field):
        StoreConfig(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["0.0.0.0:0", "[::1]:10911", "[2001:db8::1.2.3.4]:65535"])
def test_good_hosts(host: str) -> None:
    assert StoreConfig(store_host=host).store_host == host


@pytest.mark.parametrize("hours", ["4", "04", "04;16", "4; 23;"])
def test_good_hours(hours: str) -> None:
    assert StoreConfig(delete_when=hours).delete_when == hours


def test_index_file_must_fit_java_s_int() -> None:
    with pytest.raises(ValueError, match="max_hash_slot_num is 5000000 and max_index_num"):
        StoreConfig(max_index_num=200_000_000)
    assert StoreConfig().index_file_bytes == 420_000_040


def test_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        StoreConfig().max_message_size = 1  # type: ignore[misc]


@pytest.mark.parametrize("key", sorted(MEANINGLESS))
def test_a_setting_without_a_meaning_says_why(key: str, tmp_path: Path) -> None:
    default, reason = MEANINGLESS[key]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert StoreConfig.from_file(write(tmp_path, f"{key}={default}")) == BROKER_S
    said = f", line 1: {key} has no meaning here: {reason}"
    value = {"true": "false", "false": "True"}.get(default, "7")
    with pytest.warns(RmqStoreWarning, match=re.escape(said)):
        assert StoreConfig.from_file(write(tmp_path, f"{key}={value}")) == BROKER_S


@pytest.mark.parametrize(
    "line",
    ["brokerRole=", "haListenPort=", "haListenPort=010912", "haHousekeepingInterval=+20000",
     "enableBatchPush=no", "messageIndexSafe=FALSE", "enableDLegerCommitLog=", "dLegerGroup="],
)  # fmt: skip
def test_a_broker_reads_the_default(tmp_path: Path, line: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert StoreConfig.from_file(write(tmp_path, line)) == BROKER_S


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_a_refused_setting_says_why(key: str, tmp_path: Path) -> None:
    default, reason = REFUSED[key]
    assert StoreConfig.from_file(write(tmp_path, f"{key}={default.upper()}")) == BROKER_S
    with pytest.raises(ValueError, match=f", line 1: {key} is 'true', .*{re.escape(reason)}"):
        StoreConfig.from_file(write(tmp_path, f"{key}=true"))


def test_the_command_line_names_a_setting_without_a_meaning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load_config(str(write(tmp_path, "brokerRole=SLAVE"))) == BROKER_S
    assert f"line 1: brokerRole has no meaning here: {MEANINGLESS['brokerRole'][1]}" in (
        capsys.readouterr().err
    )


def test_reads_a_broker_s_file(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "# a broker\n! too\n\nbrokerClusterName = DefaultCluster\nbrokerName=broker-a\n"
        "brokerId=0\nnamesrvAddr = a:9876;b:9876\ndeleteWhen=04\r\nfileReservedTime = 48\r"
        "mappedFileSizeCommitLog : 1048576\nmappedFileSizeConsumeQueue 6000\n"
        "flushDiskType=SYNC_FLUSH\nmessageDelayLevel=1s \\\n    5s\nmessageIndexEnable=FALSE\n"
        "storePathRootDir=/data/st\\u006Fre\ndefaultTopicQueueNums=8\n"
        "listenPort=10911\nclientWorkerThreads=4",
    )
    config = StoreConfig.from_file(file)
    assert config == StoreConfig(
        file_reserved_time=48,
        mapped_file_size_commit_log=1048576,
        mapped_file_size_consume_queue=6000,
        flush_disk_type="SYNC_FLUSH",
        message_delay_level="1s 5s",
        message_index_enable=False,
        store_path_root_dir="/data/store",
        default_topic_queue_nums=8,
    )


@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("mapedFileSizeCommitLog", "mappedFileSizeCommitLog"),
        ("mapedFileSizeConsumeQueue", "mappedFileSizeConsumeQueue"),
        ("MappedFileSizeCommitLog", "mappedFileSizeCommitLog"),
        ("isEnableBatchPush", "enableBatchPush"),  # the setter has no "is"
        ("brokerIp1", "brokerIP1"),
        ("flush_disk_type", "flushDiskType"),
    ],
)
def test_misspelt_key_warns(tmp_path: Path, key: str, right: str) -> None:
    file = write(tmp_path, f"\n{key}=1\n")
    with pytest.warns(RmqStoreWarning, match=rf"line 2: '{key}' .*perhaps {right} is meant"):
        assert StoreConfig.from_file(file) == StoreConfig(file_reserved_time=72)


def test_key_like_no_other_warns_without_a_guess(tmp_path: Path) -> None:
    with pytest.warns(RmqStoreWarning, match="'zzz' is no key") as caught:
        StoreConfig.from_file(write(tmp_path, "zzz=1"))
    assert "perhaps" not in str(caught[0].message)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("mappedFileSizeCommitLog=0", "mappedFileSizeCommitLog is 0, must be 1024"),
        ("mappedFileSizeCommitLog=1g", "mappedFileSizeCommitLog is '1g', must be a whole number"),
        ("mappedFileSizeCommitLog=", "must be a whole number"),
        ("messageIndexEnable=yes", "messageIndexEnable is 'yes', must be true or false"),
        ("flushDiskType=async_flush", "flushDiskType is 'async_flush'"),
        ("maxIndexNum=99999999999999999999999", "must be a whole number"),
        ("deleteWhen=\\u12", r"\\u without four hexadecimal digits"),
    ],
)
def test_bad_value_names_its_line(tmp_path: Path, line: str, problem: str) -> None:
    file = write(tmp_path, f"# first\nbrokerName=a\n{line}\n")
    with pytest.raises(ValueError, match=problem) as caught:
        StoreConfig.from_file(file)
    assert str(caught.value).startswith(f"{file}, line 3: ")


def test_fields_that_contradict_each_other_name_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "maxIndexNum=2000000000")
    with pytest.raises(ValueError, match=f"{file}: max_hash_slot_num is"):
        StoreConfig.from_file(file)


def test_space_behind_a_number_warns(tmp_path: Path) -> None:
    file = write(tmp_path, "maxMessageSize=65536 \n")
    with pytest.warns(RmqStoreWarning, match="line 1: maxMessageSize has a space behind"):
        assert StoreConfig.from_file(file).max_message_size == 65536


def test_last_of_equal_keys_counts(tmp_path: Path) -> None:
    file = write(tmp_path, "maxMessageSize=1\nmaxMessageSize=2\n")
    assert StoreConfig.from_file(file).max_message_size == 2


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        StoreConfig.from_file(tmp_path / "none")


def test_latin_1_is_read(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_bytes(b"brokerName=caf\xe9\nmaxMessageSize=7\n")
    assert StoreConfig.from_file(file).max_message_size == 7


def java_value(spec: Spec, value: object) -> str:
    return str(value).lower() if spec.kind is bool else str(value)


@given(st.data())
def test_any_good_value_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    numbers = [name for name, spec in SPECS.items() if spec.kind is int and "max_" not in name]
    name = data.draw(st.sampled_from(numbers))
    value = data.draw(st.integers(SPECS[name].low, SPECS[name].high))
    file = write(tmp_path_factory.mktemp("conf"), f"{SPECS[name].java}={value}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wanted = {"file_reserved_time": 72, name: value}
        assert StoreConfig.from_file(file) == StoreConfig(**wanted)  # type: ignore[arg-type]


def escape(text: str) -> str:
    out = "".join("\\" + char if char in "\\ :=#!" else char for char in text)
    return "".join(char if char.isascii() else f"\\u{ord(char):04x}" for char in out)


TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF), min_size=1, max_size=30)


@given(st.dictionaries(TEXT, TEXT, max_size=5))
def test_properties_come_back(pairs: dict[str, str]) -> None:
    text = "\n".join(f"  {escape(key)} = {escape(value)}" for key, value in pairs.items())
    entries = list(brokerconf.parse_properties(text))
    assert [(entry.key, entry.value) for entry in entries] == list(pairs.items())
    assert [entry.line for entry in entries] == list(range(1, len(pairs) + 1))


def test_properties_as_java_reads_them() -> None:
    text = "a\nb=\nc\\=d:e=f\ng = h \\\n   i\\\n\nj\\\\=k\n#x\\\nl=m\nn=o\\"
    assert [tuple(entry) for entry in brokerconf.parse_properties(text)] == [
        ("a", "", 1),
        ("b", "", 2),
        ("c=d", "e=f", 3),
        ("g", "h i", 4),
        ("j\\", "k", 7),
        ("l", "m", 9),
        ("n", "o", 10),
    ]


def test_help_has_every_field_with_unit_range_default_and_name() -> None:
    text = pydoc.plain(pydoc.render_doc(StoreConfig))
    said = inspect.cleandoc(StoreConfig.__doc__ or "")
    assert "{" not in said
    for one in dataclasses.fields(StoreConfig):
        spec = SPECS[one.name]
        [entry] = re.findall(rf"^{one.name} : .*\n(?:    .*\n?)+", said, re.MULTILINE)
        assert re.search(rf"\b{spec.java}\b", entry), entry
        shown = " ".join(entry.split())
        if spec.kind is int:
            assert spec.low in (0, 1) or f"{spec.low:_} to" in shown
            unit = f" {spec.unit}" if spec.unit else ""
            if spec.optional:
                assert f"None, or {spec.low:_} to " in shown
                assert unit in shown
            else:
                assert f"{one.default:_}{unit}, {spec.low:_} to " in shown
        else:
            assert repr(one.default) in shown
        assert all(choice in shown for choice in spec.choices)
        assert f"\n{one.name} : " in said
        assert f"\n |  {one.name} : " in text
    assert max(map(len, said.splitlines())) <= 76  # which help() indents


def test_numbers_have_units() -> None:
    without = {name for name, spec in SPECS.items() if spec.kind is int and not spec.unit}
    assert without == set()


def test_signature_has_the_fields() -> None:
    shown = inspect.signature(StoreConfig).parameters
    assert [*shown] == [one.name for one in dataclasses.fields(StoreConfig)]
    assert "flush_disk_type: 'str' = 'ASYNC_FLUSH'" in str(inspect.signature(StoreConfig))


def test_without_docstrings() -> None:
    code = "from rmqstore import StoreConfig; assert StoreConfig.__doc__ is None; StoreConfig()"
    subprocess.run([sys.executable, "-OO", "-c", code], check=True)
