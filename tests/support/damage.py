"""Random damage of a store's copy by kinds, as disks, copies and hands do it."""

import os
import random
import shutil
import struct

import rmqstore
from rmqstore import StoreConfig
from support import repairs

PAGE = 4096
PARTS = ("commitlog", "commitlog", "consumequeue", "consumequeue", "consumequeue_ext", "index")
SMALL = StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=800,
    mapped_file_size_consume_queue_ext=4096,
    max_hash_slot_num=100,
    max_index_num=400,
    compress_above=4096,
)
SHAPES = {
    "plain": repairs.CONFIG,
    "light": SMALL.replace(enable_multi_dispatch=True, enable_lmq=True),
    "ext": SMALL.replace(enable_consume_queue_ext=True),
}


def make(home, shape):
    """Make a store of many kinds of messages as ``new``, with an earlier state of it as ``old``."""
    root, draw, begun = home / "new", random.Random(shape), 0
    with rmqstore.open(root, "a", config=SHAPES[shape]) as store:
        for number in range(600):
            more = {"keys": f"k{number}", "tags": "ab"[number % 2], "queue_id": number % 3}
            body = draw.randbytes(draw.randrange(300))
            topic, kind = draw.choice(["orders", "bills"]), draw.random()
            if kind < 0.1:
                store.put(topic, body, delay_level=draw.choice([2, 18]), **more)
            elif kind < 0.2:
                begun += 1
                half = store.begin(topic, body, **more)
                (half.commit, half.rollback, str)[begun % 3]()
            elif kind < 0.25:
                store.put(topic, b"compressed" * 1000, **more)
            else:
                light = {"lite_topics": [f"L{number % 2}"]} if shape == "light" else {}
                store.put(topic, body, **more, **light)
            if number == 400:
                store.flush()
                shutil.copytree(root, home / "old")
    (root / "config/delayOffset.json").write_text('{"offsetTable":{2:0,18:0}}')


def files(root, *parts):
    found = [path for part in parts for path in (root / part).rglob("*") if path.is_file()]
    return sorted(path for path in found if path.parent.name != "config" or "." in path.name)


def one_of(root, draw, parts=PARTS):
    return draw.choice([*files(root, draw.choice(parts)), *files(root, "commitlog")[:1]])


def write(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def page_of(path, draw):
    at = PAGE * draw.randrange(-(-path.stat().st_size // PAGE))
    return at, path.read_bytes()[at : at + PAGE]


def record_starts(path):
    data, at, found = path.read_bytes(), 0, []
    while at + 8 <= len(data):
        size, magic = struct.unpack_from(">ii", data, at)
        if size <= 0 or magic != -626843481:
            break
        found.append(at)
        at += size
    return [*found, at]


def cut(root, draw, _):
    """Cut a file beside a boundary of records, units or pages."""
    path = one_of(root, draw)
    step = draw.choice((20, 512, PAGE))
    ends = [step * draw.randrange(path.stat().st_size // step + 1)]
    ends += record_starts(path) if path.parent.name == "commitlog" else []
    os.truncate(path, max(0, min(path.stat().st_size, draw.choice(ends) + draw.choice((-1, 0, 1)))))


def grown(root, draw, _):
    path = one_of(root, draw)
    size = draw.choice((1, 19, 20, 512, PAGE, path.stat().st_size))
    path.write_bytes(path.read_bytes() + draw.choice((bytes(size), draw.randbytes(size))))


def hole(root, draw, _):
    path = one_of(root, draw)
    at, page = page_of(path, draw)
    write(path, at, bytes(len(page)))


def lost_write(root, draw, old):
    """Replace a page by an older version of itself."""
    path = one_of(root, draw)
    before = old / path.relative_to(root)
    at, page = page_of(path, draw)
    data = before.read_bytes()[at : at + PAGE] if before.is_file() else b""
    write(path, at, data[: len(page)].ljust(len(page), b"\0"))


def swapped_pages(root, draw, _):
    one, other = one_of(root, draw), one_of(root, draw)
    (at, page), (there, second) = page_of(one, draw), page_of(other, draw)
    size = min(len(page), len(second))
    write(one, at, second[:size])
    write(other, there, page[:size])


def fuzzy_copy(root, draw, old):
    """Take some files from an earlier moment."""
    part = draw.choice(("commitlog", "consumequeue", "index", ""))
    for path in files(root, part or "."):
        if path.name in ("lock", "delayOffset.json") or (not part and draw.random() < 0.5):
            continue
        before = old / path.relative_to(root)
        if before.is_file():
            shutil.copy2(before, path)
        elif path.parent.name != "config":
            path.unlink()
    (root / "abort").touch()


def other_checkpoint(root, draw, old):
    shutil.copy2(old / "checkpoint", root / "checkpoint")
    if draw.random() < 0.5:
        (root / "abort").touch()


def misplaced_queue(root, draw, _):
    queues = sorted((root / "consumequeue").glob("*/*"))
    one, other = draw.choice(queues), draw.choice(queues)
    if draw.random() < 0.5:
        shutil.copytree(one, one.with_name("9"))
    elif one != other:
        one.rename(root / "aside")
        other.rename(one)
        (root / "aside").rename(other)


def misnamed(root, draw, _):
    path = one_of(root, draw, ("commitlog", "consumequeue"))
    number = int(path.name)
    names = (path.name[1:], f"0{path.name}", f"{number + 20:020d}", f"{path.name} (copy)")
    there = path.with_name(draw.choice(names))
    shutil.copy2(path, there) if draw.random() < 0.5 else path.rename(there)


def shifted(root, draw, _):
    path = one_of(root, draw)
    data = path.read_bytes()
    at, size = draw.randrange(len(data)), draw.choice((1, 4, 20, 512))
    moved = data[at + size :] + bytes(size) if draw.random() < 0.5 else bytes(size) + data[at:]
    path.write_bytes((data[:at] + moved)[: len(data)].ljust(len(data), b"\0"))


def misdirected_record(root, draw, _):
    """Write a record over another one."""
    path = one_of(root, draw, ("commitlog",))
    starts = record_starts(path)
    number, there = draw.randrange(len(starts) - 1), draw.choice(starts[:-1])
    data = path.read_bytes()
    record = data[starts[number] : starts[number + 1]]
    write(path, there, record[: len(data) - there])


def early_blanks(root, draw, _):
    for _ in range(draw.choice((1, 2))):
        path = one_of(root, draw, ("commitlog",))
        size = path.stat().st_size
        if starts := [at for at in record_starts(path) if at + 8 <= size]:
            at = draw.choice(starts)
            write(path, at, struct.pack(">ii", size - at, -875286124))


def sizes(root, draw, _):
    path = one_of(root, draw, ("commitlog",))
    if starts := record_starts(path)[:-1]:
        size = draw.choice((0, -1, 88, 91, 70_000, 1 << 22, (1 << 31) - 1))
        write(path, draw.choice(starts), struct.pack(">i", size))


def gone(root, draw, _):
    path = draw.choice([root / "checkpoint", *sorted((root / "consumequeue").rglob("*")),
                        *files(root, "commitlog", "index", "consumequeue_ext")])  # fmt: skip
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def no_directory(root, draw, _):
    path = root / draw.choice(("consumequeue", "index", "lock", "checkpoint"))
    was_file = path.is_file()
    path.unlink() if was_file else shutil.rmtree(path)
    path.mkdir() if was_file else path.write_bytes(b"x")


KINDS = {
    one.__name__: one
    for one in (
        cut, grown, hole, lost_write, swapped_pages, fuzzy_copy, other_checkpoint, misplaced_queue,
        misnamed, shifted, misdirected_record, early_blanks, sizes, gone, no_directory,
    )
}  # fmt: skip
