"""``get``: its status and next offset for each place asked, and its two bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore import GetStatus

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=200,
    max_hash_slot_num=100,
    max_index_num=400,
)
COUNT = 95  # over ten files of the queue
TAGS = ("a", "b", "c")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rmqstore.MessageStore]:
    path = tmp_path_factory.mktemp("get") / "store"
    with rmqstore.open(path, "a", config=CONFIG) as made:
        made.create_topic("empty", 1)
        for number in range(COUNT):
            made.put("t", b"%d" % number, queue_id=1, tags=TAGS[number % 3],
                     properties={"n": str(number)})  # fmt: skip
        made.get("t", 1, COUNT)  # waits for the dispatch of all
        yield made


@pytest.mark.parametrize(
    ("place", "status", "following"),
    [
        (("t", 1, 0), GetStatus.FOUND, 32),
        (("t", 1, COUNT - 1), GetStatus.FOUND, COUNT),
        (("t", 1, COUNT), GetStatus.OFFSET_OVERFLOW_ONE, COUNT),
        (("t", 1, COUNT + 1), GetStatus.OFFSET_OVERFLOW_BADLY, 0),
        (("t", 1, 1 << 62), GetStatus.OFFSET_OVERFLOW_BADLY, 0),
        (("t", 0, 5), GetStatus.NO_MESSAGE_IN_QUEUE, 0),
        (("empty", 0, 0), GetStatus.NO_MESSAGE_IN_QUEUE, 0),
        (("unknown", 0, 0), GetStatus.NO_MESSAGE_IN_QUEUE, 0),
    ],
)
def test_status(
    store: rmqstore.MessageStore, place: tuple[str, int, int], status: GetStatus, following: int
) -> None:
    got = store.get(*place)
    assert (got.status, got.next_offset) == (status, following)
    assert bool(got.messages) == (status is GetStatus.FOUND)
    assert (got.min_offset, got.max_offset) == ((0, COUNT) if place[:2] == ("t", 1) else (0, 0))


@pytest.mark.parametrize("most", [1, 2, 9, 10, 11, 94, 95, 1000])
def test_pages_of_every_size_are_the_queue(store: rmqstore.MessageStore, most: int) -> None:
    at, bodies = 0, []
    while (got := store.get("t", 1, at, most)).status is GetStatus.FOUND:
        assert 0 < len(got.messages) <= most
        assert got.next_offset == at + len(got.messages)
        bodies += [message.body for message in got.messages]
        at = got.next_offset
    assert bodies == [b"%d" % number for number in range(COUNT)]


def test_bytes_bound_a_page_but_one_message_always_comes(store: rmqstore.MessageStore) -> None:
    sizes = [message.store_size for message in store.get("t", 1, 0, COUNT).messages]
    for most_bytes in (1, sizes[0], sizes[0] + 1, sum(sizes[:7]), sum(sizes[:7]) + 1, 1 << 30):
        fitting = sum(sum(sizes[: n + 1]) <= most_bytes for n in range(COUNT))
        got = store.get("t", 1, 0, COUNT, max_bytes=most_bytes)
        assert len(got.messages) == max(1, fitting)
        assert got.next_offset == len(got.messages)


@pytest.mark.parametrize("filtered", [{"tags": "b"}, {"sql": "TAGS = 'b'"}], ids=["tags", "sql"])
def test_a_filter_passes_over_the_others(
    store: rmqstore.MessageStore, filtered: dict[str, str]
) -> None:
    got = store.get("t", 1, 0, 5, **filtered)  # type: ignore[arg-type]
    assert [message.queue_offset for message in got.messages] == [1, 4, 7, 10, 13]
    assert got.next_offset == 14
    got = store.get("t", 1, COUNT - 1, 5, tags="c")
    assert (got.status, got.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, COUNT)


def test_offsets_below_the_first_that_is_left(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as store:
        store.put_many("t", [b"x" * 500] * 40, queue_id=0)
        first = min((path / "commitlog").iterdir())
    first.unlink()
    with rmqstore.open(path) as store:
        got = store.get("t", 0, 0)
        assert got.status is GetStatus.OFFSET_TOO_SMALL
        assert 0 < got.min_offset == got.next_offset
        assert store.get("t", 0, got.min_offset).status is GetStatus.FOUND
        badly = store.get("t", 0, got.max_offset + 1)
        assert (badly.status, badly.next_offset) == (
            GetStatus.OFFSET_OVERFLOW_BADLY, got.max_offset,
        )  # fmt: skip
