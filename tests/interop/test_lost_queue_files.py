"""Queue files that are gone or zeroed: what is foretold of a start, beside the real 4.9.3's."""

from __future__ import annotations

import pytest

import rmqstore
from rmqstore import StoreConfig, offline
from support.queue_files import CLOSED, FILES, KILLED, PER_FILE, harm

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


def at_their_places(real, queue_id: int) -> int:
    """How many messages of a queue a consumer is shown that begins at 0."""
    shown = at = 0
    while True:
        got = real.get("T", queue_id, at)
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
    compared("starts foretold", len(CLOSED))
