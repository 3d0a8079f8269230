"""JSON files that a 4.9.3 broker reads at its start, each with its ``.bak``.

Source: ``common/ConfigManager.java load``, ``loadBak``; ``broker/topic/TopicConfigManager.java``,
``broker/offset/ConsumerOffsetManager.java``,
``broker/subscription/SubscriptionGroupManager.java``,
``broker/filter/ConsumerFilterManager.java``, ``store/schedule/ScheduleMessageService.java load``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rmqstore.base.arguments import shown
from rmqstore.brokerfiles import fastjson
from rmqstore.brokerfiles.configfile import MAX_BYTES
from rmqstore.brokerfiles.offsets import LIGHT_PREFIX
from rmqstore.files import paths
from rmqstore.files.regular import not_regular, open_regular
from rmqstore.offline.findings import Finding
from rmqstore.services.stored import SCHEDULE_TOPIC, SYSTEM_TOPICS

if TYPE_CHECKING:
    from rmqstore.topic import Topic

__all__ = ["JSON_FILES", "json_findings", "read_json"]

# In a broker's order of loading: file, table, types of its entries, loss if none is read.
JSON_FILES = (
    (paths.TOPICS_JSON, "topicConfigTable", dict, "topics"),
    (paths.CONSUMER_OFFSET_JSON, "offsetTable", dict, "offsets of the consumer groups"),
    (paths.SUBSCRIPTION_GROUP_JSON, "subscriptionGroupTable", dict, "consumer groups"),
    (paths.CONSUMER_FILTER_JSON, "filterDataByTopic", dict, "filters of consumers"),
    (
        paths.DELAY_OFFSET_JSON,
        "offsetTable",
        (int, float, str),
        "offsets of the delayed messages, which are delivered again",
    ),
)
_NULL_TABLE = (paths.CONSUMER_OFFSET_JSON, paths.CONSUMER_FILTER_JSON)  # null is no table
_SHOWN = 3
_NO_TOPIC_LINE = "the topic {} not exist, consumer: ..."

State = Literal["good", "void", "nothing", "torn"]


class _JsonFile(NamedTuple):
    """A file as a broker reads it: "void" loads without a table; "nothing" is missing or empty."""

    state: State
    reason: str = ""
    names: Collection[object] = ()  # of the table's entries
    unread: bool = False  # torn as far as known here: a broker may be able to read it


def json_findings(root: Path, topics: Iterable[Topic]) -> Iterator[Finding]:
    """Yield findings on the JSON files; ``topics`` are the store's."""
    shown = list(topics)
    known: Collection[object] = ()
    for name, table, kinds, without in JSON_FILES:
        path = root / paths.CONFIG / name
        main = backup = read_json(path, table, kinds)
        if main.state in ("nothing", "torn"):
            backup = read_json(path.with_name(name + ".bak"), table, kinds)
        if name == paths.TOPICS_JSON:
            known = backup.names
        waiting = name == paths.DELAY_OFFSET_JSON and _waiting(shown)
        yield from _file_findings(path, main, backup, without, waiting=waiting)
    yield from _unknown_topics(shown, known)


def _file_findings(
    path: Path, main: _JsonFile, backup: _JsonFile, without: str, *, waiting: bool
) -> Iterator[Finding]:
    """Yield the finding on a file; ``backup`` is ``main`` if no backup is read.

    ``waiting``: without the file, delayed messages are delivered again.
    """
    name, file = path.name, f"{paths.CONFIG}/{path.name}"
    failed = f"load {path} failed, and try to load backup file"
    if main.state == "good":
        return
    if main.state == "nothing" and backup.state == "nothing":
        if main.reason or backup.reason:  # there is one, without a byte
            message = f"{main.reason or 'missing'}, and "
            message += f"{name}.bak is empty" if backup.reason else f"there is no {name}.bak"
            yield Finding(
                "lost" if backup.reason else "warn",  # a crash in the first write leaves no .bak
                "json", file, None,
                f"{message}: a broker begins without {without}; put back a copy",
                line=f"load {path} OK",
                by_start=bool(backup.reason) and name != paths.DELAY_OFFSET_JSON,
            )  # fmt: skip
        elif waiting:
            message = "missing: a broker delivers every delayed message again; put back a copy"
            yield Finding("warn", "missing-file", file, None, message)
        return
    reason = main.reason or "missing"
    if backup.state == "torn":
        message = (
            f"{reason}, and {name}.bak: {backup.reason}: put back a copy of either, or move both "
            f"away to begin without {without}"
        )
        yield Finding("stop", "json", file, None, message, line=f"load {path} Failed")
    elif backup.state == "good":
        message = f"{reason}: {name}.bak is read instead"
        line = failed if main.state == "torn" else f"load {path} OK"
        yield Finding("warn", "json-backup-used", file, None, message, line=line)
    else:
        other = f"there is no {name}.bak"
        if backup.state == "void":
            other = f"{name}.bak is not read" if main is backup else f"{name}.bak {backup.reason}"
        message = f"{reason}, and {other}: a broker begins without {without}; put back a copy"
        line = failed if main.state == "torn" else f"load {path} OK"
        yield Finding(
            "lost", "json", file, None, message, line=line,
            by_start=name != paths.DELAY_OFFSET_JSON,
        )  # fmt: skip


def _waiting(topics: Iterable[Topic]) -> bool:
    """Whether there are delayed messages, delivered or not."""
    return any(topic.name == SCHEDULE_TOPIC and any(map(len, topic.values())) for topic in topics)


def _unknown_topics(topics: Iterable[Topic], known: Collection[object]) -> Iterator[Finding]:
    """Yield the finding on topics that have messages but no entry."""
    counts = {
        topic.name: sum(map(len, topic.values()))
        for topic in topics
        if topic.name not in known
        and topic.name not in SYSTEM_TOPICS  # made at every start, or written without an entry
        and not topic.name.startswith(LIGHT_PREFIX)  # which have no entry
    }
    names = [name for name, count in counts.items() if count]
    if names:
        more = ", ..." if len(names) > _SHOWN else ""
        yield Finding(
            "lost",
            "topic-unknown",
            f"{paths.CONFIG}/{paths.TOPICS_JSON}",
            None,
            f"no entry of {', '.join(names[:_SHOWN])}{more}: a broker knows no such topic until it "
            "is made again, and shows none of its messages; put a copy of the file back",
            line=_NO_TOPIC_LINE.format(names[0]),
            messages=sum(counts.values()),
            by_start=True,
        )


def read_json(path: Path, table: str, kinds: type | tuple[type, ...]) -> _JsonFile:
    """Read a file as a broker does; ``kinds`` are the types of its table's entries."""
    try:
        if (what := not_regular(path)) is not None:
            return _JsonFile("torn", what)
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BYTES:
                return _JsonFile("torn", f"{size:,} bytes, of at most {MAX_BYTES:,}", unread=True)
            data = file.read(size)  # not MAX_BYTES: read() allocates that much first
    except FileNotFoundError:
        return _JsonFile("nothing")
    except OSError as error:
        unread = isinstance(error, PermissionError)
        return _JsonFile("torn", error.strerror or str(error), unread=unread)
    return _parsed(path.name.removesuffix(".bak"), data, table, kinds)


def _parsed(name: str, data: bytes, table: str, kinds: type | tuple[type, ...]) -> _JsonFile:
    if not data:
        return _JsonFile("nothing", "empty")
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").strip(" \t\r\n")
    try:
        value = fastjson.loads(text) if text else ""
    except fastjson.JsonLimitError as error:
        # A root that is no object is torn for a broker as well.
        return _JsonFile("torn", f"not read ({error})", unread=text.startswith("{"))
    except fastjson.JsonError as error:
        return _JsonFile("torn", f"no JSON ({error})")
    return _decoded(name, value, text, table, kinds)


def _is_near(table: str, value: Mapping[str, Any]) -> bool:
    """Whether fastjson takes a key for the table's: it passes over case, ``_`` and ``-``."""
    return table.lower() in (key.replace("_", "").replace("-", "").lower() for key in value)


def _decoded(
    name: str, value: Any, text: str, table: str, kinds: type | tuple[type, ...]
) -> _JsonFile:
    """Classify a file by its JSON value, as fastjson builds the broker's object from it."""
    if not isinstance(value, dict):
        reason = f"holds {text[:8] or 'blanks'}, not an object"
        # fastjson accepts less for the groups' class, which has a constructor of its own.
        taken = value is None or text == "[]"
        if name != paths.SUBSCRIPTION_GROUP_JSON:
            taken = taken or value in ("", [])
        return _JsonFile("void" if taken else "torn", reason)
    entries = value.get(table, {})
    lacks = bool(value.keys() - {"dataVersion"}) and not _is_near(table, value)
    if lacks or (entries is None and name in _NULL_TABLE):
        return _JsonFile("void", f"has {'no' if lacks else 'null as'} {table}")
    if not isinstance(entries, dict):
        return _JsonFile("torn", f"{table} is no object")
    for key, entry in entries.items():
        if not isinstance(entry, kinds):
            return _JsonFile("torn", f"{table} has {type(entry).__name__} for {shown(key)}")
    if name == paths.TOPICS_JSON and value.get("dataVersion", {}) is None:
        return _JsonFile("torn", "dataVersion is null")
    return _JsonFile("good", names=entries)
