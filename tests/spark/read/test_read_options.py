"""Options of the sources: each that cannot be meant is an error that names it."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import rmqstore
from rmqstore.errors import FilterError, StoreNotFoundError, TopicNotFoundError
from rmqstore.spark.common.columns import SchemaError
from rmqstore.spark.common.options import OptionError
from rmqstore.spark.common.schema import spark_schema
from rmqstore.spark.read.batch import BatchReader
from rmqstore.spark.read.options import default_schema
from rmqstore.spark.sink.options import parse_write_options
from rmqstore.spark.stream.source import StreamReader

pytestmark = pytest.mark.spark

NO_QUEUE = '{"orders":[7]}'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "s", "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("orders", b"body", tags="paid", keys=["a"])
    return tmp_path / "s"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"queuenums": "4"},
            "the batch source has no option 'queueNums'; .*the sink has it",
        ),
        (
            {"maxmessagespertrigger": "4"},
            "no option 'maxMessagesPerTrigger'; .*the streaming source has it",
        ),
        ({"maxoffsetspertrigger": "4"}, "no option 'maxOffsetsPerTrigger'.*streaming source has"),
        ({"topic": "orders"}, "the batch source has no option 'topic'; nearest is 'topics'"),
        ({"topics": "orders", "topicPattern": "o.*"}, "'topics' and 'topicPattern' contradict"),
        ({"topics": "orders", "queues": '{"orders":[0]}'}, "'topics' and 'queues' contradict"),
        ({"consumeFrom": "first", "consumeFromTimestamp": "1"}, "contradict each other"),
        ({"consumeUntil": "last", "consumeUntilTimestamp": "1"}, "contradict each other"),
        ({"columns": "topic", "includeProperties": "false"}, "contradict each other"),
        ({"topicPattern": "("}, "option 'topicPattern' is '\\('"),
        ({"topics": ","}, "option 'topics' must be at least one value.*got ','"),
        ({"queues": "[0]"}, "option 'queues' must be"),
        ({"queues": '{"orders":[-1]}'}, "option 'queues' must be"),
        ({"queues": "{"}, "option 'queues' is '{', which is not JSON"),
        ({"queues": NO_QUEUE}, "option 'queues' names queue 7 of 'orders'; it has 4"),
        ({"consumeFrom": "middle"}, "option 'consumeFrom' must be first, last, g.*got 'middle'"),
        ({"consumeFrom": '{"orders":{"0":-3}}'}, "option 'consumeFrom' must be"),
        ({"consumeFrom": '{"orders":{"x":1}}'}, "option 'consumeFrom' must be"),
        ({"consumeFrom": '{"orders":{"0":true}}'}, "option 'consumeFrom' must be"),
        ({"consumeFrom": '{"order":{"0":1}}'}, "'order', which is not read; nearest is 'orders'"),
        ({"consumeFrom": '{"orders":{"9":5}}'}, "given for queue 9 of 'orders'; it has 4"),
        ({"consumeUntil": '{"orders":{"0":1,"4":1}}'}, "given for queue 4 of 'orders'; it has 4"),
        ({"consumeFromTimestamp": '{"orders":{"9":1}}'}, "given for queue 9 of 'orders'; it has 4"),
        ({"consumeUntilTimestamp": '{"orders":{"9":1}}'}, "given for queue 9 of 'orders'; it has "),
        ({"consumeFrom": "group"}, "option 'group' names none"),
        ({"group": "g"}, "option 'group' is given, but 'consumeFrom' is not 'group'"),
        ({"consumeUntil": "first"}, "option 'consumeUntil' must be last, or JSON.*got 'first'"),
        (
            {"consumeUntil": '{"orders":{"0":-2}}'},
            "'consumeUntil' must be -1 or more for 'orders', got -2",
        ),
        (
            {"consumeFromTimestamp": "yesterday"},
            "option 'consumeFromTimestamp' must be .*'yesterday'",
        ),
        (
            {"consumeFromTimestamp": '{"orders":{"0":"x"}}'},
            "option 'consumeFromTimestamp' must be .*'x'",
        ),
        ({"onNoTimestampMatch": "last"}, "given without 'consumeFromTimestamp'"),
        (
            {"onCorrupt": "explode"},
            "option 'onCorrupt' must be one of fail, skip, stop.*got 'explode'",
        ),
        ({"failOnDataLoss": "maybe"}, "option 'failOnDataLoss' must be true or.*got 'maybe'"),
        ({"maxPartitionBytes": "1"}, "option 'maxPartitionBytes' must be 1024 to.*got '1'"),
        ({"maxMessagesPerPartition": "0"}, "option 'maxMessagesPerPartition' must be 1.*got '0'"),
        ({"minPartitions": "many"}, "option 'minPartitions' must be a number from 1.*got 'many'"),
        ({"scan": "index"}, "option 'scan' is 'index', but option 'keys' names none"),
        ({"scan": "index", "keys": "a", "consumeFrom": "first"}, "'scan' and 'consumeFrom' contra"),
        ({"scan": "commitlog", "queues": '{"orders":[0]}'}, "'scan' and 'queues' contradict"),
        (
            {"scan": "fast"},
            "option 'scan' must be one of auto, commitlog, consumequeue, i.*got 'fast'",
        ),
        ({"columns": "topic"}, "option 'columns' and the schema contradict each other"),
        ({"subscribe": "orders", "topics": "other"}, "option 'topics' is given twice"),
    ],
)
def test_what_cannot_be_meant(root: Path, options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text) as told:
        BatchReader({"path": str(root), **options}, spark_schema()).partitions()
    assert "\n" not in str(told.value)


def test_a_stream_from_a_queue_that_is_not_there(root: Path) -> None:
    given = {"path": str(root), "consumeFrom": '{"orders":{"0":0,"9":5}}'}
    with pytest.raises(OptionError, match="given for queue 9 of 'orders'; it has 4"):
        StreamReader(given, spark_schema()).initialOffset()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"topics": "order"}, TopicNotFoundError, "no topic 'order'; nearest is 'orders'"),
        ({"queues": '{"order":[0]}'}, TopicNotFoundError, "no topic 'order'; nearest is 'orders'"),
        ({"tags": " || "}, FilterError, "no tag in"),
        ({"tags": "paid && x"}, FilterError, r"found '&&' \(at character 5\)"),
        ({"sql": "a >"}, FilterError, r"found the end \(at character 3\)"),
        ({"path": "/nowhere"}, StoreNotFoundError, "no such directory: give the path of a store"),
        ({"path": "/"}, StoreNotFoundError, "no commitlog/ in it: give the directory that"),
        ({"path": "s3://bucket/x"}, OptionError, "'path' must be a local directory"),
        ({"path": ""}, OptionError, "option 'path' is missing"),
        ({"path": " /nowhere"}, OptionError, "' /nowhere': there is a blank before the path"),
        ({"path": "\t/nowhere"}, OptionError, "there is a blank before the path"),
        ({"path": " file:///nowhere"}, OptionError, "there is a blank before the path"),
        ({"path": "/nowhere\n"}, OptionError, "there is a blank behind the path"),
        ({"path": "nowhere "}, OptionError, "there is a blank behind the path"),
        ({"paths": '["/nowhere", " /nowhere"]'}, OptionError, "' /nowhere': there is a blank"),
    ],
)
def test_what_is_not_there(
    root: Path, options: dict[str, str], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        BatchReader({"path": str(root), **options}, spark_schema()).partitions()


def test_a_table_of_the_catalogue() -> None:
    """Spark hands a table's options to no Python source: it is made without any."""
    with pytest.raises(OptionError, match=r"'path' is missing: .*: use CREATE TEMPORARY VIEW"):
        BatchReader({}, spark_schema())
    with pytest.raises(OptionError, match="use CREATE TEMPORARY VIEW"):  # a stream's toTable()
        parse_write_options({"checkpointlocation": "/nowhere", "outputmode": "Append"})
    with pytest.raises(OptionError, match=r"'path' is missing: load\(\) takes the .* store$"):
        BatchReader({"topics": "orders"}, spark_schema())


def test_a_store_whose_name_has_blanks(root: Path, tmp_path: Path) -> None:
    path = tmp_path / " a store "
    shutil.copytree(root, path)
    partitions = BatchReader({"path": str(path)}, spark_schema()).partitions()
    assert {partition.path for partition in partitions} == {str(path)}


@pytest.mark.parametrize(
    "schema",
    [
        StructType([StructField("topics", StringType())]),
        StructType([StructField("queue_id", LongType())]),
        StructType([StructField("topic", StringType(), False)]),
    ],
)
def test_a_schema_that_is_not_ours(root: Path, schema: StructType) -> None:
    with pytest.raises(SchemaError):
        BatchReader({"path": str(root)}, schema)


def test_names_of_kafka_mean_the_same(root: Path) -> None:
    kafka = {
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "endingOffsets": '{"orders":{"0":-1}}',
        "maxRecordsPerPartition": "5",
    }
    ours = {
        "topics": "orders",
        "consumeFrom": "first",
        "consumeUntil": '{"orders":{"0":-1}}',
        "maxMessagesPerPartition": "5",
    }
    queries = [
        BatchReader({"path": str(root), **given}, spark_schema()).query for given in (kafka, ours)
    ]
    assert queries[0] == queries[1] == pickle.loads(pickle.dumps(queries[0]))


def test_the_columns_that_options_name() -> None:
    assert default_schema({"columns": "body, topic,raw_body"}) == spark_schema(
        ["body", "topic", "raw_body"]
    )
    assert "properties" not in default_schema({"includeheaders": "false"}).names
    assert default_schema({"anything": "else"}) == spark_schema()
