"""Random stores: an extract has the chosen messages in their order, and differs in nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rmqstore
from rmqstore import toolbox

pytestmark = pytest.mark.pure

NAMES = ("a", "b", "%RETRY%g")
CONFIG = rmqstore.StoreConfig.small().replace(
    mapped_file_size_commit_log=1 << 14, mapped_file_size_consume_queue=400
)
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(NAMES), st.integers(0, 2), st.binary(max_size=3000), st.sampled_from("xyz")
    ),
    max_size=60,
)


@settings(max_examples=6, deadline=None)
@given(
    messages=MESSAGES,
    topics=st.sets(st.sampled_from(NAMES), min_size=1),
    bounds=st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
def test_equal_messages(
    messages: list[tuple[str, int, bytes, str]], topics: set[str], bounds: tuple[int, int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, out = Path(folder, "store"), Path(folder, "out")
        with rmqstore.open(root, "a", config=CONFIG) as store:
            for name in NAMES:
                store.create_topic(name, 3)
            for topic, queue_id, body, tags in messages:
                store.put(topic, body, queue_id=queue_id, tags=tags, keys=f"k{len(body)}")
            times = sorted(one.store_timestamp for one in store.scan()) or [0]
        since, until = (times[min(at, len(times) - 1)] for at in bounds)
        toolbox.extract(root, out, topics, since=since, until=until)
        with rmqstore.open(root) as old, rmqstore.open(out, "r+") as new:
            expected = list(old.scan(topics, since=since, until=until))
            assert new.recovery.clean
            assert [(one.topic, one.queue_id, one.body, one.properties) for one in new.scan()] == [
                (one.topic, one.queue_id, one.body, one.properties) for one in expected
            ]
            for topic in topics:
                for queue_id, queue in new[topic].items():
                    mine = [
                        one for one in expected if (one.topic, one.queue_id) == (topic, queue_id)
                    ]
                    assert [one.body for one in queue[:]] == [one.body for one in mine]
            for one in expected:
                found = new.query(one.topic, f"k{len(one.body)}")
                assert one.body in [other.body for other in found]
        whole = Path(folder, "whole")
        toolbox.extract(root, whole, NAMES)
        assert list(toolbox.difference(root, whole, full=True)) == []
