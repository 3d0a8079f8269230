"""Random messages to random light queues, over closes, kills and lost units, against a model."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from rmqstore import StoreConfig
from support import oracle_store
from support.light_model import LightModel

pytestmark = pytest.mark.property

CONFIG = StoreConfig.small(
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=100,
    max_hash_slot_num=10,
    max_index_num=40,
)
NAMES = ["a", "%LMQ%a", "b", "c-1", "d|e"]
LOSSES = ["nothing", "queues", "light", "end", "checkpoint"]

puts = st.tuples(
    st.just("put"),
    st.sampled_from(["orders", "u", "%LMQ%b"]),
    st.integers(0, 2),
    st.binary(max_size=300),
    st.lists(st.sampled_from(NAMES), max_size=4),
)
steps = st.lists(
    puts
    | st.tuples(st.just("many"), st.integers(0, 9))
    | st.tuples(st.just("again"), st.booleans(), st.sampled_from(LOSSES), st.booleans()),
    max_size=20,
)


def lose(root: Path, what: str) -> None:
    light = sorted((root / "consumequeue").glob("%LMQ%*/0"))
    if what == "queues":
        shutil.rmtree(root / "consumequeue")
    elif what == "light":
        for path in light[::2]:
            shutil.rmtree(path)
    elif what == "end":
        for path in light[::2]:
            files = sorted(path.iterdir())
            with files[len(files) // 2].open("r+b") as file:
                file.seek(40)
                file.write(bytes(60))
    elif what == "checkpoint":
        (root / "checkpoint").unlink(missing_ok=True)


class Run:
    """A store and its model, over one list of steps."""

    def __init__(self, top: Path, options: dict[str, Any]) -> None:
        self.top = top
        self.options = options
        self.model = LightModel()
        self.turn = 0
        self.root = top / "0"
        self.store = rmqstore.open(self.root, "a", config=CONFIG.replace(**options))

    def put(self, topic: str, queue_id: int, body: bytes, names: list[str]) -> None:
        own = topic.startswith("%LMQ%")
        done = self.store.put(
            topic, body, queue_id=0 if own else queue_id, keys="k", lite_topics=names
        )
        if own:  # its own unit may be the one that it names
            names = [topic, *names]
        offsets = self.model.put(body, names)
        if own:
            assert done.queue_offset == offsets[topic]

    def many(self, count: int) -> None:
        self.store.put_many("orders", [b"x"] * count, queue_id=1)

    def again(self, killed: bool, lost: str, told: bool) -> None:
        """Close it, or leave it as a killed process does; then read, and open for writing."""
        self.turn += 1
        to = self.top / str(self.turn)
        if killed:
            self.store.flush()
            shutil.copytree(self.root, to)
        self.store.close()
        if not killed:
            shutil.copytree(self.root, to)
        shutil.rmtree(self.root)
        self.root = to
        if killed or lost != "end":  # zeros among the units of a closed store are damage
            lose(to, lost)
        # Sizes are told by files; a store that has none of a kind begins with the defaults.
        sized = any(to.glob("consumequeue/*/*/*")) and any(to.glob("index/*"))
        given = None if told and sized else CONFIG.replace(**self.options)
        with rmqstore.open(to, "r", config=given) as reader:
            self.model.assert_holds(reader)
        self.store = rmqstore.open(to, "r+", config=given)
        self.model.assert_holds(self.store)


@given(
    steps,
    st.fixed_dictionaries(
        {"record_checksum": st.booleans(), "compress_above": st.sampled_from([None, 100])}
    ),
)
def test_light_queues(script: list[Any], options: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as top:
        run = Run(Path(top), options)
        try:
            for name, *arguments in script:
                getattr(run, name)(*arguments)
            run.model.assert_holds(run.store)
        finally:
            run.store.close()
        oracle_store.check_store(run.root)
        with rmqstore.open(run.root, "r", verify="full") as store:
            run.model.assert_holds(store)
            assert store.recovery.ranges == ()
