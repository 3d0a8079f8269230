"""One HTML file on a store, for a ticket: verdict, sizes, times, lag, retention, configuration."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from warnings import catch_warnings, simplefilter

from rmqstore import opening
from rmqstore.base.times import format_millis
from rmqstore.config.store_config import StoreConfig
from rmqstore.directory.layout import log_directories
from rmqstore.errors import StoreError
from rmqstore.files.paths import dead_letter_topic
from rmqstore.files.regular import require_parent
from rmqstore.offline.start_losses import log_of
from rmqstore.toolbox import report_html as page
from rmqstore.toolbox.checks.verify import Report, verify
from rmqstore.toolbox.forecast import broker_config, plan_of
from rmqstore.toolbox.settings import ConfigEntry, config_lint, config_show
from rmqstore.toolbox.sizes import disk_use_of

if TYPE_CHECKING:
    from rmqstore.store import MessageStore

__all__ = ["report"]

_PROBLEMS = 200
_TOP = 20
_COLUMNS = 96  # of a plot
_HOURS_KEPT = 50_000  # different ones that are counted: times of a damaged log may be any
_SCANNED = 1 << 30  # bytes of a log that is read for the times of its messages
_HOUR = 3_600_000
_HIDDEN = "(hidden)"
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\.\d)(?::\d+)?", re.ASCII)
_IPV6 = re.compile(r"\[?(?:[0-9a-fA-F]{0,4}:){3,7}[0-9a-fA-F]{0,4}\]?(?::\d+)?", re.ASCII)
_PATH = re.compile(r"(?<![\w./*])/(?:[^\s/'\",;:()]+/)*([^\s/'\",;:()]+)")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_PLAIN = re.compile(
    r"-?[0-9]+(?:[.][0-9]+)?|[0-9]{1,2}(?:;[0-9]{1,2})*|true|false"
    r"|A?SYNC_FLUSH|A?SYNC_MASTER|SLAVE|[0-9]+[smhd](?: [0-9]+[smhd])*",
    re.ASCII,
)
_SECRET = re.compile(r"(?i)secret|access|passw|token|credential|addr|host|path|dir|ip[0-9]*$")


def report(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    config: StoreConfig | str | os.PathLike[str] | None = None,
    redact: bool = True,
) -> Path:
    """Write a report on a store: one HTML file without scripts, links or other files.

    It has no bodies, keys or hosts of messages. A store that is damaged, or does not open, is
    reported as far as it can be read. Nothing is written in the store.

    Parameters
    ----------
    path : path-like
        Directory of the store; it may be in use.
    out : path-like
        The file, which is made, outside the store.
    config : StoreConfig or path of a broker.conf, optional
        The broker's.
    redact : bool, optional
        Leave out directories, quoted texts, and values of the configuration that may be an address
        or a secret.

    Returns
    -------
    Path
        ``out``.

    Raises
    ------
    FileExistsError
        ``out`` exists; nothing was read.
    ValueError
        ``out`` is inside the store, or the configuration is out of range.
    StoreNotFoundError, IncompatibleStoreError
        As for :func:`verify`.
    OSError
        ``out`` cannot be written.
    """
    target = Path(os.fsdecode(out))
    _refuse_existing(target)
    require_parent(target)
    root = Path(os.fsdecode(path))
    _refuse_inside(target, root)
    with catch_warnings():
        simplefilter("ignore")  # the page has them
        chosen = config if isinstance(config, StoreConfig) else broker_config(config)
        text = _Page(root, chosen, config, redact).text(verify(root, config=config), target)
    _write(text, target)
    return target


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "exists: name a new file", str(target))


def _refuse_inside(target: Path, directory: Path) -> None:
    if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(directory)):
        raise ValueError(f"{target} is inside the store: name a file outside of it")


def _write(text: str, target: Path) -> None:
    made = target.with_name(f".{target.name}.{os.getpid()}")
    with made.open("xb") as stream:
        try:
            stream.write(text.encode("utf-8", "backslashreplace"))
            stream.flush()
            _refuse_existing(target)
            made.rename(target)
        except BaseException:
            with contextlib.suppress(OSError):
                made.unlink()
            raise


class _Page:
    """Contents of a report."""

    def __init__(
        self,
        root: Path,
        settings: StoreConfig,
        given: StoreConfig | str | os.PathLike[str] | None,
        redact: bool,
    ) -> None:
        self._root = root
        self._settings = settings
        self._file = None if isinstance(given, StoreConfig) else given
        self._redact = redact
        self._now = time.time_ns() // 1_000_000

    def text(self, checked: Report, target: Path) -> str:
        """Return the page."""
        name = self._root.resolve().name if self._redact else str(self._root.resolve())
        parts = [
            page.paragraph(f"Made {format_millis(self._now)[:19]}Z from {name}", "note"),
            self._verdict(checked),
        ]
        try:
            opened = opening.open(self._root, config=self._settings)
        except (StoreError, OSError) as error:
            bad = page.paragraph(self._clean(str(error)), "bad")
            parts += [page.section("The store does not open", bad), self._configuration(None)]
        else:
            with opened:
                for one in log_directories(opened.path, opened.config):
                    _refuse_inside(target, Path(one))
                parts += self._sections(opened)
        return page.page("Report on a message store", parts)

    def _clean(self, text: str) -> str:
        """Return a text without hosts, and if redacted without directories and quoted texts."""
        if self._redact:
            for one in {os.fspath(self._root.resolve()), os.fspath(self._root.absolute())}:
                text = text.replace(one + "/", "").replace(one, "STORE")
            if "/" in (given := os.fspath(self._root)):
                text = text.replace(given.rstrip("/") + "/", "").replace(given, "STORE")
            text = _PATH.sub(r".../\1", _QUOTED.sub("'...'", text))
        return _no_hosts(text)

    def _verdict(self, checked: Report) -> str:
        parts = [
            page.paragraph(
                self._clean(checked.start.text), "" if checked.broker == "starts" else "bad"
            )
        ]
        if checked.line:
            parts.append(page.paragraph(f"Its log: {self._clean(checked.line)}"))
        if checked.problems:
            rows = [
                (one.severity, one.kind, self._clean(one.file), self._clean(one.message))
                for one in checked.problems[:_PROBLEMS]
            ]
            parts.append(page.table(("severity", "kind", "file", "problem"), rows))
        else:
            parts.append(page.paragraph("No problems found at both ends of the files."))
        if (more := len(checked.problems) - _PROBLEMS) > 0:
            parts.append(page.paragraph(f"and {more:,} more", "note"))
        if checked.fix is not None:
            parts.append(page.paragraph(f"Next: {self._clean(checked.fix)}"))
        return page.section("Would a 4.9.3 broker start", *parts)

    def _sections(self, opened: MessageStore) -> Iterator[str]:
        made: tuple[tuple[str, Callable[[MessageStore], list[str]]], ...] = (
            ("Topics by bytes", self._topics),
            ("Messages by time", self._times),
            ("Lag by group", self._lag),
            ("Waiting and dead", self._waiting),
            ("Retention", self._retention),
        )
        for title, make in made:
            try:
                parts = make(opened)
            except (StoreError, OSError, ValueError) as error:
                parts = [page.paragraph(f"cannot be read: {self._clean(str(error))}", "bad")]
            yield page.section(title, *parts)
        yield self._configuration(opened)
        yield page.section("Recovery", *self._recovery(opened))

    def _topics(self, opened: MessageStore) -> list[str]:
        rows = disk_use_of(opened, ("topic",))
        if not rows:
            return [page.paragraph("No messages.")]
        shown = [(_no_hosts(one.keys["topic"]), one.messages, one.bytes) for one in rows[:_TOP]]
        parts = [page.bars(("topic", "messages", "bytes"), shown)]
        if len(rows) > _TOP:
            rest = page.human_bytes(sum(one.bytes for one in rows[_TOP:]))
            parts.append(page.paragraph(f"and {len(rows) - _TOP:,} more, {rest}", "note"))
        return parts

    def _times(self, opened: MessageStore) -> list[str]:
        if opened.recovery.log_end - opened.recovery.log_start > _SCANNED:
            note = "The log is larger than 1 GiB and was not read: bytes by its files' times."
            return [page.paragraph(note, "note"), self._files_plot(opened, None)]
        hours: Counter[int] = Counter()
        for one in opened.scan(on_corruption="skip", on_removed="skip"):
            hour = one.store_timestamp // _HOUR
            if hour in hours or len(hours) < _HOURS_KEPT:
                hours[hour] += 1
        # Times of damaged records may be any; 1 << 47 is later than any date.
        known = {hour: count for hour, count in hours.items() if 0 <= hour < (1 << 47) // _HOUR}
        if not known:
            return [page.paragraph("No messages.")]
        first, last = min(known), max(known)
        step = 1
        while (last - first) // step >= _COLUMNS:
            step = 24 if step == 1 else step * 2
        first -= first % step
        values = [0] * ((last - first) // step + 1)
        for hour, count in known.items():
            values[(hour - first) // step] += count
        name = {1: "an hour", 24: "a day"}.get(step, f"{step // 24:,} days")
        return [
            page.columns(
                values,
                _minute(first * _HOUR),
                _minute((first + len(values) * step) * _HOUR),
                f"at most {max(values):,} messages in {name}; store time, UTC",
            )
        ]

    def _files_plot(self, opened: MessageStore, limit: int | None) -> str:
        """Return a plot of the log's bytes by the times of its files."""
        files = []
        for _, path in log_of(log_directories(opened.path, opened.config)):
            with contextlib.suppress(OSError):  # a live owner removed it
                status = os.stat(path)  # noqa: PTH116
                files.append((status.st_mtime_ns // 1_000_000, status.st_size))
        if not files:
            return page.paragraph("No log files.")
        times = [changed for changed, _ in files] + ([] if limit is None else [limit])
        first, last = min(times), max(times)
        span = max(1, last - first)
        number = min(_COLUMNS, max(12, len(files)))
        values = [0] * number
        for changed, size in files:
            values[min(number - 1, (changed - first) * number // span)] += size
        return page.columns(
            values,
            _minute(first),
            _minute(last),
            f"at most {page.human_bytes(max(values))} in a column; times of the files, UTC",
            None if limit is None else (limit - first) / span,
        )

    def _lag(self, opened: MessageStore) -> list[str]:
        totals: dict[tuple[str, str], list[int]] = {}
        for one in opened.lag():
            row = totals.setdefault((one.group, one.topic), [0, 0, 0])
            row[0] += one.messages
            row[1] += one.bytes
            row[2] = max(row[2], int(one.behind.total_seconds()))
        if not totals:
            return [page.paragraph("No group has committed an offset.")]
        worst = sorted(totals.items(), key=lambda item: (-item[1][0], item[0]))
        rows = [
            (_no_hosts(group), _no_hosts(topic), count, page.human_bytes(size), behind)
            for (group, topic), (count, size, behind) in worst[:_TOP]
        ]
        parts = [page.table(("group", "topic", "#messages", "#bytes", "#s behind"), rows)]
        if len(worst) > _TOP:
            parts.append(page.paragraph(f"and {len(worst) - _TOP:,} more", "note"))
        return parts

    def _waiting(self, opened: MessageStore) -> list[str]:
        rows: list[tuple[str, object]] = []
        parts: list[str] = []
        for name, listed in (
            ("delayed messages", opened.delayed),
            ("transactions in doubt", opened.in_doubt),
        ):
            try:
                rows.append((name, len(listed())))
            except (StoreError, OSError) as error:
                rows.append((name, "unknown"))
                parts.append(page.paragraph(f"{name}: {self._clean(str(error))}", "bad"))
        prefix = dead_letter_topic("")
        dead = {
            name.removeprefix(prefix): sum(
                queue.max_offset - queue.min_offset for queue in topic.values()
            )
            for name, topic in opened.topics.items()
            if name.startswith(prefix)
        }
        rows.append(("dead letters", sum(dead.values())))
        most = sorted(dead.items(), key=lambda item: (-item[1], item[0]))[:_TOP]
        rows += [(f"dead letters of {_no_hosts(group)}", count) for group, count in most]
        return [page.table(("kind", "#number"), rows), *parts]

    def _retention(self, opened: MessageStore) -> list[str]:
        hours = self._settings.file_reserved_time
        hours = 72 if hours is None else hours
        limit = self._now - hours * _HOUR
        found = plan_of(opened, self._settings, self._now)
        full = "not in sight" if found.full_at is None else _minute(found.full_at)
        rows = []
        for one in found.events:
            gone = f"{page.human_bytes(one.bytes)}, {one.messages:,} messages" if one.files else "-"
            at = "not in sight" if one.at is None else _minute(one.at)
            unread = sum(each.unconsumed for each in one.groups)
            rows.append((one.event, at, self._clean(one.why), gone, unread))
        return [
            self._files_plot(opened, limit),
            page.paragraph(
                f"The line is {hours} hours ago: files left of it may be deleted, but the last.",
                "note",
            ),
            page.paragraph(f"The disk is {found.used:.0%} full; full: {full}."),
            page.table(("event", "=at", "why", "=goes", "#unconsumed"), rows),
        ]

    def _configuration(self, opened: MessageStore | None) -> str:
        rows: list[tuple[str, str, str]] = []
        for one in self._entries():
            hidden = self._redact and not _shown(one)
            problem = one.problem or ""
            if problem and hidden:
                problem = "a problem: config lint has it"
            rows.append((one.key, _HIDDEN if hidden else one.value, self._clean(problem)))
        if opened is not None:
            sizes = {
                "mappedFileSizeCommitLog": opened.config.mapped_file_size_commit_log,
                "mappedFileSizeConsumeQueue": opened.config.mapped_file_size_consume_queue,
                "maxHashSlotNum": opened.config.max_hash_slot_num,
                "maxIndexNum": opened.config.max_index_num,
            }
            rows += [(key, str(size), "in force") for key, size in sizes.items()]
        if not rows:
            return page.section("Configuration", page.paragraph("None was given."))
        return page.section("Configuration", page.table(("key", "value", ""), rows))

    def _entries(self) -> list[ConfigEntry]:
        if self._file is None:
            return []
        try:
            found = config_lint(self._file, self._root)
        except (StoreError, OSError):  # of the store
            found = config_show(self._file)
        return [one for one in found if one.line is not None]

    def _recovery(self, opened: MessageStore) -> list[str]:
        made = opened.recovery
        state = "closed cleanly" if made.clean else "not closed cleanly, or in use"
        parts = [
            page.paragraph(f"The store is {state}; its log is {made.log_start:,} to "
                           f"{made.log_end:,}.")
        ]  # fmt: skip
        notes = [*made.damaged_files, *made.notes]
        parts += [page.paragraph(self._clean(one)) for one in notes[:_PROBLEMS]]
        rows = [(one.kind, one.start, one.stop) for one in made.ranges[:_PROBLEMS]]
        if rows:
            parts.append(page.table(("range", "#from", "#to"), rows))
        more = max(0, len(notes) - _PROBLEMS) + max(0, len(made.ranges) - _PROBLEMS)
        return [*parts, page.paragraph(f"and {more:,} more", "note")] if more else parts


def _shown(one: ConfigEntry) -> bool:
    """Whether a value is neither an address nor a secret."""
    return _SECRET.search(one.key) is None and _PLAIN.fullmatch(one.value.strip()) is not None


def _no_hosts(text: str) -> str:
    return _IPV6.sub("(host)", _IPV4.sub("(host)", text))


def _minute(millis: int) -> str:
    return format_millis(millis)[:16].replace("T", " ") + "Z"
