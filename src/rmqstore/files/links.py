"""Symbolic links in a store: followed everywhere, reported where broken."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rmqstore.files import paths

__all__ = ["broken_below", "broken_link", "broken_links", "files_below", "target_of"]

_NOWHERE = (errno.ENOENT, errno.ENOTDIR)


def broken_link(path: str | os.PathLike[str]) -> str | None:
    """Return the error text for a broken symbolic link on the way to ``path``, if any."""
    whole = Path(path)
    for at in (*reversed(whole.parents), whole):
        try:
            target = at.readlink()
        except OSError as error:
            if error.errno == errno.EINVAL:  # no link
                continue
            return None
        try:
            os.stat(at)  # noqa: PTH116 - with the error of a circle
        except OSError as error:
            if error.errno == errno.ELOOP:
                return f"{at} is a symbolic link to {target}, which leads in a circle"
            if error.errno in _NOWHERE:
                return f"{at} is a symbolic link to {target}, which is not there"
            return None
    return None


def broken_links(root: str, log: Iterable[Path]) -> list[str]:
    """Return an error text for each broken link of a store and its log.

    Links of queues come from the core, which lists queues.
    """
    found = [*_within(Path(root), paths.STORE_ENTRIES.__contains__)]
    found += _within(Path(root, paths.CONFIG), _is_json)
    found += _within(Path(root, paths.INDEX), _is_index)
    for directory in log:
        found += _within(directory, _is_log)
    return found


def broken_below(root: str, names: Iterable[str]) -> Iterator[str]:
    """Iterate over error texts for broken links in place of topics, queues or their files."""
    for name in names:
        path = Path(root, name)
        if path.is_dir():
            yield from _within(path, _is_log)
        else:
            yield broken_link(path) or f"{name} was a link that led nowhere"


def files_below(directory: Path) -> Iterator[Path]:
    """Iterate over the regular files below a directory, in order of their names.

    Links to files and directories count as their targets, but links to a directory above are
    left out. A missing directory, or one that vanishes, has no files.
    """
    return _files_below(directory, frozenset())


def _files_below(directory: Path, above: frozenset[tuple[int, int]]) -> Iterator[Path]:
    within = []
    try:
        status = directory.stat()
        if (here := (status.st_dev, status.st_ino)) in above:
            return
        with os.scandir(directory) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                if entry.is_dir():
                    within.append(Path(entry))
                elif entry.is_file():
                    yield Path(entry)
    except OSError:
        return
    for one in within:
        yield from _files_below(one, above | {here})


def absolute(path: str | os.PathLike[str]) -> str:
    """Return an absolute path; ``resolve()`` would follow its links."""
    return os.path.abspath(os.fsdecode(path))  # noqa: PTH100


def target_of(path: Path) -> Path:
    """Return the target of a link, else the path.

    ``FileNotFoundError`` for a broken link, also on the way to the path.
    """
    is_link = path.is_symlink()
    if not is_link and path.exists():
        return path
    broken = broken_link(absolute(path))
    if broken is not None:
        raise FileNotFoundError(errno.ENOENT, broken, os.fspath(path))
    return path.resolve() if is_link else path


def _is_json(name: str) -> bool:
    return name.removesuffix(".bak").endswith(".json")


def _is_index(name: str) -> bool:
    return paths.parse_index_file_name(name) is not None


def _is_log(name: str) -> bool:
    return paths.parse_offset_file_name(name) is not None


def _within(directory: Path, matches: Callable[[str], bool]) -> Iterator[str]:
    """Iterate over the broken links in a directory whose names match."""
    try:
        with os.scandir(directory) as entries:
            links = sorted(entry.name for entry in entries if entry.is_symlink())
    except OSError:
        return
    for name in links:
        if matches(name) and (text := broken_link(directory / name)) is not None:
            yield text
