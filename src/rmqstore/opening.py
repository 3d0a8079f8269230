"""``rmqstore.open``: arguments checked, configuration read, directory found.

Source: ``store/DefaultMessageStore.java``.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import NoneType
from typing import Literal

from rmqstore import paths
from rmqstore.config import StoreConfig
from rmqstore.errors import StoreNotFoundError
from rmqstore.store import MessageStore, Mode
from rmqstore.syncing import make_directories

__all__ = ["open"]

_log = logging.getLogger("rmqstore")


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
        Its directory: the one that holds ``commitlog``.
    mode : str, optional
        ``"r"`` reads only: it takes no lock, changes nothing on disk, and works on a copy, on a
        dead disk, or beside a live owner, whose new messages it sees. ``"r+"`` reads and writes
        a store that is there. ``"a"`` does so too, and makes the store if there is none.
        Writing modes lock, recover, and start the activities.
    config : StoreConfig or path of a broker.conf, optional
        Without one, file sizes are told from the files, else RocketMQ's defaults hold.
    on_corruption : str, optional
        ``"raise"``, or in writing modes ``"fill"``: damage below what was durable becomes one
        filler record, and its bytes are saved.
    verify : str, optional
        ``"tail"`` checks the recovery window, ``"full"`` every record and unit. With mode
        ``"r"`` nothing is refused: ``recovery.notes`` and a warning tell what was found.
    timeout : float, optional
        Seconds to wait for the lock.

    Returns
    -------
    MessageStore
        To be closed, best by ``with``; ``recovery`` tells what opening found and did.

    Raises
    ------
    StoreNotFoundError
        There is no store; also a ``FileNotFoundError``.
    StoreLockedError
        In writing modes: it is open for writing elsewhere, and was until the timeout.
    StoreCorruptError
        In writing modes: bytes contradict each other; path, offset and reason are in it. Nothing
        was cut or deleted.
    IncompatibleStoreError
        In writing modes: a file has another size than configured, is foreign, or is newer.
    OSError
        The system refuses.
    TypeError, ValueError
        An argument is not what it may be; the message names it, its value and what it may be.

    Notes
    -----
    Source: ``store/DefaultMessageStore.java load``, ``start``.

    Examples
    --------
    >>> with rmqstore.open("data/store", "a") as store:  # doctest: +SKIP
    ...     store.put("Topic1", b"Hello RocketMQ", tags="TagA", keys=["order-1"], queue_id=2)
    """
    root = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - resolve() follows links
    _choice("mode", mode, ("r", "r+", "a"))
    _choice("on_corruption", on_corruption, ("raise", "fill"))
    _choice("verify", verify, ("tail", "full"))
    if mode == "r" and on_corruption == "fill":
        raise ValueError("argument 'on_corruption' is 'fill'; with mode 'r' it may be 'raise'")
    seconds = float(timeout)
    if not 0 <= seconds <= 1e9:
        raise ValueError(f"argument 'timeout' is {timeout!r}; it may be 0 to 1e9 seconds")
    if not isinstance(config, (StoreConfig, str, os.PathLike, NoneType)):
        raise TypeError(
            f"argument 'config' is {config!r}; it may be a StoreConfig or the path of a broker.conf"
        )
    if config is not None and not isinstance(config, StoreConfig):
        config = StoreConfig.from_file(config)
    if config is not None and config.unsupported():
        _log.warning("%s: these settings have no effect: %s", root, ", ".join(config.unsupported()))
    if mode == "a":
        make_directories(root, sync_parent=not Path(root, paths.COMMIT_LOG).is_dir())
    elif not Path(root, paths.COMMIT_LOG).is_dir():
        raise StoreNotFoundError(f"{root}: no store: there is no {paths.COMMIT_LOG}/ in it")
    return MessageStore(
        root,
        mode,
        config=config,
        on_corruption=on_corruption,
        verify=verify,
        timeout=seconds,
    )


def _choice(argument: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        names = ", ".join(repr(name) for name in allowed)
        raise ValueError(f"argument {argument!r} is {value!r}; it may be one of {names}")
