"""Repair of a store's other files: JSON and its ``.bak``, the lock, foreign entries.

Source: ``common/ConfigManager.java load``, ``broker/topic/TopicConfigManager.java``.
"""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from rmqstore.base import layout
from rmqstore.base.syncing import sync_file
from rmqstore.brokerfiles import fastjson
from rmqstore.brokerfiles.offsets import LIGHT_PREFIX, OffsetTable
from rmqstore.brokerfiles.topics import TopicConfig, TopicTable
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import StoreCorruptError
from rmqstore.files import paths
from rmqstore.files.regular import kind_of, open_regular
from rmqstore.offline.start_files import listed, relative
from rmqstore.offline.start_json import JSON_FILES, read_json
from rmqstore.services.stored import SYSTEM_TOPICS
from rmqstore.toolbox.checks.file_checks import known_of_checkpoint
from rmqstore.toolbox.repairs.journal import Journal
from rmqstore.toolbox.repairs.remade_json import remade_delays, remade_groups
from rmqstore.toolbox.repairs.repair_plan import Action, Change, foreign_changes, move, nothing

__all__ = [
    "checkpoint_fault",
    "directory_changes",
    "entry_changes",
    "json_changes",
    "topics_change",
]

_AHEAD_MS = 86_400_000  # as opening: later times are no times
_DEFAULT_QUEUES = 4
_DIRECTORIES = (paths.CONSUME_QUEUE, paths.CONSUME_QUEUE_EXT, paths.INDEX, paths.CONFIG)
# For files that are moved away.
_REMEDIES = {
    paths.CONSUMER_OFFSET_JSON: "nothing else has them: put back a copy of either, or set those of "
    "each group by 'rmqstore offsets STORE by-time -g GROUP --to TIME --apply' before the start",
    paths.CONSUMER_FILTER_JSON: "consumers register them again when they connect",
    paths.DELAY_OFFSET_JSON: "the log has no delayed message",
    paths.SUBSCRIPTION_GROUP_JSON: "the log has no group: a broker makes them as they connect, "
    "unless autoCreateSubscriptionGroup is false",
}

Config = StoreConfig | str | os.PathLike[str] | None


def directory_changes(root: Path) -> Iterator[Change]:
    """Yield the moves of what is in the place of a directory: nothing behind it can be read."""
    for one in listed(root) or []:
        if one.name in _DIRECTORIES and one.size >= 0 and not Path(one.path).is_dir():
            yield move("move-foreign", one.name, one.size, f"{kind_of(one.mode)}, not a directory")


def entry_changes(root: Path, queue_size: int) -> Iterator[Change]:
    """Yield the moves of what is in the way in a store's directory, its queues and its index.

    ``queue_size`` is the length of a queue file.
    """
    for one in listed(root) or []:
        if one.name in (paths.LOCK, paths.CHECKPOINT) and not stat.S_ISREG(one.mode):
            yield move("move-foreign", one.name, 0, f"{kind_of(one.mode)}, not a regular file")
    ext_size = _ext_size(root)
    for topic in listed(root / paths.CONSUME_QUEUE) or []:
        yield from _topic_changes(root, topic.path, topic.name, queue_size, ext_size)
    for topic in listed(root / paths.CONSUME_QUEUE_EXT) or []:
        yield from _ext_entries(root, topic.path)
    parse = paths.parse_index_file_name
    yield from foreign_changes(root, root / paths.INDEX, 1, name=parse)


def _topic_changes(
    root: Path, path: str, name: str, queue_size: int, ext_size: int
) -> Iterator[Change]:
    file = relative(root, path)
    if not os.path.isdir(path):  # noqa: PTH112 - a text
        yield move("move-foreign", file, Path(path).stat().st_size, "no directory of a topic")
        return
    for queue in listed(path) or []:
        place = relative(root, queue.path)
        if paths.parse_queue_id(queue.name) is None or not stat.S_ISDIR(queue.mode):
            yield move("move-foreign", place, 0, "no directory of a queue")
        else:
            parse = paths.parse_offset_file_name
            yield from foreign_changes(root, queue.path, queue_size, name=parse)
            extra = root / paths.CONSUME_QUEUE_EXT / name / queue.name
            yield from foreign_changes(root, extra, 1, name=parse)
            yield from _ext_changes(root, extra, ext_size)


def _ext_entries(root: Path, path: str) -> Iterator[Change]:
    """Yield the moves of what is no directory where those of ext topics and queues are."""
    if not os.path.isdir(path):  # noqa: PTH112 - a text
        size = os.lstat(path).st_size
        yield move("move-foreign", relative(root, path), size, "no directory of a topic")
        return
    for queue in listed(path) or []:
        if paths.parse_queue_id(queue.name) is None or not stat.S_ISDIR(queue.mode):
            yield move("move-foreign", relative(root, queue.path), 0, "no directory of a queue")


def _ext_size(root: Path) -> int:
    """Return the length that most ext files have, as a broker that is configured right."""
    lengths = Counter(
        one.stat().st_size
        for one in (root / paths.CONSUME_QUEUE_EXT).glob("*/*/*")
        if one.is_file()
    )
    del lengths[0]
    return lengths.most_common(1)[0][0] if lengths else 0


def _ext_changes(root: Path, directory: Path, size: int) -> Iterator[Change]:
    """Yield the changes of an ext queue's files with a wrong length."""
    for one in listed(directory) or []:
        start = paths.parse_offset_file_name(one.name)
        if start is None or not stat.S_ISREG(one.mode) or size in (one.size, 0):
            continue
        file = relative(root, one.path)
        action = "extend-file" if one.size < size else "cut-file"
        made = Action(
            action, file, start + min(one.size, size), abs(size - one.size),
            f"{one.size:,} bytes, not {size:,}",
        )  # fmt: skip
        yield Change(made, lambda journal, file=file: journal.resize(file, size))  # type: ignore[misc]


def json_changes(root: Path, config: Config, topics: Collection[str]) -> Iterator[Change]:
    """Yield the changes of JSON files that a broker cannot read, or that are empty.

    They come from their ``.bak``, else from the log, or are moved away. ``topics`` have queues.
    """
    for name, table, kinds, without in JSON_FILES:
        path = root / paths.CONFIG / name
        main = read_json(path, table, kinds)
        if name == paths.CONSUMER_OFFSET_JSON:
            yield from _offset_changes(root, light_only=main.state != "good")
        if main.state == "good":
            continue
        backup = read_json(path.with_name(f"{name}.bak"), table, kinds)
        file = f"{paths.CONFIG}/{name}"
        reason = main.reason or "missing or empty"
        if main.unread or backup.unread:
            yield _unread(file, reason) if main.unread else _unread(f"{file}.bak", backup.reason)
        elif backup.state == "good":
            size = path.with_name(f"{name}.bak").stat().st_size
            action = Action("restore-json", file, None, size, f"{reason}: {name}.bak is whole")
            yield Change(action, _from_backup(root, file))
        elif name == paths.TOPICS_JSON:
            continue  # made from the log below
        elif main.reason or backup.reason:  # else neither was ever there
            other = f"{name}.bak: {backup.reason}" if backup.reason else f"there is no {name}.bak"
            reason = f"{reason}, and {other}"
            yield _remade(root, config, file, topics, reason) or _set_aside(
                root, file, main.state != "void" and backup.state == "torn", reason, without
            )


def _offset_changes(root: Path, *, light_only: bool) -> Iterator[Change]:
    """Yield the entry for offsets that opening refuses: which of them is meant, nothing tells."""
    for name in (paths.CONSUMER_OFFSET_JSON, paths.LMQ_CONSUMER_OFFSET_JSON)[light_only:]:
        try:
            OffsetTable.load(root, name)
        except StoreCorruptError as error:
            yield nothing(relative(root, error.path), None, error.reason)
        except OSError as error:
            yield _unread(f"{paths.CONFIG}/{name}", error.strerror or str(error))


def _remade(
    root: Path, config: Config, file: str, topics: Collection[str], reason: str
) -> Change | None:
    """Return the change that makes a JSON file from the log, if the log has what was in it."""
    found = None
    if file.endswith(paths.DELAY_OFFSET_JSON):
        found = remade_delays(root, config)
    elif file.endswith(paths.SUBSCRIPTION_GROUP_JSON):
        found = remade_groups(root, topics)
    if found is None:
        return None
    data, text = found
    action = Action("rebuild-json", file, None, len(data), f"{reason}: {text}")
    return Change(action, lambda journal: _put(journal, file, data))


def _set_aside(root: Path, file: str, refuses: bool, reason: str, without: str) -> Change:
    """Return the move of a JSON file and its ``.bak``, where nothing else has what was in it."""
    here = [one for one in (file, f"{file}.bak") if os.path.lexists(root / one)]
    size = sum(os.lstat(root / one).st_size for one in here)

    def make(journal: Journal) -> str | None:
        saved, *_ = [journal.move(one) for one in here]
        return saved

    start = "a broker does not start, and without both " if refuses else "a broker "
    remedy = _REMEDIES.get(Path(file).name, "put back a copy of either, if it is needed")
    message = f"{reason}: {start}begins without {without}: {remedy}"
    return Change(Action("set-aside-json", file, None, size, message), make)


def _unread(file: str, reason: str) -> Change:
    return nothing(file, None, f"{reason}: make it readable, or move it away")


def _from_backup(root: Path, file: str) -> Callable[[Journal], str | None]:
    def make(journal: Journal) -> str | None:
        with open_regular(root / f"{file}.bak") as backup:
            return _put(journal, file, backup.read())

    return make


def _put(journal: Journal, file: str, data: bytes) -> str | None:
    """Replace a file; return where the old one is."""
    new = journal.saved_name(file)
    with (journal.root / new).open("xb") as made:
        made.write(data)
        made.flush()
        sync_file(made.fileno(), made.name)
    saved = None
    journal.make_directory(os.path.dirname(file))  # noqa: PTH120 - relative
    if os.path.lexists(journal.root / file):
        saved = journal.move(file)
    journal.place(file, new)
    return saved


def topics_change(root: Path, queues: Mapping[str, Iterable[int]]) -> Change | None:
    """Return the change that enters topics with messages into topics.json, if any is missing.

    ``queues`` has the queue ids of each topic.
    """
    file = f"{paths.CONFIG}/{paths.TOPICS_JSON}"
    reason = ""
    try:
        known = {entry.topic_name for entry in TopicTable.load(root)}
    except StoreCorruptError as error:
        known, reason = set(), error.reason
    missing = [
        name
        for name in sorted(queues)
        if name not in known
        and name not in SYSTEM_TOPICS
        and not name.startswith(LIGHT_PREFIX)
        and paths.is_topic_name(name)
    ]
    if not missing and not reason:
        return None
    shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
    message = f"no entry of {shown}" if missing else reason

    def make(journal: Journal) -> str | None:
        table = TopicTable(root) if reason else TopicTable.load(root)
        for name in missing:
            count = max([_DEFAULT_QUEUES - 1, *queues[name]]) + 1
            table.put(TopicConfig(name, read_queue_nums=count, write_queue_nums=count))
        return _put(
            journal, file, fastjson.dumps(table.to_json()).encode("utf-8", "surrogateescape")
        )

    return Change(Action("rebuild-json", file, None, 0, message), make)


def checkpoint_fault(root: Path) -> str | None:
    """Return the fault of a checkpoint's length, times or bytes, "missing", or None."""
    try:
        with open_regular(root / paths.CHECKPOINT) as file:
            data = file.read(layout.CHECKPOINT_BYTES + 1)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return error.strerror or "unreadable"
    if len(data) != layout.CHECKPOINT_BYTES:
        return f"{len(data):,} bytes, not {layout.CHECKPOINT_BYTES:,}"
    times = layout.CHECKPOINT_TIMES.unpack_from(data)
    limit = time.time() * 1000 + _AHEAD_MS
    if any(not 0 <= one <= limit for one in times):
        return "it has impossible times"
    if data != known_of_checkpoint(data):
        return "it has bytes that nobody writes"
    return None
