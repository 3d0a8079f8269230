"""Options common to batch and stream: stores, topics and queues, and the start.

Aliases are names of Spark's Kafka source with the same meaning.
"""

from __future__ import annotations

import difflib
import glob
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from rmqstore.base.layout import INT32_MAX
from rmqstore.columns.scan import COLUMNS
from rmqstore.errors import StoreNotFoundError, TopicNotFoundError
from rmqstore.files import paths
from rmqstore.filters import check_filter
from rmqstore.spark.common.options import OptionError, Options
from rmqstore.spark.common.schema import spark_schema
from rmqstore.spark.common.side_files import is_unfinished_store

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from rmqstore.store import MessageStore

__all__ = [
    "OnCorrupt",
    "Selection",
    "check_names",
    "default_schema",
    "parse_selection",
    "selected_queues",
    "selected_topics",
]

OnCorrupt = Literal["raise", "skip", "stop"]

_POLICIES: dict[str, OnCorrupt] = {"fail": "raise", "skip": "skip", "stop": "stop"}


@dataclass(frozen=True)
class Selection:
    """Selected stores and messages, and the way of reading them; plain data.

    At most one of ``topics``, ``topic_pattern`` and ``queues`` is set; with none, all topics.
    """

    stores: tuple[str, ...]  # absolute directories, each a store
    topics: tuple[str, ...] | None = None
    topic_pattern: str | None = None  # regular expression for the whole name
    queues: dict[str, tuple[int, ...]] | None = None
    tags: str | None = None  # expression such as ``"TagA || TagB"``
    keys: tuple[str, ...] | None = None
    on_corrupt: OnCorrupt = "raise"
    fail_on_data_loss: bool = True
    max_partition_bytes: int = 128 << 20
    max_messages_per_partition: int | None = None
    min_partitions: int | None = None
    columns: tuple[str, ...] | None = None  # from the options; None: from the schema
    sql: str | None = None  # SQL92 filter over the properties

    @property
    def on_removed(self) -> Literal["raise", "skip"]:
        """Behaviour of a scan if retention removed messages."""
        return "raise" if self.fail_on_data_loss else "skip"


def default_schema(given: Mapping[str, str]) -> StructType:
    """Return the columns read without a user's schema.

    Uses only ``columns`` and ``includeProperties``. Raises ``OptionError`` if a column is unknown
    or repeated, or the two contradict each other.
    """
    names = {"columns", "includeproperties", "includeheaders"}
    few = {name: value for name, value in given.items() if name.lower() in names}
    aliases = {"includeHeaders": "includeProperties"}
    options = Options(few, ("columns", "includeProperties"), aliases, what="a source")
    return spark_schema(_columns(options) or COLUMNS)


def parse_selection(options: Options) -> Selection:
    """Parse the common options; the stores must exist, but are not opened.

    Raises ``OptionError``, ``FilterError`` for ``tags`` or ``sql``, ``StoreNotFoundError`` if a
    path is no store.
    """
    options.together("topics", "topicPattern", "queues")
    pattern = options.text("topicPattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"option 'topicPattern' is {pattern!r}: {error}") from None
    tags, sql = options.text("tags"), options.text("sql")
    check_filter(tags=tags, sql=sql)
    policy = options.choice("onCorrupt", "fail", _POLICIES)
    return Selection(
        stores=_stores(options.paths()),
        topics=options.texts("topics"),
        topic_pattern=pattern,
        queues=_queues(options),
        tags=tags,
        sql=sql,
        keys=options.texts("keys"),
        on_corrupt=_POLICIES[policy],
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        max_partition_bytes=options.size("maxPartitionBytes", 128 << 20, low=1024),
        max_messages_per_partition=options.integer("maxMessagesPerPartition"),
        min_partitions=options.integer("minPartitions", high=1 << 20),
        columns=_columns(options),
    )


def selected_queues(store: MessageStore, selection: Selection) -> dict[str, tuple[int, ...]]:
    """Return the selected existing queues, by topic; some may be empty.

    They are in ``topics.json`` or have directories.
    """
    known = store.topics
    if selection.queues is not None:
        return {
            topic: tuple(queue_id for queue_id in queue_ids if queue_id in known[topic])
            for topic, queue_ids in selection.queues.items()
            if topic in known
        }
    return {name: tuple(known[name]) for name in selected_topics(known, selection)}


def selected_topics(known: Collection[str], selection: Selection) -> tuple[str, ...]:
    """Return the selected topics among the known ones."""
    wanted = selection.topics if selection.queues is None else tuple(selection.queues)
    if wanted is not None:
        return tuple(topic for topic in wanted if topic in known)
    if selection.topic_pattern is not None:
        matches = re.compile(selection.topic_pattern).fullmatch
        return tuple(topic for topic in known if matches(topic))
    return tuple(known)


def check_names(
    selection: Selection,
    known: Mapping[str, Collection[int]],
    *,
    positions: Mapping[str, Iterable[int]] | None = None,
) -> None:
    """Refuse topics and queues that no store has; ``known`` is for all stores together.

    Raises ``TopicNotFoundError``, and ``OptionError`` for a queue, or for one of the ``positions``
    in a topic that is not read.
    """
    where = ", ".join(selection.stores)
    wanted = selection.topics or tuple(selection.queues or ())
    for topic in wanted:
        if topic not in known:
            near = difflib.get_close_matches(topic, known, 1)
            hint = f"; nearest is {near[0]!r}" if near else ""
            raise TopicNotFoundError(f"{where}: no topic {topic!r}{hint}")
    for topic, queue_ids in (selection.queues or {}).items():
        for queue_id in queue_ids:
            if queue_id not in known[topic]:
                raise OptionError(
                    f"option 'queues' names queue {queue_id} of {topic!r}; "
                    f"it has {len(known[topic])}"
                )
    read = set(selected_topics(tuple(known), selection))
    for topic, given in (positions or {}).items():
        if topic not in read:
            near = difflib.get_close_matches(topic, read, 1)
            hint = f"; nearest is {near[0]!r}" if near else ""
            raise OptionError(f"a position is given for {topic!r}, which is not read{hint}")
        for queue_id in sorted(given):
            if queue_id not in known[topic]:
                raise OptionError(
                    f"a position is given for queue {queue_id} of {topic!r}; "
                    f"it has {len(known[topic])}"
                )


def _columns(options: Options) -> tuple[str, ...] | None:
    options.together("columns", "includeProperties")
    names = options.texts("columns")
    if names is not None:
        try:
            return tuple(spark_schema(names).names)
        except ValueError as error:
            raise OptionError(f"option 'columns': {error}") from None
    if options.flag("includeProperties", True):
        return None
    return tuple(name for name in COLUMNS if name != "properties")


def _queues(options: Options) -> dict[str, tuple[int, ...]] | None:
    found = options.json("queues")
    if found is None:
        return None
    allowed = 'JSON such as {"topic":[0,1]}'
    if not isinstance(found, dict) or not found:
        raise options.error("queues", allowed)
    for queue_ids in found.values():
        if not isinstance(queue_ids, list) or not queue_ids or not all(map(_is_queue, queue_ids)):
            raise options.error("queues", allowed)
    return {
        topic: tuple(sorted(set(cast("list[int]", queue_ids))))
        for topic, queue_ids in found.items()
    }


def _is_queue(value: Any) -> bool:
    return type(value) is int and 0 <= value <= INT32_MAX


def _stores(given: Iterable[str]) -> tuple[str, ...]:
    """Return each store once; matches of a glob sorted by name."""
    found: dict[str, None] = {}
    for path in given:
        matches = [path]
        if glob.has_magic(path) and not Path(path).exists():
            matches = sorted(match for match in glob.glob(path) if _is_whole(Path(match)))  # noqa: PTH207
            if not matches:
                raise StoreNotFoundError(f"{path}: no directory matches: give the path of a store")
        for match in matches:
            _check_store(match)
            found[match] = None
    return tuple(found)


def _is_whole(match: Path) -> bool:
    """Whether it is a directory, and not one of a write or a job next to a store."""
    return not is_unfinished_store(match) and match.is_dir()


def _check_store(path: str) -> None:
    if not Path(path).is_dir():
        raise StoreNotFoundError(
            f"{path}: no store: there is no such directory: give the path of a store, which must "
            "be there on each host"
        )
    if not Path(path, paths.COMMIT_LOG).is_dir():
        raise StoreNotFoundError(
            f"{path}: no store: there is no {paths.COMMIT_LOG}/ in it: give the directory that "
            "has it"
        )
