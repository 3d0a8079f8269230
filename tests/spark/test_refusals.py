"""Of a table of the catalogue, a thread of Python, a store that went: what a session says."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.spark import register, verify

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.long]

CONFIG = rmqstore.StoreConfig.small()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.put_many("T", [b"x"] * 50)
    return tmp_path / "store"


def test_a_table_of_the_catalogue(spark: Any, root: Path) -> None:
    text = "Spark does not pass the options of a table.*use CREATE TEMPORARY VIEW"
    columns = "(topic string, body binary)"
    spark.sql(f"CREATE TABLE messages {columns} USING rmqstore OPTIONS (path '{root}')")
    try:
        with pytest.raises(Exception, match=text):
            spark.sql("SELECT * FROM messages").collect()
        with pytest.raises(Exception, match=text):
            spark.sql("INSERT INTO messages SELECT 'T', cast('x' AS binary)").collect()
    finally:
        spark.sql("DROP TABLE messages")
    spark.sql(f"CREATE TEMPORARY VIEW messages USING rmqstore OPTIONS (path '{root}')")
    assert spark.sql("SELECT * FROM messages").count() == 50
    spark.catalog.dropTempView("messages")


def test_writes_from_a_thread(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(10).selectExpr("cast(id AS string) AS body", "'T' AS topic")
    done: list[int] = []

    def work(number: int) -> None:
        register(spark)
        rows.write.format("rmqstore").mode("append").save(str(tmp_path / f"store-{number}"))
        done.append(spark.read.format("rmqstore").load(str(tmp_path / f"store-{number}")).count())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert done == [10, 10]


def test_a_verify_whose_store_went(spark: Any, root: Path) -> None:
    """The tasks of an executor without the mount: no rows would mean that all is well."""
    found = verify(spark, root, config=CONFIG)
    assert found.collect() == []
    root.rename(root.with_name("elsewhere"))
    with pytest.raises(Exception, match=rf"host {socket.gethostname()} does not see {root}"):
        found.collect()
    assert not root.exists()
