"""Repair of a stopped store, so that a 4.9.3 broker starts on it and shows what is still there."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rmqstore import opening
from rmqstore.base import layout
from rmqstore.base.arguments import wrong_value
from rmqstore.config.file_sizes import sizes_left_open
from rmqstore.config.store_config import StoreConfig
from rmqstore.directory.layout import find_directory, find_log
from rmqstore.directory.lock_owner import lock_owner
from rmqstore.files import paths
from rmqstore.files.links import absolute
from rmqstore.offline.locking import locked
from rmqstore.offline.ranges import LogPlan
from rmqstore.offline.start import broker_start
from rmqstore.offline.start_files import numbers_of
from rmqstore.offline.start_json import read_json
from rmqstore.toolbox.checks.file_checks import Tree, tree_of
from rmqstore.toolbox.repairs.access import unreadable, unwritable
from rmqstore.toolbox.repairs.derived import Derived, check_derived, file_numbers, in_threads
from rmqstore.toolbox.repairs.journal import Journal, open_journal, undo_unfinished, unfinished
from rmqstore.toolbox.repairs.rebuild import (
    make_derived,
    read_config,
    seal,
    threads,
    whole_plan,
)
from rmqstore.toolbox.repairs.repair_config import (
    checkpoint_fault,
    directory_changes,
    entry_changes,
    json_changes,
    topics_change,
)
from rmqstore.toolbox.repairs.repair_headers import header_changes
from rmqstore.toolbox.repairs.repair_log import (
    LogState,
    blank_changes,
    log_changes,
    log_file_changes,
    misnamed_changes,
    single_file_change,
    unreached_changes,
    walk_file,
)
from rmqstore.toolbox.repairs.repair_lost import LostRecords
from rmqstore.toolbox.repairs.repair_places import LogPlaces, repeated_changes
from rmqstore.toolbox.repairs.repair_plan import Action, Change, nothing

__all__ = ["Action", "Repair", "repair", "undo"]

Config = StoreConfig | str | os.PathLike[str] | None

_PASSES = 8  # over the log, for damaged records
# Findings on a broker's start that nothing here mends.
_LEFT = ("config-size", "link", "newer-format", "permission")


@dataclass(frozen=True, slots=True)
class Repair:
    """Result of :func:`repair`.

    Attributes
    ----------
    actions : tuple of Action
        What is to be done, or was; ``"none"`` for what cannot be mended.
    journal : str or None
        Directory with the old bytes, for :func:`undo`; None if nothing was changed.
    undone : tuple of str
        Journals of repairs that were ended in the middle; their changes were undone first.
    """

    actions: tuple[Action, ...]
    journal: str | None = None
    undone: tuple[str, ...] = ()

    @property
    def left(self) -> int:
        """Number of actions that are not done."""
        return sum(not one.done for one in self.actions)

    @property
    def lost(self) -> int:
        """Number of messages that are lost for good, as far as queues or the log name them."""
        return sum(one.lost for one in self.actions)

    @property
    def dummies(self) -> int:
        """Number of lost messages in whose place a dummy keeps the queue offset."""
        return sum(one.dummies for one in self.actions)


def repair(path: str | os.PathLike[str], *, config: Config = None, apply: bool = False) -> Repair:
    """Repair a stopped store: log, queues, index, JSON files, checkpoint.

    Afterwards a 4.9.3 broker starts and shows every message that is whole on the disk. Nothing is
    deleted: what is replaced, cut or in the way goes into ``rmqstore-repair-TIME`` in the store.
    No service runs meanwhile: nothing is delivered, committed or removed.

    What this user may not read or write is an action ``"none"``, and then nothing is changed.

    A damaged part of the log becomes records that a broker passes over; where a queue names a
    record in it, a dummy of the same size, topic, queue and offset, so that queue offsets stay.
    Its body is zeros, its property ``RMQSTORE_LOST`` is ``true``. A record whose topic, queue id,
    queue offset or transaction flag contradicts the only queue that leads to it is mended.

    Parameters
    ----------
    path : path-like
        Directory of the store.
    config : StoreConfig or path of a broker.conf, optional
        As for :func:`rmqstore.open`. Sizes are those of the files.
    apply : bool, optional
        Make the changes; by default they are only returned, and nothing is written. Of a damaged
        log the queues and index that differ are then known only in part.

    Returns
    -------
    Repair

    Raises
    ------
    StoreLockedError
        The store is open for writing elsewhere; with ``apply``.
    StoreNotFoundError
        No store, or no file of its log.
    IncompatibleStoreError
        The log has records of RocketMQ 5; a DLedger store.
    OSError
        Reading or writing fails, also on a full disk; the store is as it was.
    ValueError
        The configuration is out of range.

    Notes
    -----
    A process that is killed leaves an unfinished journal; the next repair undoes it first.
    Source: ``store/DefaultMessageStore.java load``, ``recover``.
    """
    root = Path(absolute(path))
    find_directory(str(root))
    chosen = read_config(config)
    places = LogPlaces.of(root, chosen)
    tree = tree_of(root, places.paths)
    if closed := unreadable(root, tree):
        return Repair(tuple(one.action for one in closed))
    if not apply:
        return Repair(tuple(_planned(places, chosen, tree)))
    with ExitStack() as held:
        held.enter_context(locked(str(root), 0.0))
        if undone := undo_unfinished(root, places.paths):
            tree = tree_of(root, places.paths)
            if closed := unreadable(root, tree):
                return Repair(tuple(one.action for one in closed), None, tuple(undone))
        run = _Run(places)
        try:
            for changes in _stages(places, chosen, tree, run):
                if closed := unwritable(root, changes):
                    run.undo()
                    return Repair(tuple(one.action for one in closed), None, tuple(undone))
                run.make(changes)
            journal = run.finish()
        except BaseException:
            run.undo()
            raise
    return Repair(tuple(run.actions), journal, tuple(undone))


def undo(
    path: str | os.PathLike[str], journal: str | os.PathLike[str], *, config: Config = None
) -> Repair:
    """Undo a repair or a rebuild: every file has its old bytes again, and the journal is gone.

    Parameters
    ----------
    path : path-like
        Directory of the store.
    journal : path-like
        Directory ``rmqstore-repair-TIME``, or its name in the store.
    config : StoreConfig or path of a broker.conf, optional
        Names the directories of a log outside the store; no others are written to.

    Returns
    -------
    Repair
        An action for each change that was undone, last one first.

    Raises
    ------
    ValueError
        There is no such journal in the store, or a file was written to since.
    StoreLockedError
        The store is open for writing elsewhere.
    StoreCorruptError
        The journal names a file outside of the store and its log.
    OSError
        Reading or writing fails; may be done again.
    """
    root = Path(absolute(path))
    find_directory(str(root))
    with locked(str(root), 0.0):
        log = LogPlaces.of(root, read_config(config)).paths
        found = open_journal(root, os.fsdecode(journal), log)
        if (changed := found.changed_since()) is not None:
            raise wrong_value(
                "journal",
                f"one of files that did not change since ({changed} did)",
                found.directory.name,
            )
        actions = [
            Action("undo", one["file"], one.get("start"), 0, f"{one['op']} undone", None, True)
            for one in reversed(found.undo())
        ]
    return Repair(tuple(actions))


class _Run:
    """Changes being made; the journal begins with the first one."""

    def __init__(self, places: LogPlaces) -> None:
        self.places = places
        self.actions: list[Action] = []
        self._journal: Journal | None = None

    @property
    def journal(self) -> Journal:
        if self._journal is None:
            self._journal = Journal.create(self.places.root, self.places.paths)
        return self._journal

    @property
    def changed(self) -> bool:
        """Whether anything was changed."""
        return self._journal is not None

    def make(self, changes: Iterable[Change]) -> None:
        for change in list(changes):
            made = change.action if change.make is None else change.made(self.journal)
            self.actions.append(made)

    def finish(self) -> str | None:
        if self._journal is None:
            return None
        self._journal.finish()
        return self._journal.directory.name

    def undo(self) -> None:
        if self._journal is not None:
            self._journal.undo()


def _stages(
    places: LogPlaces, config: StoreConfig | None, tree: Tree, run: _Run
) -> Iterator[list[Change]]:
    """Yield the changes in steps, each found after the ones before are made."""
    root = places.root
    links = _links(tree)
    if not links:
        yield list(directory_changes(root))
    first = links or _size_changes(places, config)  # they disguise the files' size
    yield first
    if any(one.make is None for one in first):
        return
    names = _names(places, LostRecords(whole_plan(root, config)))
    yield names
    state = _examined(places, LostRecords(whole_plan(root, config)))
    blanks = list(places.allowed(blank_changes(state)))
    if blanks:
        yield blanks
        state = _examined(places, LostRecords(whole_plan(root, config)))
    log = list(places.allowed(log_changes(state)))
    yield log
    if not _is_left([*names, *blanks, *log]):
        plan = whole_plan(root, config)  # lengths and names are right now
        derived = check_derived(plan, threads(None))
        for _ in range(_PASSES):  # a record may be in the place of another
            headers = list(places.allowed(header_changes(plan, derived)))
            yield headers
            if not any(one.make for one in headers):
                break
            derived = check_derived(plan, threads(None))
        yield _derived_changes(root, plan, derived, ())
        yield _others(root, config, derived)
    yield list(_closing(root, config, changed=run.changed))
    yield list(_left(root, config))


def _planned(places: LogPlaces, config: StoreConfig | None, tree: Tree) -> list[Action]:
    """Return the changes that the files show, without making any."""
    root = places.root
    if begun := unfinished(root, places.paths):
        message = "a repair was ended in the middle: the rest is known once it is undone"
        return [Action("undo-unfinished", one.directory.name, None, 0, message) for one in begun]
    links = _links(tree)
    if not links and (moves := list(directory_changes(root))):  # the rest is known without them
        return [one.action for one in (*moves, *_closing(root, config, changed=True))]
    changes = links or _size_changes(places, config)
    if any(one.make is None for one in changes):
        return [one.action for one in changes]
    if not changes:  # else the rest is known without them only
        plan = whole_plan(root, config)
        lost = LostRecords(plan)  # one for both: it gives each queue offset away once
        changes += _names(places, lost)
        here = {one.action.file for one in changes}
        state = _examined(places, lost)
        found = places.allowed([*blank_changes(state), *log_changes(state)])
        # What is behind the right length is cut off, not zeroed.
        changes += [
            one for one in found if one.action.action != "zero-tail" or one.action.file not in here
        ]
        if not _is_left(changes):
            derived = check_derived(plan, threads(None))
            changes += places.allowed(header_changes(plan, derived))
            changes += _derived_changes(root, plan, derived, {one.action.file for one in changes})
            changes += _others(root, config, derived)
    changed = any(one.make for one in changes)
    if changed or not _in_use(root):  # else its owner closes it
        changes += _closing(root, config, changed=changed)
    changes += unwritable(root, changes)
    if not any(one.action.action == "move-repeated" for one in changes):  # not opened with them
        changes += _left(root, config)
    return [one.action for one in changes]


def _is_left(changes: Iterable[Change]) -> bool:
    """Whether a part of the log cannot be mended: queues are not compared with what is left."""
    return any(one.make is None and one.action.offset is not None for one in changes)


def _in_use(root: Path) -> bool:
    try:
        return lock_owner(root) is not None
    except OSError:
        return False


def _links(tree: Tree) -> list[Change]:
    """Return the links that lead nowhere: what they led to is not lost, and not made anew."""
    return [
        nothing(file, None, f"{why}: mount its disk, or remove the link")
        for file, why in tree.broken
    ]


def _size_changes(places: LogPlaces, config: StoreConfig | None) -> list[Change]:
    """Return the changes without which the log's files cannot be read, or at a wrong size."""
    find_log(str(places.root), config)  # else files of a disk that is not mounted are missing
    field = "mapped_file_size_commit_log"
    known = config is not None and field not in sizes_left_open(config)
    configured = config.mapped_file_size_commit_log if config is not None and known else None
    only = single_file_change(places, configured)
    found = [
        *unreached_changes(places),
        *repeated_changes(places),
        *misnamed_changes(places),
        *([only] if only is not None else []),
    ]
    return list(places.allowed(found))


def _names(places: LogPlaces, lost: LostRecords) -> list[Change]:
    """Return the changes of names and lengths."""
    queue_size = lost.plan.config.mapped_file_size_consume_queue
    changes = [*entry_changes(places.root, queue_size), *log_file_changes(places, lost)]
    return list(places.allowed(changes))


def _examined(places: LogPlaces, lost: LostRecords) -> LogState:
    """Walk through the log."""
    plan = lost.plan
    walks = in_threads(threads(None), partial(walk_file, plan), file_numbers(plan))
    closed = not os.path.lexists(places.root / paths.ABORT)
    return LogState(places, plan.file_size, closed, places.starts(), walks, lost)


def _derived_changes(
    root: Path, plan: LogPlan, derived: Derived, moved: Collection[str]
) -> list[Change]:
    """Return the replacement of the queue and index files that differ from the log."""
    size = plan.config.mapped_file_size_consume_queue
    no_file = not any((root / paths.CONSUME_QUEUE).glob("*/*/*"))
    unknown = f"missing, as is every queue file: made with {size:,} bytes"
    actions = []
    for key, state in sorted(derived.queues.items()):
        place = f"{paths.CONSUME_QUEUE}/{key[0]}/{key[1]}"
        for start in sorted(state.bad | state.surplus):
            file = f"{place}/{paths.offset_file_name(start)}"
            message = "it differs from the log" if start in state.bad else "the log has none of it"
            if not os.path.lexists(root / file):
                message = unknown if no_file else "missing"
            if file not in moved:
                actions.append(Action("rebuild-queue", file, start, size, message))
    if not derived.index_same:
        message = "it differs from the log" if derived.index else "missing"
        actions.append(Action("rebuild-index", paths.INDEX, None, 0, message))
    if not actions:
        return []

    saved: dict[str, str] = {}

    def make(file: str, journal: Journal) -> str | None:
        if file == actions[0].file:  # all are made at once
            saved.update(make_derived(journal, plan, derived, threads(None)))
        return saved.get(file)

    return [Change(one, partial(make, one.file)) for one in actions]


def _others(root: Path, config: Config, derived: Derived) -> list[Change]:
    """Return the changes of the JSON files."""
    queues: dict[str, list[int]] = {}
    for topic, queue_id in (key for key, state in derived.queues.items() if state.spans):
        queues.setdefault(topic, []).append(queue_id)
    named = read_json(root / paths.CONFIG / paths.TOPICS_JSON, "topicConfigTable", dict).names
    topics = {*queues, *map(str, named)}
    changes = list(json_changes(root, config, topics))
    unread = {one.action.file.removesuffix(".bak") for one in changes if one.make is None}
    if f"{paths.CONFIG}/{paths.TOPICS_JSON}" in unread:
        return changes
    entered = topics_change(root, queues)
    if entered is not None:
        changes.append(entered)
    return changes


def _closing(root: Path, config: StoreConfig | None, *, changed: bool) -> Iterator[Change]:
    """Yield the change that writes the checkpoint and marks the store as closed."""
    fault = checkpoint_fault(root)
    abort = os.path.lexists(root / paths.ABORT)
    if not fault and not abort and not changed:
        fault = _checkpoint_beyond(root, config)
    if not fault and not abort and not changed:
        return
    reasons = [fault or "", "the store was not closed" if abort else "", "the files changed"]
    message = next(one for one in reasons if one)
    action = Action("close", paths.CHECKPOINT, None, 0, message)
    yield Change(action, lambda journal: seal(journal, root, config))


def _checkpoint_beyond(root: Path, config: StoreConfig | None) -> str | None:
    """Return the fault of a checkpoint that names records after the log's last one."""
    with opening.open(root, config=config) as opened:
        end = opened.recovery.log_end
    # Compared here: opening does not, as beside a held lock the log may grow.
    magic, _, named, _, _ = numbers_of(
        root / paths.CHECKPOINT, layout.WATERMARK, layout.WATERMARK_AT
    )
    if magic == layout.WATERMARK_MAGIC and named > end:
        return f"it names the log up to {named}, and no record is behind {end}"
    found = broker_start(root, config=config).findings
    return next((one.message for one in found if one.kind == "checkpoint"), None)


def _left(root: Path, config: StoreConfig | None) -> Iterator[Change]:
    """Yield what a broker's start meets and nothing here mends."""
    for one in broker_start(root, config=config).findings:
        if one.kind in _LEFT and one.severity != "warn":
            yield nothing(one.file, one.offset, one.message)
