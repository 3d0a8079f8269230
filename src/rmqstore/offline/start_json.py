"""JSON files that a 4.9.3 broker reads at its start, each with its ``.bak``.

Source: ``common/ConfigManager.java load``, ``loadBak``; ``broker/topic/TopicConfigManager.java``,
``broker/offset/ConsumerOffsetManager.java``,
``broker/subscription/SubscriptionGroupManager.java``,
``broker/filter/ConsumerFilterManager.java``, ``store/schedule/ScheduleMessageService.java load``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rmqstore import paths
from rmqstore.brokerfiles import fastjson
from rmqstore.offline.findings import Finding
from rmqstore.regular import not_regular, open_regular
from rmqstore.services.stored import SCHEDULE_TOPIC, SYSTEM_TOPICS

if TYPE_CHECKING:
    from rmqstore.topic import Topic

__all__ = ["json_findings"]

# In a broker's order of loading, with the broker's loss if a file is empty.
_FILES = (
    (paths.TOPICS_JSON, "topics"),
    (paths.CONSUMER_OFFSET_JSON, "offsets of the consumer groups"),
    (paths.SUBSCRIPTION_GROUP_JSON, "consumer groups"),
    (paths.CONSUMER_FILTER_JSON, "filters of consumers"),
    (paths.DELAY_OFFSET_JSON, "offsets of the delayed messages, which are delivered again"),
)
_SHOWN = 3
_NO_TOPIC_LINE = "the topic {} not exist, consumer: ..."

State = Literal["good", "nothing", "torn"]


def json_findings(root: Path, topics: Iterable[Topic]) -> Iterator[Finding]:
    """Return a broker's findings in the JSON files; ``topics``: of the store."""
    shown = list(topics)
    unknown = True
    for name, without in _FILES:
        path = root / paths.CONFIG / name
        main, reason = _state(path)
        backup, backup_reason = (
            ("good", "") if main == "good" else _state(path.with_name(name + ".bak"))
        )
        file = f"{paths.CONFIG}/{name}"
        if name == paths.TOPICS_JSON:
            unknown = main != "good" and backup != "good"
        failed = f"load {path} failed, and try to load backup file"
        if main == "good":
            continue
        if main == "nothing" and backup == "nothing":
            if name == paths.DELAY_OFFSET_JSON and _waiting(shown):
                message = "missing: a broker delivers every delayed message again"
                yield Finding("warn", "missing-file", file, None, message)
            continue
        if backup == "torn":
            message = (
                f"{reason or 'missing or empty'}, and {name}.bak: {backup_reason}: put back a copy "
                f"of either, or move both away to begin without {without}"
            )
            yield Finding("stop", "json", file, None, message, line=f"load {path} Failed")
        elif backup == "good":
            message = f"{reason or 'missing or empty'}: {name}.bak is read instead"
            line = failed if main == "torn" else f"load {path} OK"
            yield Finding("warn", "json-backup-used", file, None, message, line=line)
        else:
            message = (
                f"{reason}, and there is no {name}.bak: a broker begins without {without}; put "
                "back a copy"
            )
            yield Finding(
                "lost", "json", file, None, message, line=failed,
                by_start=name != paths.DELAY_OFFSET_JSON,
            )  # fmt: skip
    if unknown:
        yield from _unknown_topics(shown)


def _waiting(topics: Iterable[Topic]) -> bool:
    """Whether there are delayed messages, delivered or not."""
    return any(topic.name == SCHEDULE_TOPIC and any(map(len, topic.values())) for topic in topics)


def _unknown_topics(topics: Iterable[Topic]) -> Iterator[Finding]:
    """Return the finding of topics with messages that no file names."""
    counts = {
        topic.name: sum(map(len, topic.values()))
        for topic in topics
        if topic.name not in SYSTEM_TOPICS  # made at every start, or written without an entry
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


def _state(path: Path) -> tuple[State, str]:
    """Return whether a broker can read a file, and why not."""
    try:
        if (what := not_regular(path)) is not None:
            return "torn", what
        with open_regular(path) as file:
            data = file.read()
    except FileNotFoundError:
        return "nothing", ""
    except OSError as error:
        return "torn", error.strerror or str(error)
    if not data:
        return "nothing", ""
    try:
        fastjson.loads(data.decode("utf-8", "surrogateescape"))
    except fastjson.JsonError as error:
        return "torn", f"no JSON ({error})"
    return "good", ""
