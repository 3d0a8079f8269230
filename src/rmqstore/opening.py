"""``rmqstore.open``: arguments checked, configuration read, directory found.

Source: ``store/DefaultMessageStore.java``.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import NoneType
from typing import Literal

from rmqstore import _core
from rmqstore.base.arguments import one_of, wrong_type, wrong_value
from rmqstore.base.syncing import make_directories
from rmqstore.base.warn import log_warning
from rmqstore.config.file_sizes import (
    SIZE_FIELDS,
    inferred_bits,
    java_keys,
    sizes_left_open,
    with_found_sizes,
)
from rmqstore.config.store_config import StoreConfig
from rmqstore.directory.layout import (
    LogPathsError,
    elsewhere,
    find_log,
    log_paths,
    prepare_log,
    refuse_inside,
    refuse_shared_log,
)
from rmqstore.directory.lock_owner import KEEP_LOCK, lock_owner
from rmqstore.errors import IncompatibleStoreError, StoreLockedError, StoreNotFoundError
from rmqstore.files import paths
from rmqstore.files.links import absolute, broken_link
from rmqstore.store import MessageStore, Mode

__all__ = ["config_in_force", "open", "open_store"]


def open(
    path: str | os.PathLike[str],
    mode: Mode = "r",
    *,
    config: StoreConfig | str | os.PathLike[str] | None = None,
    on_corruption: Literal["raise", "fill"] = "raise",
    verify: Literal["tail", "full"] = "tail",
    timeout: float = 0.0,
) -> MessageStore:
    """Open a store.

    Parameters
    ----------
    path : path-like
        Its directory, with ``commitlog`` in it unless the configuration names another one.
    mode : str, optional
        ``"r"`` reads only: it takes no lock, changes nothing on disk, and works on a copy, on a
        dead disk, or beside a live owner, whose new messages it sees. ``"r+"`` reads and writes
        an existing store. ``"a"`` also creates the store if there is none. Writing modes lock,
        recover, and start the activities.
    config : StoreConfig or path of a broker.conf, optional
        Without one, file sizes are inferred from the files, else RocketMQ's defaults apply; so
        with sizes missing from a broker.conf. A log outside ``path``, in one directory or several,
        is found by ``store_path_commit_log`` and ``read_only_commit_log_store_paths``. The store
        opened is ``path``, whatever ``store_path_root_dir`` names: a log configured below that
        directory is sought at the same place below ``path``.
    on_corruption : str, optional
        ``"raise"``, or in writing modes ``"fill"``: damage below the durable end becomes one
        filler record, and its bytes are saved.
    verify : str, optional
        ``"tail"`` checks the recovery window, ``"full"`` every record and unit. With mode
        ``"r"`` nothing is refused: ``recovery.notes`` and a warning report the findings.
    timeout : float, optional
        Seconds to wait for the lock.

    Returns
    -------
    MessageStore
        Close it, best by ``with``; ``recovery`` reports what was found and repaired.

    Raises
    ------
    StoreNotFoundError
        No store; also a ``FileNotFoundError``.
    StoreLockedError
        In writing modes: open for writing elsewhere until the timeout.
    StoreCorruptError
        In writing modes: bytes contradict each other; the error has path, offset and reason.
        Nothing was cut or deleted.
    IncompatibleStoreError
        In writing modes: a file has another size than configured, is foreign, or is newer; a new
        store would be inside another one's directory. In every mode: two directories of the log
        have the same file; a DLedger store.
    OSError
        A system call fails.
    TypeError, ValueError
        An argument has a wrong type or value; the message names it and the accepted
        values. The configuration names the log of a store in another directory, or a log
        directory that holds something else of the store.

    Notes
    -----
    Source: ``store/DefaultMessageStore.java load``, ``start``.

    Examples
    --------
    >>> with rmqstore.open("data/store", "a") as store:
    ...     store.put("Topic1", b"Hello RocketMQ", tags="TagA", keys=["order-1"], queue_id=2)
    """
    root = absolute(path)
    one_of("mode", mode, ("r", "r+", "a"))
    one_of("on_corruption", on_corruption, ("raise", "fill"))
    one_of("verify", verify, ("tail", "full"))
    if mode == "r" and on_corruption == "fill":
        raise wrong_value("on_corruption", "'raise' with mode 'r'", on_corruption)
    seconds = float(timeout)
    if not 0 <= seconds <= 1e9:
        raise wrong_value("timeout", "0 to 1e9 seconds", timeout)
    if not isinstance(config, (StoreConfig, str, os.PathLike, NoneType)):
        raise wrong_type("config", "a StoreConfig or the path of a broker.conf", config)
    from_file = config is not None and not isinstance(config, StoreConfig)
    if config is not None and not isinstance(config, StoreConfig):
        config = StoreConfig.from_file(config)
    return open_store(
        root,
        mode,
        config,
        on_corruption=on_corruption,
        verify=verify,
        timeout=seconds,
        from_file=from_file,
    )


def open_store(
    root: str,
    mode: Mode,
    config: StoreConfig | None,
    *,
    on_corruption: Literal["raise", "fill"] = "raise",
    verify: Literal["tail", "full"] = "tail",
    timeout: float = 0.0,
    infer_sizes: bool = False,
    from_file: bool = False,
) -> MessageStore:
    """Open a store with the checked arguments of :func:`open`; ``root`` is absolute.

    ``infer_sizes``: infer file sizes from the files in spite of the configuration, whose other
    fields hold; sizes without configuration, or missing from a broker.conf, are always inferred.
    ``from_file``: errors name the keys of a ``broker.conf``.
    """
    _check_root(root, config)
    try:
        if mode != "r":
            refuse_shared_log(root, config)
        if mode == "a":
            refuse_inside(root)
            make_directories(root, sync_parent=not Path(root, paths.COMMIT_LOG).is_dir())
            prepare_log(root, config)
        else:
            find_log(root, config)
        return MessageStore(
            root,
            mode,
            config=config,
            on_corruption=on_corruption,
            verify=verify,
            timeout=timeout,
            infer_sizes=infer_sizes or config is None,
            places=log_paths(root, config),
        )
    except StoreLockedError as error:
        raise StoreLockedError(_with_owner(str(error), root)) from None
    except (IncompatibleStoreError, LogPathsError) as error:
        if not from_file:
            raise
        raise type(error)(java_keys(str(error))) from None


def config_in_force(root: str, config: StoreConfig | None) -> StoreConfig:
    """Return ``config`` of a store opened with ``"r"``, without a look into its log.

    ``root`` is absolute. Raises what opening does where there is no store.
    """
    _check_root(root, config)
    find_log(root, config)
    chosen = config if config is not None else StoreConfig()
    left_open = SIZE_FIELDS if config is None else sizes_left_open(chosen)
    core = _core.Core()
    core.open(
        root,
        "r",
        chosen,
        0.0,
        lambda: ({}, None),
        infer_sizes=inferred_bits(left_open),
        places=log_paths(root, config),
    )
    try:
        return with_found_sizes(chosen, core.sizes())
    finally:
        core.close()


def _check_root(root: str, config: StoreConfig | None) -> None:
    """Refuse a broken link, and log if the configuration names another store."""
    configured = elsewhere(root, config)
    if configured is not None:
        log_warning("%s is opened, not %s, which store_path_root_dir names", root, configured)
    if (link := broken_link(root)) is not None:
        raise StoreNotFoundError(f"{link}: is its disk mounted?")


def _with_owner(message: str, root: str) -> str:
    """Return the error text for a store that is open elsewhere, with its owner if known.

    An open file's lock names no process; /proc shows which one has the file open and locked.
    """
    try:
        owner = lock_owner(root)
    except OSError:
        owner = None
    if owner is not None and owner.pid == os.getpid() and "elsewhere" in message:
        message = message.rpartition("elsewhere")[0] + "for writing in this process already"
    elif owner is not None and owner.pid is not None and f"process {owner.pid}" not in message:
        message = f"{message} by {owner}"
    return f"{message}; {KEEP_LOCK}"
