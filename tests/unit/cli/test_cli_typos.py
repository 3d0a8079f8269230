"""Names that there are not: exit code 1, and a line with the nearest."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from rmqstore.config import StoreConfig
from support.command_line import Run, one_line


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("typos") / "store"
    with rmqstore.open(root, "a", config=StoreConfig.small()) as store:
        for queue_id in range(4):
            store.put("orders", b"x", keys="k1", queue_id=queue_id)
        store.put("payments", b"x", queue_id=7)
    return root


@pytest.mark.parametrize(
    "verb",
    [["cat"], ["cat", "-q", "0"], ["cat", "-f", "%t\n"], ["find", "--key", "k1"], ["queues"]],
    ids="-".join,
)
def test_a_topic_that_is_mistyped(run: Run, shop: Path, verb: list[str]) -> None:
    said = one_line(run(verb[0], shop, *verb[1:], "-t", "order"), 1)
    assert said == "rmqstore: no topic 'order'; did you mean 'orders'?\n"
    assert "'orders'" in one_line(run(verb[0], shop, *verb[1:], "-t", "Orders"), 1)
    far = one_line(run(verb[0], shop, *verb[1:], "-t", "zzz"), 1)
    assert far == "rmqstore: no topic 'zzz'; there are orders, payments\n"


def test_a_queue_that_there_is_not(run: Run, shop: Path) -> None:
    said = one_line(run("cat", shop, "-t", "orders", "-q", 9), 1)
    assert said == "rmqstore: no queue 9 in topic 'orders'; it has queues 0 to 3\n"
    said = one_line(run("cat", shop, "-t", "payments", "-q", 9), 1)
    assert "no queue 9 in topic 'payments'; it has queues 0, 1, 2, 3, 7" in said


def test_an_id_and_a_key_that_there_are_not(run: Run, shop: Path) -> None:
    assert "no message 'nothing'" in one_line(run("get", shop, "nothing"), 1)
    assert "has the key 'k9'" in one_line(run("find", shop, "--key", "k9"), 1)


def test_a_store_without_topics(run: Run, tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=StoreConfig.small()):
        pass
    said = one_line(run("cat", tmp_path / "store", "-t", "orders"), 1)
    assert said == "rmqstore: no topic 'orders'; there is no topic at all\n"


def test_following_a_topic_that_is_mistyped_ends_at_once(run: Run, shop: Path) -> None:
    assert "did you mean 'orders'?" in one_line(run("cat", shop, "-t", "order", "--follow"), 1)
