"""``on_corruption="skip"`` of ``Topic.messages`` and of consumers: all but the damaged ones."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rmqstore

pytestmark = pytest.mark.pure

CONFIG = rmqstore.StoreConfig.small()
COUNT = 600  # more than a batch in each queue


def made(root: Path, damaged: set[int]) -> list[rmqstore.Message]:
    """Make a store of two queues; return its good messages.

    The last one is good: after it a kill's torn tail would be recovered.
    """
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.create_topic("t", 2)
        for number in range(COUNT):
            store.put("t", b"%d" % number, queue_id=number % 2, tags="ab"[number % 3 == 0])
        every = list(store["t"].messages())
    (log,) = (root / "commitlog").iterdir()
    with log.open("r+b") as file:
        for number in damaged:
            file.seek(every[number].physical_offset + 88)  # the body
            file.write(b"#")
    return [one for number, one in enumerate(every) if number not in damaged]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sets(st.integers(0, COUNT - 2), max_size=12), st.sampled_from(("r", "r+")))
def test_all_but_the_damaged(
    tmp_path_factory: pytest.TempPathFactory, damaged: set[int], mode: Literal["r", "r+"]
) -> None:
    root = tmp_path_factory.mktemp("store")
    good = made(root, damaged)
    with rmqstore.open(root, mode) as store:
        assert list(store["t"].messages(on_corruption="skip")) == good
        for tags in (None, "a"):
            group = f"g{tags}"
            with store.consumer("t", group=group, tags=tags, on_corruption="skip") as consumer:
                found = sorted(consumer, key=lambda one: one.physical_offset)
                if mode == "r+":
                    consumer.commit()
            assert found == [one for one in good if tags in (None, one.tags)]
            if mode == "r+":
                assert store.offsets["t", group] == {0: COUNT // 2, 1: COUNT // 2}


def test_by_default_it_is_an_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made(tmp_path, {7})
    with rmqstore.open(tmp_path) as store:
        with pytest.raises(rmqstore.StoreCorruptError):
            list(store["t"].messages())
        with store.consumer("t", group="g") as consumer, pytest.raises(rmqstore.StoreCorruptError):
            list(consumer)
        with caplog.at_level(logging.WARNING, "rmqstore"):
            with store.consumer("t", group="g", on_corruption="skip") as consumer:
                assert len(list(consumer)) == COUNT - 1
            assert "group g passes over a damaged message" in caplog.text


def test_refused(tmp_path: Path) -> None:
    made(tmp_path, set())
    with rmqstore.open(tmp_path) as store:
        with pytest.raises(ValueError, match="on_corruption must be"):
            store["t"].messages(on_corruption="stop")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="on_corruption must be"):
            store.consumer("t", group="g", on_corruption="stop")  # type: ignore[arg-type]
