"""What the tests compare: queue and index files, and what 4.9.3 keeps of an index after a crash."""

from __future__ import annotations

import contextlib
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interop.driver import Driver

INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_ENTRY_BYTES = 20
SLOT_BYTES = 4
DEFAULT_SLOTS = 5_000_000
LOOK_BACK_MS = 3000  # by so much an unclean start goes back behind the checkpoint
STORE_TIME_AT = 56  # in a record whose born host is IPv4, 12 bytes later else
SYS_FLAG_AT = 36
BORN_HOST_V6 = 0x10

LISTENING, ANY = "0A", {"0" * 8, "0" * 32}  # as the kernel writes them
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def sockets(pid: int) -> list[tuple[str, str, str, str]]:
    """Protocol, state, local and remote address of each socket of a process.

    The addresses are hex words of the machine's own byte order, without the port.
    """
    process = Path("/proc") / str(pid)
    mine = set()
    for link in (process / "fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            mine.add(str(link.readlink()))
    found = []
    for name in ("tcp", "tcp6", "udp", "udp6"):
        for line in (process / "net" / name).read_text().splitlines()[1:]:
            columns = line.split()
            if f"socket:[{columns[9]}]" in mine:
                local, remote = (address.partition(":")[0] for address in columns[1:3])
                found.append((name, columns[3], local, remote))
    return found


def assert_loopback_only(pid: int) -> int:
    """No socket of the process may have another address; return how many listen."""
    found = sockets(pid)
    for socket in found:
        assert socket[2] in LOOPBACK, socket
        assert socket[3] in LOOPBACK | ANY, socket
    return sum(socket[1] == LISTENING for socket in found)


def files(directory: Path) -> dict[str, Path]:
    """All files below the directory by their relative names."""
    return {str(p.relative_to(directory)): p for p in directory.rglob("*") if p.is_file()}


def rebuild(real: Driver, root: Path, config: dict[str, int]) -> None:
    """Let the real store make queues and index of this store anew, from the log alone."""
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index", ignore_errors=True)
    opened = real.open(root, config)
    assert opened["load"], real.log()
    assert opened["start"]
    assert real.shutdown()


def assert_same_queue_files(ours: Path, theirs: Path) -> int:
    """Compare consume queue files byte for byte; return how many were compared."""
    mine, real = files(ours / "consumequeue"), files(theirs / "consumequeue")
    assert sorted(mine) == sorted(real)
    for name, path in mine.items():
        a, b = path.read_bytes(), real[name].read_bytes()
        if a != b:
            at = next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y) // 20 * 20
            raise AssertionError(
                f"{name}: {len(a)} and {len(b)} bytes, unit at {at}: "
                f"{a[at : at + 20].hex()} is {b[at : at + 20].hex()} in the real file"
            )
    return len(mine)


def assert_same_index_files(ours: Path, theirs: Path, slots: int) -> int:
    """Compare index files in order: header, slots and used entries; return the number of entries.

    Names are creation times, so only their order counts.
    """
    mine = [p for _, p in sorted(files(ours / "index").items())]
    real = [p for _, p in sorted(files(theirs / "index").items())]
    assert len(mine) == len(real)
    entries = 0
    for a, b in zip(mine, real, strict=True):
        assert a.stat().st_size == b.stat().st_size
        with a.open("rb") as left, b.open("rb") as right:
            header = INDEX_HEADER.unpack(left.read(INDEX_HEADER.size))
            assert header == INDEX_HEADER.unpack(right.read(INDEX_HEADER.size)), (a, b)
            assert left.read(slots * SLOT_BYTES) == right.read(slots * SLOT_BYTES), (a, b)
            for number in range(max(header[5], 1)):
                entry, other = left.read(INDEX_ENTRY_BYTES), right.read(INDEX_ENTRY_BYTES)
                assert entry == other, f"{a} entry {number}: {entry.hex()}, real: {other.hex()}"
            entries += max(header[5], 1) - 1
    return entries


def index_survives_from(root: Path) -> int:
    """Lowest physical offset from which 4.9.3 has every key after opening this store.

    After an unclean exit it throws away each index file whose end is later than the checkpoint
    says, and dispatches again only from the file that recovery starts with; what lies before that
    and was in a file thrown away is lost to its index.
    """
    if not (root / "abort").exists():
        return 0
    checkpoint = (root / "checkpoint").read_bytes() if (root / "checkpoint").exists() else b""
    physic, logics, indexed = struct.unpack(">qqq", checkpoint[:24].ljust(24, b"\0"))
    destroyed = False
    for path in files(root / "index").values():
        with path.open("rb") as file:
            destroyed |= INDEX_HEADER.unpack(file.read(INDEX_HEADER.size))[1] > indexed
    if not destroyed:
        return 0
    limit = max(0, min(physic, logics) - LOOK_BACK_MS)
    for path in sorted((root / "commitlog").iterdir(), reverse=True):
        with path.open("rb") as file:
            head = file.read(128)
        if head[4:8] != b"\xda\xa3\x20\xa7":
            continue
        v6 = struct.unpack_from(">i", head, SYS_FLAG_AT)[0] & BORN_HOST_V6
        (stored,) = struct.unpack_from(">q", head, STORE_TIME_AT + (12 if v6 else 0))
        if 0 < stored <= limit:
            return int(path.name)
    return 0
