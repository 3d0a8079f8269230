"""Damage of small stores for the tests of repairs, and what of a store is compared."""

import os
import shutil
import struct
import time

import rmqstore
from rmqstore import StoreConfig
from rmqstore.toolbox import repair, undo, verify
from rmqstore.toolbox.repairs import journal

LOG, UNITS = 1 << 18, 2000
CONFIG = StoreConfig(
    mapped_file_size_commit_log=LOG,
    mapped_file_size_consume_queue=UNITS,
    max_hash_slot_num=500,
    max_index_num=2000,
)
COUNT = 1000


def make(root, *, config=CONFIG, count=COUNT):
    with rmqstore.open(root, "a", config=config) as store:
        for number in range(count):
            store.put(
                ("orders", "bills")[number % 2],
                b"%06d" % number + bytes(number % 200) + b"y" * 500,
                keys=[f"k{number}"],
                tags=("a", "b")[number % 3 == 0],
                queue_id=number % 3,
            )
    (root / "config/consumerOffset.json").write_text('{"offsetTable":{"orders@billing":{0:5}}}')


def log(number):
    return f"commitlog/{number * LOG:020d}"


def queue_file(number, topic="orders", queue_id=0):
    return f"consumequeue/{topic}/{queue_id}/{number * UNITS:020d}"


def readable(root, config=None):
    """Return the messages that any way of reading shows, by their offset in the log."""
    found = {}
    with rmqstore.open(root, "r", config=config) as store:
        for one in store.scan(on_corruption="skip", on_removed="skip"):
            found[one.physical_offset] = (one.topic, one.queue_id, one.queue_offset, one.body)
    return found


def bodies(root):
    """Return the bodies of readable messages; the rest of a damaged record may be mended."""
    return {offset: body for offset, (*_, body) in readable(root).items()}


def queued(root):
    """Return the messages of the queues, by place."""
    found = {}
    with rmqstore.open(root, "r") as store:
        for name, topic in store.topics.items():
            for queue_id, queue in topic.items():
                units = queue.units()
                for at, unit in enumerate(units, queue.min_offset):
                    found[name, queue_id, at] = int(unit["physical_offset"])
    return found


def tree(root):
    """Return kind, bytes and time of each file."""
    return {
        str(path.relative_to(root)): (
            path.is_dir() or (path.read_bytes(), path.lstat().st_mtime_ns)
        )
        for path in root.rglob("*")
    }


def patch(name, at, data):
    def change(root):
        with (root / name).open("r+b") as file:
            file.seek(at)
            file.write(data)

    return change


def patch_record(root, number, at, data):
    """Overwrite bytes of the record with the number-th unit of a queue."""
    offset = place_of(root, number)
    patch(log(offset // LOG), offset % LOG + at, data)(root)


def record_of(root, number):
    """Return the bytes of the file from the record with the number-th unit of a queue on."""
    offset = place_of(root, number)
    return (root / log(offset // LOG)).read_bytes()[offset % LOG :]


def mended(root, *, actions):
    """Repair and undo a store; check both, and that these actions were done."""
    damaged, before = tree(root), bodies(root)
    done = repair(root, apply=True)
    assert {one.action for one in done.actions} == actions
    assert done.left == 0
    assert before.items() <= bodies(root).items()
    assert repair(root).actions == ()
    report = verify(root, full=True, jobs=1)
    assert (report.broker, report.clean, report.fix) == ("starts", True, None), report.problems
    undo(root, done.journal)
    assert tree(root) == damaged


def truncate(name, size):
    return lambda root: os.truncate(root / name, size)


def write(name, data):
    def change(root):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)

    return change


def gone(*names):
    def remove(root):
        for name in names:
            if (root / name).is_dir():
                shutil.rmtree(root / name)
            else:
                (root / name).unlink()

    return remove


def directory(name):
    def change(root):
        if (root / name).exists():
            (root / name).unlink()
        (root / name).mkdir()

    return change


def several(*changes):
    def run(root):
        for one in changes:
            one(root)

    return run


def torn(name, *, backup):
    def cut(root):
        path = root / "config" / name
        data = path.read_bytes()
        path.with_name(f"{name}.bak").write_bytes(data if backup else data[: len(data) // 3])
        path.write_bytes(data[: len(data) // 2])

    return cut


def place_of(root, number):
    """Return the place of the record with the number-th unit of a queue."""
    data = b"".join((root / queue_file(at)).read_bytes() for at in (0, 1))
    return struct.unpack_from(">q", data, 20 * number)[0]


def flip(root, number, *, at=40):
    """Flip a byte in the body of the record with the number-th unit of a queue."""
    offset = place_of(root, number)
    path = root / log(offset // LOG)
    with path.open("r+b") as file:
        file.seek(offset % LOG + 88 + at)
        byte = file.read(1)
        file.seek(offset % LOG + 88 + at)
        file.write(bytes([byte[0] ^ 1]))


def flipped(*numbers):
    return lambda root: [flip(root, number) for number in numbers] and None


def head_of(number):
    """Overwrite the head of a record."""

    def change(root):
        offset = place_of(root, number)
        patch(log(offset // LOG), offset % LOG, b"\xff" * 40)(root)

    return change


def early_blank(number):
    """Overwrite the start of a record by the blank that ends a file."""

    def change(root):
        offset = place_of(root, number)
        blank = struct.pack(">ii", LOG - offset % LOG, -875286124)
        patch(log(offset // LOG), offset % LOG, blank)(root)

    return change


def index_file(root):
    return f"index/{sorted(one.name for one in (root / 'index').iterdir())[0]}"


def in_index(at, data):
    return lambda root: patch(index_file(root), at, data)(root)


def last_log(root):
    return max(int(one.name) for one in (root / "commitlog").iterdir()) // LOG


def at_last(change):
    return lambda root: change(last_log(root))(root)


FUTURE = struct.pack(">qqq", *[int(time.time() * 1000) + 10**9] * 3)

DAMAGE = {
    "flip": flipped(100),
    "flips": flipped(3, 4, 60, 140),
    "head": head_of(90),
    "early-blank": early_blank(90),
    "early-blank-at-0": patch(log(1), 0, struct.pack(">ii", LOG, -875286124)),
    "first-record": patch(log(0), 0, b"\xff" * 30),
    "hole-512": patch(log(1), 512 * 40, bytes(512)),
    "hole-4096": patch(log(1), 4096 * 9, bytes(4096)),
    "hole-over-many": patch(log(0), 4096 * 20, bytes(4096 * 10)),
    "foreign-block": patch(log(1), 4096 * 3, b"\x5a" * 4096),
    "file-start": patch(log(1), 0, bytes(4096)),
    "file-end": patch(log(0), LOG - 4096, b"\x77" * 4096),
    "middle-zeroed": write(log(1), bytes(LOG)),
    "middle-missing": gone(log(1)),
    "two-missing": gone(log(0 + 1), log(2)),
    "middle-short": truncate(log(1), 70000),
    "middle-empty": truncate(log(1), 0),
    "first-short": truncate(log(0), 4096),
    "middle-long": truncate(log(1), LOG + 1),
    "last-missing": at_last(lambda n: gone(log(n))),
    "last-empty": at_last(lambda n: truncate(log(n), 0)),
    "last-short": at_last(lambda n: truncate(log(n), 5000)),
    "last-zeroed": at_last(lambda n: write(log(n), bytes(LOG))),
    "last-long": at_last(lambda n: truncate(log(n), LOG + 77)),
    "torn-tail": lambda root: several(
        write("abort", b""), patch(log(last_log(root)), LOG - 9000, b"\x12" * 300))(root),
    "garbage-behind": lambda root: patch(log(last_log(root)), LOG - 9000, b"\x12" * 300)(root),
    "killed": write("abort", b""),
    "killed-flip": several(write("abort", b""), flipped(20)),
    "ds-store-in-log": write("commitlog/.DS_Store", b"x"),
    "bak-in-log": write(f"{log(0)}.bak", bytes(LOG)),
    "directory-in-log": lambda root: (root / "commitlog/lost+found").mkdir(),
    "unaligned-in-log": write(f"commitlog/{LOG + 1:020d}", bytes(LOG)),
    "number-in-log": write("commitlog/7", bytes(LOG)),
    "queue-file-empty": truncate(queue_file(0), 0),
    "queue-file-short": truncate(queue_file(0), 1234),
    "queue-file-long": truncate(queue_file(0), UNITS + 20),
    "queue-file-zeroed": write(queue_file(0), bytes(UNITS)),
    "queue-units-zeroed": patch(queue_file(0), 400, bytes(400)),
    "queue-unit-wrong": patch(queue_file(0), 400, struct.pack(">qiq", 5, 600, 1)),
    "queue-beyond": patch(queue_file(0), 400, struct.pack(">qiq", 1 << 40, 600, 1)),
    "queue-gone": gone("consumequeue/orders/0"),
    "topic-gone": gone("consumequeue/orders"),
    "queues-gone": gone("consumequeue"),
    "queues-and-index-gone": gone("consumequeue", "index"),
    "flips-and-queues-gone": several(flipped(3, 60), gone("consumequeue")),
    "ds-store-in-queue": write("consumequeue/orders/0/.DS_Store", b"x"),
    "ds-store-in-topic": write("consumequeue/orders/.DS_Store", b"x"),
    "ds-store-as-topic": write("consumequeue/.DS_Store", b"x"),
    "queue-x": lambda root: (root / "consumequeue/orders/x").mkdir(),
    "queue-extra": write(
        queue_file(0, "orders", 7), struct.pack(">qiq", 0, 700, 1).ljust(UNITS, b"\0")),
    "index-gone": gone("index"),
    "index-header": in_index(0, b"\x01" * 40),
    "index-count": in_index(36, struct.pack(">i", 3)),
    "index-slots": in_index(40, b"\x01" * 400),
    "index-entries": in_index(40 + 2000 + 200, b"\x01" * 200),
    "index-short": lambda root: truncate(index_file(root), 5000)(root),
    "index-empty": lambda root: truncate(index_file(root), 0)(root),
    "index-foreign": write("index/.DS_Store", b"x"),
    "checkpoint-directory": directory("checkpoint"),
    "checkpoint-garbage": write("checkpoint", b"\xee" * 4096),
    "checkpoint-empty": write("checkpoint", b""),
    "checkpoint-future": patch("checkpoint", 0, FUTURE),
    "lock-directory": directory("lock"),
    "topics-torn": torn("topics.json", backup=True),
    "topics-torn-both": torn("topics.json", backup=False),
    "topics-gone": gone("config/topics.json", "config/topics.json.bak"),
    "topics-nul": several(
        gone("config/topics.json.bak"), write("config/topics.json", bytes(400))),
    "topics-none": write("config/topics.json", b'{"topicConfigTable":{}}'),
    "offsets-torn": torn("consumerOffset.json", backup=True),
    "offsets-torn-both": torn("consumerOffset.json", backup=False),
    "all-at-once": several(
        flipped(30), gone(log(1)), truncate(queue_file(0), 0), write("commitlog/.DS_Store", b"x"),
        gone("index"), write("checkpoint", b"\xee" * 4096), torn("topics.json", backup=True)),
}  # fmt: skip


def spread(root, *logs, read_only=()):
    """Move the log's files into other directories, as a broker has them; return its config."""
    for one in logs:
        one.mkdir(parents=True, exist_ok=True)
    for path in (root / "commitlog").iterdir():
        number = int(path.name) // LOG if path.name.isdigit() else 0
        shutil.move(path, logs[number % len(logs)] / path.name)
    (root / "commitlog").rmdir()
    names = [",".join(str(one) for one in some) or None for some in (logs, read_only)]
    return CONFIG.replace(store_path_commit_log=names[0], read_only_commit_log_store_paths=names[1])


def without_times(root):
    """Return the bytes of a store's files, but the journal's."""
    return {
        name: found if found is True else found[0]
        for name, found in tree(root).items()
        if not name.startswith(journal.PREFIX)
    }


def killed_at(number, work):
    """Do some work in a process that ends at its number-th point; return whether it did."""
    pid = os.fork()
    if pid == 0:
        count = iter(range(number + 1))

        def reached(point):
            if next(count, None) == number:
                os._exit(9)

        journal.reached = reached
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


def points(work, monkeypatch):
    """Return the names of the points that some work reaches."""
    found = []
    monkeypatch.setattr(journal, "reached", found.append)
    work()
    monkeypatch.undo()
    return found


def chosen(names):
    """Return the numbers of the first and the last point of each name."""
    return sorted({at for name in names for at in (
        names.index(name), len(names) - 1 - names[::-1].index(name))})  # fmt: skip
