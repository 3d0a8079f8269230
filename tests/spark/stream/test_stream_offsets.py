"""Offsets as Spark keeps them, and how a limit is shared among queues."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.spark.stream.admission import admitted, bytes_of
from rmqstore.spark.stream.offsets import (
    LogStart,
    OffsetError,
    QueueName,
    StreamOffset,
    flat,
    nested,
    share,
)

pytestmark = pytest.mark.spark

names = st.builds(
    QueueName, st.sampled_from([".", "/a", "/b"]), st.text(max_size=4), st.integers(0, 2**31 - 1)
)


@given(st.dictionaries(names, st.integers(0, 2**63 - 1)), st.data())
def test_an_offset_is_the_same_after_json(positions: dict[QueueName, int], data: Any) -> None:
    begun = (
        data.draw(st.lists(st.sampled_from(sorted(positions)), unique=True)) if positions else []
    )
    begins = {name: data.draw(st.integers(0, positions[name])) for name in begun}
    logs = {name.store: LogStart(at, "a digest") for name, at in positions.items()}
    offset = StreamOffset(positions, begins, {".": {"orders": 7}} if begins else {}, logs)
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset
    assert flat(nested(positions)) == positions
    ranges = {name: (start, stop) for name, start, stop in offset.ranges()}
    nonempty = {name for name in begun if begins[name] < positions[name]}
    assert ranges == {name: (begins[name], positions[name]) for name in nonempty}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"v": 2, "q": {}}, "version 2; this source knows 1"),
        ([], "version None"),
        ({"v": 1}, "None where queues should be"),
        ({"v": 1, "q": {".": {"t": {"x": 1}}}}, "where queues should be"),
        ({"v": 1, "q": {".": {"t": {"0": -1}}}}, "-1 for t/0"),
        ({"v": 1, "q": {".": {"t": {"0": "1"}}}}, "'1' for t/0"),
        ({"v": 1, "q": {".": {"t": {"-1": 1}}}}, "a queue -1 of 't'"),
        (
            {"v": 1, "q": {".": {"t": {"0": 1}}}, "from": {".": {"t": {"0": 2}}}},
            "t/0 that begins at 2 and ends at 1",
        ),
        ({"v": 1, "q": {}, "deleted": {"t": 1}}, "where deleted topics should be"),
        ({"v": 1, "q": {}, "logs": {".": [0]}}, "where logs should be"),
        ({"v": 1, "q": {}, "logs": {".": "ab"}}, "where logs should be"),
        ({"v": 1, "q": {}, "logs": {".": [-1, "ab"]}}, "where logs should be"),
        ({"v": 1, "q": {}, "logs": []}, "where logs should be"),
    ],
)
def test_offsets_that_are_none(data: Any, text: str) -> None:
    with pytest.raises(OffsetError, match=text):
        StreamOffset.from_json(data)


@given(st.lists(st.integers(0, 1000), max_size=20), st.integers(0, 3000), st.integers(0, 99))
def test_shares(wanted: list[int], limit: int, turn: int) -> None:
    parts = share(wanted, limit, turn)
    assert sum(parts) == min(limit, sum(wanted))
    assert all(0 <= part <= most for part, most in zip(parts, wanted, strict=True))
    if sum(wanted) > limit >= len(wanted):  # in proportion, and something for each
        exact = [limit * most / sum(wanted) for most in wanted]
        assert all(part >= int(least) for part, least in zip(parts, exact, strict=True))


def test_within_as_many_turns_as_queues_each_has_had_one() -> None:
    served = [share([1000, 1, 1, 1, 1], 1, turn).index(1) for turn in range(5)]
    assert sorted(served) == [0, 1, 2, 3, 4]


@given(st.data())
def test_batches_by_bytes(data: Any) -> None:
    queues = data.draw(st.lists(st.lists(st.integers(91, 5000), max_size=600), max_size=5))
    limit = data.draw(st.integers(1, 100_000))
    all_names = [QueueName(".", "t", i) for i in range(len(queues))]
    of = {name: np.array(sizes, np.int64) for name, sizes in zip(all_names, queues, strict=True)}

    def sizes(name: QueueName, start: int, stop: int) -> Any:
        assert 0 <= start <= stop <= len(of[name])
        return of[name][start:stop]

    at = dict.fromkeys(all_names, 0)
    most = data.draw(st.none() | st.integers(1, 500))
    for turn in range(4000):
        backlog = [
            (name, at[name], len(of[name])) for name in all_names if at[name] < len(of[name])
        ]
        if not backlog:
            break
        ends = admitted(backlog, sizes, max_messages=most, max_bytes=limit, turn=turn)
        taken = [of[name][at[name] : end] for name, end in ends.items()]
        count, size = sum(map(len, taken)), sum(int(each.sum()) for each in taken)
        assert count > 0
        assert size <= limit or count == 1
        assert most is None or count <= most
        at.update(ends)
        for name, start, _ in backlog:  # there was no room for one more, of whichever queue
            if most is None and at[name] < len(of[name]):
                assert size + of[name][at[name]] > limit, (name, start)
    else:
        raise AssertionError("it does not end")


def test_bytes_of_many_messages_are_told_from_some() -> None:
    sizes = np.arange(1_000_000, dtype=np.int64) % 1000 + 100
    name = QueueName(".", "t", 0)
    seen = 0

    def look(_: QueueName, start: int, stop: int) -> Any:
        nonlocal seen
        seen += stop - start
        return sizes[start:stop]

    exact = int(sizes[5:900_000].sum())
    assert bytes_of(look, name, 5, 900_000, 1_000_000) == exact
    seen = 0
    assert bytes_of(look, name, 5, 900_000, 100) == pytest.approx(exact, rel=0.1)
    assert seen == 4096
    assert bytes_of(look, name, 5, 105, 10) == int(sizes[5:105].sum())
