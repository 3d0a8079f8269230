"""Files of queues or log that are gone or zeroed: a start as foretold, beside the real 4.9.3's."""

from __future__ import annotations

import pytest

import rmqstore
from rmqstore import StoreConfig, offline
from support import damaged_store
from support.queue_files import CLOSED, FILES, KILLED, PER_FILE, harm

pytestmark = pytest.mark.long

SIZES = {
    "mappedFileSizeCommitLog": 16384,
    "mappedFileSizeConsumeQueue": 20 * PER_FILE,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
}
CONFIG = StoreConfig(
    mapped_file_size_commit_log=16384,
    mapped_file_size_consume_queue=20 * PER_FILE,
    max_hash_slot_num=50,
    max_index_num=200,
)
COUNT = FILES * PER_FILE


def at_their_places(real, queue_id: int, topic: str = "T") -> int:
    """How many messages of a queue a consumer is shown that begins at 0."""
    shown = at = 0
    while True:
        got = real.get(topic, queue_id, at)
        shown += sum(
            one is not None and one["queue_offset"] == at + number
            for number, one in enumerate(got.records)
        )
        if got.next_offset <= at:
            return shown
        at = got.next_offset


@pytest.mark.parametrize("state", ["closed", "killed"])
def test_the_real_one_shows_the_others(real, tmp_path, compared, state):
    for name in CLOSED:
        root = tmp_path / name.replace(" ", "-")
        with rmqstore.open(root, "a", config=CONFIG) as store:
            for number in range(2 * COUNT):
                store.put("T", b"%d" % number, queue_id=number % 2)
        harm(root / "consumequeue/T/0", name)
        if state == "killed":
            (root / "abort").touch()
        told = offline.broker_start(root).messages_lost
        assert real.open(root.resolve(), SIZES)["load"]
        assert at_their_places(real, 1) == COUNT
        assert COUNT - at_their_places(real, 0) == told, (name, real.minmax())
        assert told == (KILLED if state == "killed" else CLOSED)[name], name
        real.shutdown()
    compared("test_lost_files starts", len(CLOSED))


@pytest.mark.parametrize("state", ["closed", "killed"])
def test_the_real_one_cuts_the_log_there(real, tmp_path, compared, state):
    for number, size in ((-2, 4), (-2, 16384), (-3, 100), (-3, 16384), (-4, 5000), (0, 16384)):
        root = damaged_store.make(tmp_path / f"{number}-{size}")
        damaged_store.zero_beginning(root, number, size)
        whole = len(damaged_store.read(root))
        if state == "killed":
            damaged_store.killed(root)
        told = offline.broker_start(root).messages_lost
        assert (told > 0) is (state == "killed" or number in (-2, -3))
        assert real.open(root.resolve(), SIZES)["load"]
        shown = sum(at_their_places(real, queue_id, "Topic1") for queue_id in (0, 1))
        if told:  # else it shows what is damaged as well
            assert whole - shown == told, (number, size)
        assert shown >= whole - told
        real.shutdown()
    compared("test_lost_files starts", 6)
