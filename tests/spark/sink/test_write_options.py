"""What a write is told: options and columns, refused by name before any task starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.spark.common.columns import SINK_COLUMNS, SchemaError
from rmqstore.spark.common.options import OptionError
from rmqstore.spark.sink.options import (
    SinkLimits,
    limits_of,
    parse_write_options,
    sink_columns,
)

pytestmark = pytest.mark.spark


def fields(text: str) -> StructType:
    """A schema from ``name type`` pairs, without a session."""
    from pyspark.sql import types as t

    kinds: dict[str, Any] = {
        "string": t.StringType(),
        "binary": t.BinaryType(),
        "int": t.IntegerType(),
        "short": t.ShortType(),
        "bigint": t.LongType(),
        "double": t.DoubleType(),
        "timestamp": t.TimestampType(),
        "ntz": t.TimestampNTZType(),
        "date": t.DateType(),
        "strings": t.ArrayType(t.StringType()),
        "ints": t.ArrayType(t.IntegerType()),
        "map": t.MapType(t.StringType(), t.StringType()),
        "intmap": t.MapType(t.StringType(), t.IntegerType()),
    }
    made = StructType()
    for pair in filter(None, text.split(",")):
        name, kind = pair.split()
        made.add(name, kinds[kind])
    return made


@pytest.mark.parametrize(
    "text",
    [
        "topic string,body binary",
        "born_timestamp timestamp,flag int,properties map,queue_id int,keys strings,"
        "tags string,body string,topic string",
        "body binary,topic string,keys string,queue_id bigint,flag short,born_timestamp bigint",
        "body binary,topic string,born_timestamp ntz",
    ],
)
def test_columns_that_may_be(text: str) -> None:
    found = sink_columns(fields(text), None)
    assert set(found) == {pair.split()[0] for pair in text.split(",")}
    assert list(found) == [name for name in SINK_COLUMNS if name in found]


@pytest.mark.parametrize(
    ("text", "topic", "error"),
    [
        (
            "topic string,body binary,queue_offset bigint",
            None,
            "the sink writes no column 'queue_offset'",
        ),
        ("topic string,body binary,Tags string", None, "no column 'Tags'; nearest is 'tags'"),
        ("topic string,body binary,xyz int", None, "no column 'xyz'.*; it writes topic, body"),
        ("topic string,body binary,body binary", None, "'body' appears twice"),
        ("topic string", None, "'body' is missing"),
        ("body binary", None, "'topic' is missing, and there is no option 'topic'"),
        ("topic int,body binary", None, "'topic' must be string.*not int"),
        ("topic int,body binary", "orders", "'topic' must be string.*not int"),
        ("topic string,body int", None, "'body' must be binary or string.*not int"),
        ("topic string,body binary,keys ints", None, "'keys' must be array<str.*not array<int>"),
        ("topic string,body binary,queue_id string", None, "'queue_id' must be int.*not string"),
        ("topic string,body binary,flag double", None, "'flag' must be int.*not double"),
        ("topic string,body binary,tags int", None, "'tags' must be string.*not int"),
        (
            "topic string,body binary,properties intmap",
            None,
            "'properties' must be map<string,string>, not map<string,int>",
        ),
        (
            "topic string,body binary,born_timestamp date",
            None,
            "'born_timestamp' must be .*not date",
        ),
    ],
)
def test_columns_that_may_not_be(text: str, topic: str | None, error: str) -> None:
    with pytest.raises(SchemaError, match=error):
        sink_columns(fields(text), topic)


def test_a_topic_for_all_rows_stands_for_the_column() -> None:
    assert sink_columns(fields("body binary"), "orders") == ("body",)


def test_options_have_defaults_and_values(tmp_path: Path) -> None:
    plain = parse_write_options({"path": str(tmp_path)})
    assert (plain.path, plain.topic, plain.queue_nums) == (str(tmp_path), None, None)
    assert plain.sync
    assert not plain.allow_overwrite
    assert (plain.job_id, plain.lock_timeout, plain.config) == (None, 60.0, None)
    assert plain.store_config() is None
    config = tmp_path / "broker.conf"
    config.write_text("mappedFileSizeCommitLog=65536\n")
    told = parse_write_options(
        {
            "path": f"file://{tmp_path}",
            "topic": "orders",
            "queuenums": "8",
            "flush": "ASYNC",
            "allowoverwrite": "true",
            "jobid": "night 7",
            "locktimeout": "500ms",
            "config": str(config),
        }
    )
    assert (told.path, told.topic, told.queue_nums) == (str(tmp_path), "orders", 8)
    assert not told.sync
    assert told.allow_overwrite
    assert (told.job_id, told.lock_timeout) == ("night 7", 0.5)
    read = told.store_config()
    assert read is not None
    assert read.mapped_file_size_commit_log == 65536


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("minpartitions", "4", "no option 'minPartitions'.*; the batch source has it"),
        ("startingoffsets", "4", "no option 'startingOffsets'.*; the batch source has it"),
        ("path", " /data/store", "option 'path' is ' /data/store': there is a blank before"),
        ("path", "/data/store ", "option 'path' is '/data/store ': there is a blank behind"),
        ("queuenum", "4", "the sink has no option 'queuenum'; nearest is 'queueNums'"),
        ("queuenums", "0", "'queueNums' must be 1 to 65536.*got '0'"),
        ("topic", "a b", "'topic' must be 1 to 127 of.*got 'a b'"),
        ("topic", "", "'topic' must be 1 to 127 of.*got ''"),
        ("flush", "never", "'flush' must be one of sync, async.*got 'never'"),
        ("allowoverwrite", "1", "'allowOverwrite' must be true or false.*got '1'"),
        ("jobid", "", "'jobId' must be 1 to 256 characters.*got ''"),
        ("batchid", "4", "'batchId' needs option 'jobId'"),
        ("locktimeout", "soon", "'lockTimeout' must be a span of time.*got 'soon'"),
        ("config", "/nowhere/broker.conf", "'config' is '/nowhere/broker.conf': .*No such file"),
        ("paths", '["/a", "/b"]', "'path' names 2 stores; a sink writes one"),
    ],
)
def test_options_that_may_not_be(tmp_path: Path, name: str, value: str, error: str) -> None:
    with pytest.raises(OptionError, match=error):
        parse_write_options({"path": str(tmp_path), name: value})


def test_a_write_without_a_path() -> None:
    with pytest.raises(OptionError, match="'path' is missing"):
        parse_write_options({"topic": "orders"})


def test_limits_are_those_of_the_store_that_is_there(tmp_path: Path) -> None:
    defaults = SinkLimits(4 << 20, 1 << 30, False, False)
    assert limits_of(str(tmp_path / "none"), None) == defaults
    small = StoreConfig.small().replace(record_checksum=True, store_host="[::1]:10911")
    assert limits_of(str(tmp_path / "none"), small) == SinkLimits(4 << 20, 16 << 20, True, True)
    with rmqstore.open(tmp_path / "store", "a", config=small):
        assert limits_of(str(tmp_path / "store"), None) == SinkLimits(
            4 << 20, 16 << 20, False, False
        )
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(OptionError, match="is no directory"):
        limits_of(str(file), None)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("text", ["", "maxMessageSize=1000\n", "mappedFileSizeConsumeQueue=2000\n"])
def test_a_configuration_without_a_size_of_the_log(tmp_path: Path, text: str) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(text)
    found = StoreConfig.from_file(config)
    with rmqstore.open(tmp_path / "store", "a", config=StoreConfig.small()):
        pass
    expected = SinkLimits(found.max_message_size, 16 << 20, False, False)
    assert limits_of(str(tmp_path / "store"), found) == expected


def test_a_configuration_that_contradicts_the_store(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=StoreConfig.small()):
        pass
    other = StoreConfig.small().replace(mapped_file_size_commit_log=1 << 20)
    with pytest.raises(OptionError, match=r"1048576 bytes.* 16777216"):
        limits_of(str(tmp_path / "store"), other)
