"""Directories of a store's log: its own, or the configuration's.

Source: ``store/MultiPathMappedFileQueue.java``, ``store/CommitLog.java``,
``store/config/MessageStoreConfig.java``, ``store/dledger/DLedgerCommitLog.java``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rmqstore.base.syncing import make_directories
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import IncompatibleStoreError, StoreNotFoundError
from rmqstore.files import paths
from rmqstore.files.links import absolute, broken_link

__all__ = [
    "LogPath",
    "LogPathsError",
    "config_of_copy",
    "elsewhere",
    "find_directory",
    "find_log",
    "log_directories",
    "log_file",
    "log_paths",
    "prepare_log",
    "refuse_inside",
    "refuse_shared_log",
    "store_around",
    "stores_near",
    "surroundings",
    "without_paths",
]

_SPLITTER = ","
_OTHER_SPLITTERS = (":", ";")  # of other programs
_MOST_PATHS = 64
# Subdirectories searched for the store that may be meant.
_LEVELS = 3
_DIRECTORIES_LOOKED_AT = 256
_STORES_SHOWN = 3
_ROOT, _LOG, _READ_ONLY = (
    "store_path_root_dir",
    "store_path_commit_log",
    "read_only_commit_log_store_paths",
)


class LogPathsError(ValueError):
    """Configured paths that contradict each other, or the store's directory."""


class LogPath(NamedTuple):
    """Directory with files of the log."""

    path: str  # absolute
    read_only: bool  # takes no new files


def log_paths(root: str, config: StoreConfig | None) -> list[LogPath] | None:
    """Return the directories of a store's log, in the order in which they take new files.

    ``None``: only ``commitlog`` in the store's directory. Raises ``LogPathsError`` if the
    configuration contradicts itself, or is for a store in another directory.
    """
    if config is None or (
        config.store_path_commit_log is None and config.read_only_commit_log_store_paths is None
    ):
        return None
    own = os.path.join(root, paths.COMMIT_LOG)  # noqa: PTH118 - Path drops what the user wrote
    named = _split(_LOG, config.store_path_commit_log, own)
    read_only = _split(_READ_ONLY, config.read_only_commit_log_store_paths, "")
    found: dict[str, LogPath] = {}
    # 4.9.3 sorts the names as written, and Java compares UTF-16 units.
    for name in sorted({*named, *read_only}, key=lambda one: one.encode("utf-16-be", "replace")):
        path = _moved(root, config, absolute(name))
        key = os.path.realpath(path)
        if key in found:
            raise LogPathsError(f"{_LOG}: {name} and {found[key].path} are the same directory")
        found[key] = LogPath(path, name in read_only)
    if not any(not one.read_only for one in found.values()):
        raise LogPathsError(
            f"{_LOG} is {config.store_path_commit_log!r}, and {_READ_ONLY} has all of it: new "
            "files of the log have no place"
        )
    if len(found) > _MOST_PATHS:
        raise LogPathsError(f"{_LOG} has {len(found)} directories, must be at most {_MOST_PATHS}")
    if [*found] == [os.path.realpath(own)]:
        return None
    return list(found.values())


def _split(name: str, value: str | None, default: str) -> list[str]:
    """Return the paths in a field, without repetitions."""
    parts = (default if value is None else value).strip().rstrip(_SPLITTER).split(_SPLITTER)
    for part in parts if value is not None else ():
        # As in $PATH: 4.9.3 would create such a directory.
        mark = next((one for one in _OTHER_SPLITTERS if one in part), None)
        joined = mark is not None and not Path(part).is_dir()
        if not part or part != part.strip() or joined:
            raise LogPathsError(
                f"{name} is {value!r}, must be paths with a ',' and no space between two"
                + (
                    f", not {mark!r}; a directory named {part!r} has to be made by hand"
                    if joined
                    else ""
                )
            )
    return [part for part in dict.fromkeys(parts) if part]


def _moved(root: str, config: StoreConfig, path: str) -> str:
    """Return a path of the configuration, moved to this store.

    Paths below the configured root move with the store, so that a copy opens with the configuration
    it was written with.
    """
    if config.store_path_root_dir is None:
        return path
    configured = absolute(config.store_path_root_dir)
    if os.path.realpath(configured) == os.path.realpath(root):
        return path
    if Path(path).is_relative_to(configured):
        return str(Path(root, Path(path).relative_to(configured)))
    raise LogPathsError(
        f"{_LOG} names {path}, the log of the store in {configured}, which {_ROOT} names: {root} "
        "is another store"
    )


def without_paths(config: StoreConfig) -> StoreConfig:
    """Return the configuration for a store elsewhere, with the log in its own directory."""
    return config.replace(**{_ROOT: None, _LOG: None, _READ_ONLY: None})


def config_of_copy(root: str, config: StoreConfig | None) -> StoreConfig | None:
    """Return the configuration for a store that may be a copy, with the log in its own directory.

    The configured log is that of the original.
    """
    own = Path(root, paths.COMMIT_LOG)
    if config is None or not _has_begun([own]):
        return config
    try:
        named = log_directories(root, config)
    except LogPathsError:  # another store's
        named = []
    return config if own in named else without_paths(config)


def elsewhere(root: str, config: StoreConfig | None) -> str | None:
    """Return the root in a configuration if it differs from this one, else ``None``."""
    if config is None or config.store_path_root_dir is None:
        return None
    configured = absolute(config.store_path_root_dir)
    return None if os.path.realpath(configured) == os.path.realpath(root) else configured


def log_directories(root: str, config: StoreConfig | None) -> list[Path]:
    """Return the directories of a store's log."""
    found = log_paths(root, config)
    return [Path(root, paths.COMMIT_LOG)] if found is None else [Path(one.path) for one in found]


def log_file(root: str, config: StoreConfig | None, start: int) -> Path:
    """Return the path of the log file beginning at ``start``, by default in the first directory."""
    every = [one / paths.offset_file_name(start) for one in log_directories(root, config)]
    return next((one for one in every if one.exists()), every[0])


def find_directory(root: str) -> None:
    """Raise ``StoreNotFoundError`` unless there is a directory at the path."""
    if Path(root).is_dir():
        return
    if (link := broken_link(root)) is not None:
        raise StoreNotFoundError(f"{link}: is its disk mounted?")
    raise StoreNotFoundError(f"{root}: no store: {_why_none(root)}")


def find_log(root: str, config: StoreConfig | None) -> None:
    """Raise ``StoreNotFoundError`` if there is no log to open; refuse a DLedger store.

    Queues without a log are left to the core, which refuses to write to them.
    """
    _refuse_dledger(root)
    directories = log_directories(root, config)
    missing = [one for one in directories if not one.is_dir()]
    if not missing:
        queue_files = Path(root, paths.CONSUME_QUEUE).glob("*/*/*")
        if not _has_begun(directories) and not any(queue_files):
            raise StoreNotFoundError(
                f"{directories[0]}: there is no log file: no message was put yet, or its disk is "
                "not mounted"
            )
        return
    if (link := broken_link(missing[0])) is not None:
        raise StoreNotFoundError(f"{link}: is its disk mounted?")
    if log_paths(root, config) is not None:
        where = "is its disk mounted?"
        raise StoreNotFoundError(f"{root}: the log's directory {missing[0]} is missing: {where}")
    raise StoreNotFoundError(f"{root}: no store: {_why_none(root)}")


def _why_none(root: str) -> str:
    """Return why there is no store at a path, and which stores may be meant."""
    try:
        is_directory = stat.S_ISDIR(os.stat(root).st_mode)  # noqa: PTH116 - not False on any error
    except (FileNotFoundError, NotADirectoryError):
        return "there is no such directory"
    if any(Path(root, name).exists() for name in (paths.CONSUME_QUEUE, paths.CHECKPOINT)):
        return (
            f"there is no {paths.COMMIT_LOG}/ in it; a log that lies elsewhere needs config=, with "
            "store_path_commit_log (storePathCommitLog: without it a broker of 4.9.3 has its log "
            "in $HOME/store/commitlog)"
        )
    why = f"there is no {paths.COMMIT_LOG}/ in it" if is_directory else "it is a file"
    near = stores_near(root)
    return f"{why}; did you mean {' or '.join(near)}?" if near else why


def stores_near(path: str) -> list[str]:
    """Return the absolute path of the store around a path, else of the first few below it."""
    path = absolute(path)
    for parent in list(Path(path).parents)[:_LEVELS]:
        if _is_store(parent):
            return [str(parent)]
    level = [Path(path)]
    left = _DIRECTORIES_LOOKED_AT
    for _ in range(_LEVELS):
        level = sorted(inner for one in level for inner in _directories(one))[:left]
        found = [str(one) for one in level if _is_store(one)]
        if found:
            return found[:_STORES_SHOWN]
        left -= len(level)
    return []


def store_around(path: str | os.PathLike[str]) -> str | None:
    """Return the store that has a path inside one of its own directories, if any.

    The path need not exist. ``None`` for other directories, even next to a store's own.
    """
    for inner in _ways_up(path):
        if inner.name in paths.STORE_ENTRIES and _belongs(inner):
            return str(inner.parent)
    return None


def _belongs(entry: Path) -> bool:
    """Whether a path named like a part of a store has other parts next to it."""
    parts = {paths.COMMIT_LOG, paths.CONSUME_QUEUE}
    if entry.name in parts:
        files = {paths.CHECKPOINT, paths.ABORT, paths.LOCK}
        beside = [*(parts - {entry.name}), *files]
        return any(entry.with_name(name).exists() for name in beside) or _is_store(entry.parent)
    return any(entry.with_name(name).is_dir() for name in parts)


def surroundings(path: str | os.PathLike[str]) -> str | None:
    """Return the store or log directory that a new store would be inside, as an error text.

    The store of :func:`store_around`, else the directory of a log or a queue, whose store may be
    anywhere: a log configured by ``store_path_commit_log``, or the target of a link.
    """
    if (around := store_around(path)) is not None:
        return f"the store {around}"
    for one in _spellings(path):  # the directory where it, or its first missing parent, is made
        above = next((up for up in one.parents if up.is_dir()), one)
        if (file := _offset_file(above)) is not None:
            return f"{above}, which holds files of a log or a queue, as {file}"
    return None


def _spellings(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Return a path as written, and with links resolved."""
    return Path(absolute(path)), Path(os.path.realpath(path))


def _ways_up(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Go from a path to the root, in both spellings."""
    for one in _spellings(path):
        yield from (one, *one.parents)


def _offset_file(directory: Path) -> str | None:
    """Return the name of a file named like a log's or a queue's, if there is one."""
    try:
        with os.scandir(directory) as entries:
            return next(
                (
                    one.name
                    for one in entries
                    if paths.parse_offset_file_name(one.name) is not None and one.is_file()
                ),
                None,
            )
    except OSError:
        return None


def refuse_inside(path: str) -> None:
    """Raise if a new store, or log, would be inside a store, or among files of a log.

    Neither its owner nor a broker would open the outer one any more.
    """
    if not _is_store(Path(path)) and (around := surroundings(path)) is not None:
        way = "open that one, or name" if around.startswith("the store ") else "name"
        raise IncompatibleStoreError(f"{path}: lies in {around}: {way} a directory outside of it")
    try:
        if _has_begun([Path(path)]):
            raise IncompatibleStoreError(
                f"{path}: holds files of a log or a queue itself: give the directory of its store, "
                "or one that is empty or not there yet"
            )
    except PermissionError:
        pass  # reported by opening


def _is_store(path: Path) -> bool:
    """Whether a directory has a readable log."""
    try:
        return _has_begun([path / paths.COMMIT_LOG])
    except OSError:
        return False


def _directories(path: Path) -> list[Path]:
    """Return the subdirectories, without links; none if unreadable."""
    try:
        with os.scandir(path) as entries:
            return [Path(one) for one in entries if one.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def refuse_shared_log(root: str, config: StoreConfig | None) -> None:
    """Raise ``LogPathsError`` if a log directory has, or will have, something else in it.

    Neither an owner nor a broker would open such a store again. If a log has already begun in a
    directory of the store, it may open nevertheless: the core decides.
    """
    found = [Path(one.path) for one in log_paths(root, config) or ()]
    real = {one: Path(os.path.realpath(one)) for one in found}
    own = Path(os.path.realpath(root))
    parts = [] if _has_begun(found) else sorted(paths.STORE_ENTRIES - {paths.COMMIT_LOG})
    for one, path in real.items():
        why = None
        if own.is_relative_to(path):
            why = "is the store's own directory" if own == path else "has the store in it"
        elif other := next((two for two in found if path in real[two].parents), None):
            why = f"has {other} in it, another directory of the log"
        elif name := next((n for n in parts if path.is_relative_to(_real(root, n))), None):
            why = f"is the store's own {name}, or lies in it"
        if why is not None:
            raise LogPathsError(f"{_LOG}: {one} {why}: name a directory with nothing else in it")


def _real(root: str, name: str) -> str:
    return os.path.realpath(os.path.join(root, name))  # noqa: PTH118


def prepare_log(root: str, config: StoreConfig | None) -> None:
    """Make the directories of a new store's log, and their names durable.

    A directory missing while another one has log files is not made, and raises
    ``StoreNotFoundError``: its disk may not be mounted, and the log would lack its files.
    """
    _refuse_dledger(root)
    found = log_paths(root, config)
    if found is None:
        return
    directories = [Path(one.path) for one in found]
    missing = [one for one in directories if not one.is_dir()]
    for one in missing:
        if (link := broken_link(one)) is not None:
            raise StoreNotFoundError(f"{link}: is its disk mounted?")
    if missing and _has_begun(directories):
        raise StoreNotFoundError(
            f"{root}: the log's directory {missing[0]} is missing: is its disk mounted? "
            "A new one has to be made by hand"
        )
    for one in missing:
        if not one.is_relative_to(root):
            refuse_inside(str(one))
        make_directories(one, sync_parent=False)


def _has_begun(directories: Iterable[Path]) -> bool:
    """Whether one of the directories has a file of the log."""
    return any(
        paths.parse_offset_file_name(name) is not None
        for one in directories
        if one.is_dir()
        for name in os.listdir(one)  # noqa: PTH208
    )


def _refuse_dledger(root: str) -> None:
    """Raise if the directory is a DLedger store: ``dledger-<id>/data`` holds its log."""
    try:
        names = sorted(os.listdir(root))  # noqa: PTH208
    except OSError:
        return
    for name in names:
        if name.startswith("dledger-") and Path(root, name, "data").is_dir():
            raise IncompatibleStoreError(
                f"{Path(root, name)}: the log of a DLedger group, whose records lie in entries of "
                "DLedger's own: neither read nor written here; have its brokers run, and take the "
                "messages from them"
            )
