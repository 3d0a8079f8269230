"""What the tests compare: queue and index files; and the faults of 4.9.3 that they allow for.

``INDEX_DESTROYED``
    After an unclean exit it unlinks each index file whose end is later than the checkpoint says,
    and enters anew only the keys of what recovery dispatches (RELIABILITY.md, finding 7).
``DELAY_FORGOTTEN``
    ``DefaultMessageStore.load`` recovers before ``ScheduleMessageService.load`` knows the delay
    levels: a delayed message that recovery after an unclean exit dispatches gets the hash of its
    tags for a tags code instead of the time to deliver it at, and so is due at once.
``FILE_UNFINISHED``
    It makes a file without bytes and then gives it its length (``MappedFile.init``).  Killed in
    between it leaves a file of 0 bytes, for which it refuses to start until somebody removes it.
"""

from __future__ import annotations

import contextlib
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from interop.same_files import assert_same_files, extents
from support.oracle import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from interop.driver import Driver

INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_ENTRY_BYTES = 20
UNIT_BYTES = 20
LAST_ENTRIES = 5  # of the record that is entered last: a unique key and up to four keys
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
        assert_same_files(path, real[name], 0, UNIT_BYTES)
    return len(mine)


def assert_same_index_files(ours: Path, theirs: Path, slots: int) -> int:
    """Compare index files in order, byte for byte; return the number of entries in use.

    Names are creation times, so only their order counts.
    """
    mine = [p for _, p in sorted(files(ours / "index").items())]
    real = [p for _, p in sorted(files(theirs / "index").items())]
    assert len(mine) == len(real)
    entries = 0
    for a, b in zip(mine, real, strict=True):
        assert_same_files(a, b, INDEX_HEADER.size + slots * SLOT_BYTES, INDEX_ENTRY_BYTES)
        with a.open("rb") as file:
            entries += max(INDEX_HEADER.unpack(file.read(INDEX_HEADER.size))[5], 1) - 1
    return entries


def assert_same_index_keys(ours: Path, theirs: Path, slots: int) -> int:
    """Compare what is in the index files, entry by entry; return how many there are.

    An entry may be there twice: a record with the last offset in the index is entered once more
    after an unclean exit, in 4.9.3 as in ours, for nothing tells whether all its keys were.
    """
    keys, twice = [], []
    for root in (ours, theirs):
        entries: list[tuple[int, int]] = []
        for _, path in sorted(files(root / "index").items()):
            data = path.read_bytes()
            count = INDEX_HEADER.unpack_from(data)[5]
            first = INDEX_HEADER.size + slots * SLOT_BYTES
            for number in range(1, count):
                at = first + number * INDEX_ENTRY_BYTES
                entries.append(struct.unpack_from(">iq", data, at))
        keys.append(list(dict.fromkeys(entries)))
        twice.append(len(entries) - len(keys[-1]))  # two keys of a record may have one hash
    assert keys[0] == keys[1]
    assert 0 <= twice[0] - twice[1] <= LAST_ENTRIES, twice
    return len(keys[0])


def assert_same_log_files(ours: Path, theirs: Path) -> None:
    """Compare commit log files byte for byte, fillers too."""
    mine, real = files(ours), files(theirs)
    assert sorted(mine) == sorted(real)
    for name, path in mine.items():
        assert_same_files(path, real[name])


def index_survives_from(root: Path) -> int:
    """INDEX_DESTROYED: lowest offset from which 4.9.3 has every key after opening this store.

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


def unfinished_files(root: Path) -> list[Path]:
    """FILE_UNFINISHED: the files without bytes for which 4.9.3 refuses this store."""
    parts = (files(root / part).values() for part in ("commitlog", "consumequeue"))
    return [path for part in parts for path in part if path.stat().st_size == 0]


def delayed_units(root: Path) -> set[tuple[str, int, int]]:
    """DELAY_FORGOTTEN: places of the delayed messages that have been dispatched, and rightly."""
    places = set()
    for queue in (root / "consumequeue" / SCHEDULE_TOPIC).glob("*"):
        for path in queue.iterdir():
            for start, end in extents(path):
                with path.open("rb") as file:
                    first = start - start % UNIT_BYTES
                    file.seek(first)
                    units = file.read(end - first)
                for at in range(0, len(units), UNIT_BYTES):
                    if any(units[at + 8 : at + 12]):  # its size
                        offset = (int(path.name) + first + at) // UNIT_BYTES
                        places.add((SCHEDULE_TOPIC, int(queue.name), offset))
    return places
