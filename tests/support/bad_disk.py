"""A file system that shows a directory read-only and answers EIO for bytes of files that are named.

It speaks FUSE's protocol itself, so it needs root and /dev/fuse and nothing to be installed.  It
is a program of its own: what the kernel waits for must not be of the process that waits.

``python -m support.bad_disk DIRECTORY TARGET BAD``: BAD is a file of lines ``PATH START STOP``;
it is read again at every read.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crash.checks import environment

PATIENCE = 30  # seconds
MNT_DETACH = 2
ROOT = 1
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 14, 15, 17, 18
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = 25, 26, 27, 28, 29, 36, 42
UNANSWERED = {FORGET, BATCH_FORGET, INTERRUPT}
DONE = {RELEASE, RELEASEDIR, FLUSH}
REQUEST = struct.Struct("<IIQQIIII")
ANSWER = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
INIT_ANSWER = struct.pack("<IIIIHHIIHH32x", 7, 31, 65536, 0, 9, 9, 4096, 1, 1, 0)


def attributes(node: int, found: os.stat_result) -> bytes:
    seconds = [int(found.st_atime), int(found.st_mtime), int(found.st_ctime)]
    owner = [found.st_mode, found.st_nlink, found.st_uid, found.st_gid]
    numbers = [node, found.st_size, found.st_blocks, *seconds, 0, 0, 0, *owner, 0, 4096, 0]
    return ATTRIBUTES.pack(*numbers)


class BadDisk:
    """Nodes are numbered as they are met, and never forgotten."""

    def __init__(self, directory: Path, bad: Path) -> None:
        self.bad = bad
        self.directory = directory
        self.paths = [Path(), Path()]  # below the directory; [0] is no node
        self.nodes = {Path(): ROOT}
        self.answers: dict[int, Callable[[int, bytes], bytes]] = {
            LOOKUP: self.look_up,
            GETATTR: lambda node, _: bytes(16) + self.attributes_of(node),
            OPEN: lambda _node, _: bytes(16),
            OPENDIR: lambda _node, _: bytes(16),
            READ: self.read,
            READDIR: self.list,
            STATFS: lambda _node, _: struct.pack("<5Q4I24x", 1, 0, 0, 1, 0, 4096, 255, 4096, 0),
            INIT: lambda _node, _: INIT_ANSWER,
        }

    def attributes_of(self, node: int) -> bytes:
        return attributes(node, (self.directory / self.paths[node]).lstat())

    def node_of(self, path: Path) -> int:
        if path not in self.nodes:
            self.nodes[path] = len(self.paths)
            self.paths.append(path)
        return self.nodes[path]

    def look_up(self, parent: int, body: bytes) -> bytes:
        path = self.paths[parent] / os.fsdecode(body.rstrip(b"\0"))
        (self.directory / path).lstat()
        node = self.node_of(path)
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + self.attributes_of(node)

    def read(self, node: int, body: bytes) -> bytes:
        _, start, size = struct.unpack_from("<QQI", body)
        path = self.paths[node]
        for line in self.bad.read_text().splitlines():
            name, low, high = line.split()
            if name == str(path) and start < int(high) and int(low) < start + size:
                raise OSError(errno.EIO, "this is the part that is bad")
        with (self.directory / path).open("rb") as file:
            return os.pread(file.fileno(), size, start)

    def list(self, node: int, body: bytes) -> bytes:
        _, start, size = struct.unpack_from("<QQI", body)
        entries = b""
        path = self.directory / self.paths[node]
        for number, name in enumerate(sorted(os.listdir(path)), 1):  # noqa: PTH208
            kind = stat.S_IFMT((path / name).lstat().st_mode) >> 12
            raw = os.fsencode(name)
            entry = struct.pack("<QQII", 1, number, len(raw), kind) + raw
            entry += bytes(-len(entry) % 8)
            if number > start and len(entries) + len(entry) <= size:
                entries += entry
        return entries

    def answer(self, request: bytes) -> bytes | None:
        _, kind, unique, node, *_ = REQUEST.unpack_from(request)
        if kind in UNANSWERED:
            return None
        error, data = 0, b""
        if kind not in DONE:
            try:
                data = self.answers[kind](node, request[REQUEST.size :])
            except KeyError:
                error = errno.ENOSYS
            except OSError as failure:
                error = failure.errno or errno.EIO
        return ANSWER.pack(ANSWER.size + len(data), -error, unique) + data

    def serve(self, device: int) -> None:
        """Until it is unmounted."""
        while True:
            try:
                request = os.read(device, 1 << 20)
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno == errno.ENOENT:  # it was taken back
                    continue
                return
            answer = self.answer(request)
            if answer is not None:
                with contextlib.suppress(FileNotFoundError):  # interrupted
                    os.write(device, answer)


def mount(target: Path) -> int:
    """The descriptor by which it is served."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    name = os.fsencode(target)
    if libc.mount(b"bad_disk", name, b"fuse", ctypes.c_ulong(0), options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return device


@contextlib.contextmanager
def bad_disk(directory: Path, target: Path) -> Iterator[Path]:
    """``target`` shows ``directory``; yields the file that names its unreadable bytes.

    The test is skipped where nothing can be mounted, which pytest counts and shows.
    """
    bad = target.with_suffix(".bad")
    bad.write_text("")
    target.mkdir()
    command = [sys.executable, "-m", "support.bad_disk", str(directory), str(target), str(bad)]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert select.select([server.stdout], [], [], PATIENCE)[0]
            told = server.stdout.readline().strip()
            if told.startswith("not run: "):
                pytest.skip(told)
            assert told == "mounted", told + server.stdout.read()
            yield bad
        finally:
            ctypes.CDLL(None).umount2(os.fsencode(target), MNT_DETACH)
            try:
                server.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                server.kill()


def main(directory: str, target: str, bad: str) -> None:
    try:
        device = mount(Path(target))
    except OSError as error:
        print(f"not run: no FUSE file system can be mounted here: {error}", flush=True)
        return
    print("mounted", flush=True)
    BadDisk(Path(directory), Path(bad)).serve(device)


if __name__ == "__main__":
    main(*sys.argv[1:])
