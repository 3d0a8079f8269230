"""consumequeue_ext after any sequence of puts, kills, losses and reopenings, against the oracle."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from rmqstore import StoreConfig
from support import oracle_ext, oracle_store

pytestmark = pytest.mark.property

TAGS = [None, "TagA", "TagB", "x"]
ON = StoreConfig(
    mapped_file_size_commit_log=16 << 10,
    mapped_file_size_consume_queue=200,
    max_hash_slot_num=20,
    max_index_num=100,
    enable_consume_queue_ext=True,
    mapped_file_size_consume_queue_ext=1300,
)
OFF = ON.replace(enable_consume_queue_ext=False)
FILTERS = [("TAGS = 'TagA'", [0, 5]), ("TAGS IN ('x', 'TagB')", [7, 15])]

steps = st.lists(
    st.fixed_dictionaries(
        {
            "count": st.integers(0, 40),
            "on": st.sampled_from([True, True, True, False]),
            "bitmap": st.sampled_from([0, 2, 30]),
            "end": st.sampled_from(["close", "close", "kill", "power"]),
            "delete": st.booleans(),
            "seed": st.integers(0, 1 << 30),
        }
    ),
    min_size=1,
    max_size=5,
)


def zero_sectors(root: Path, draw: random.Random) -> None:
    """As a power cut does where nothing was forced: sectors of queues and ext files are zeros.

    A sector of a queue is 20 bytes here, so that small files have some.
    """
    for directory in ("consumequeue", "consumequeue_ext"):
        for path in sorted((root / directory).rglob("0*")):
            if not path.is_file() or draw.random() < 0.5:
                continue
            data = bytearray(path.read_bytes())
            sector = 20 if directory == "consumequeue" else 512
            for at in range(0, len(data), sector):
                if draw.random() < 0.3:
                    data[at : at + sector] = bytes(len(data[at : at + sector]))
            path.write_bytes(data)
    (root / "checkpoint").unlink(missing_ok=True)


def tags_of(root: Path, given: StoreConfig | None, mode: str) -> dict[str, list[tuple[int, int]]]:
    """Places of the messages with each tag, by ``get`` and by a scan along each queue."""
    found: dict[str, list[tuple[int, int]]] = {}
    with rmqstore.open(root, mode, config=given) as store:
        for tag in ("TagA", "TagB", "x"):
            places = found.setdefault(tag, [])
            for queue_id, queue in store["T"].items() if "T" in store else ():
                at = queue.min_offset
                while at < queue.max_offset:
                    got = store.get("T", queue_id, at, 7, tags=tag)
                    places += [(queue_id, one.queue_offset) for one in got.messages]
                    at = got.next_offset
    return found


@given(steps)
def test_any_life_of_a_store(drawn: list[dict[str, int]]) -> None:
    directory = Path(mkdtemp(prefix="rmqstore-"))
    root = directory / "0"
    number = 0
    try:
        for turn, step in enumerate(drawn, 1):
            draw = random.Random(step["seed"])
            with rmqstore.open(root, "a", config=ON if step["on"] else OFF) as store:
                if step["bitmap"]:
                    store.core.set_bitmap_filters({"T": FILTERS}, step["bitmap"])
                if step["delete"] and draw.random() < 0.3 and "T" in store:
                    store.delete_topic("T")
                for _ in range(step["count"]):
                    number += 1
                    tags = draw.choice(TAGS)
                    store.put("T", b"%d" % number, tags=tags, queue_id=draw.randrange(2))
                store.get("T", 0, 1 << 40)
                if step["end"] != "close":
                    shutil.copytree(root, directory / str(turn))
            if step["end"] != "close":
                root = directory / str(turn)
            if step["end"] == "power":
                zero_sectors(root, draw)
            expected: dict[str, list[tuple[int, int]]] = {"TagA": [], "TagB": [], "x": []}
            reopened = draw.choice([ON, OFF, None])
            seen = tags_of(root, reopened, "r")
            if step["end"] != "close" or draw.random() < 0.5:
                assert tags_of(root, ON, "r+") == seen
                checked = oracle_ext.check_ext(root, orphans=True)
                records = {
                    one.physical_offset: one for one in oracle_store.walk_log(root / "commitlog")
                }
                for (_, queue_id), units in sorted(oracle_store.read_queues(root).items()):
                    for offset, unit in enumerate(units, units.min_offset):
                        tags = records[unit[0]].properties.get("TAGS")
                        if tags is not None:
                            expected[tags].append((queue_id, offset))
                assert seen == expected
                for (_, queue_id, offset), ext in checked.items():
                    unit = oracle_store.read_queue(root / f"consumequeue/T/{queue_id}").at(offset)
                    tags = records[unit[0]].properties.get("TAGS")
                    if len(ext.bitmap) >= 2:
                        want = {"TagA": (0x21, 0), "x": (0x80, 0x80), "TagB": (0x80, 0x80)}
                        bits = zip(ext.bitmap, want.get(tags or "", (0, 0)), strict=False)
                        assert all(bit & wanted == wanted for bit, wanted in bits)
    finally:
        shutil.rmtree(directory)
