"""SQL92 and tag filters: ours and the real broker's pick the same messages.

``RMQSTORE_INTEROP_SEED`` repeats a run's expressions; ``RMQSTORE_INTEROP_ROUNDS`` makes it longer.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqstore
from interop.broker import Broker
from rmqstore import _core
from support.sql_texts import NAMES, Texts

pytestmark = pytest.mark.long

Count = Callable[[str, int], None]
ROUNDS = int(os.environ.get("RMQSTORE_INTEROP_ROUNDS", "1"))
PARSED = 6000 * ROUNDS  # texts, half of them broken ones
STORED = 10  # properties strings for each
PULLED = 600 * ROUNDS  # expressions through a broker
PUSHED = 6
MESSAGES = 300
QUEUES = 2
TAGS = ["paid", "shipped", "Aa", "BB", "\u6807\u7b7e", None]
TAG_EXPRESSIONS = [
    *("paid", "paid || shipped", "Aa", "*", "nothing", " BB||paid ", "paid || ", "\u6807\u7b7e"),
    " || ".join([*(f"t{n}" for n in range(200)), "Aa", "paid"]),
]
PUSH_TIMEOUT = 60.0


@pytest.fixture(scope="module")
def broker(java: None) -> Iterator[Broker]:
    with Broker() as running:
        yield running


def test_the_same_texts_are_refused(broker: Broker, seed: str, compared: Count) -> None:
    source = random.Random(f"{seed} parsed")
    texts = Texts(source)
    cases = [
        (texts.expression() if n % 2 else texts.broken(), [texts.stored() for _ in range(STORED)])
        for n in range(PARSED)
    ]
    counts = [0, 0]
    passed = 0
    for (text, stored), outcome in zip(cases, broker.filters_evaluate(cases), strict=True):
        try:
            ours = "".join(str(int(_core._sql_matches(text, each))) for each in stored)
        except rmqstore.FilterError:
            ours = "refused"
        assert ours == outcome, (text, stored)
        counts[ours == "refused"] += 1
        passed += ours.count("1")
    assert min(counts) > PARSED // 8
    assert passed > PARSED
    compared("9 filters parsed or refused", sum(counts))
    compared("9 filters evaluated over properties", counts[0] * STORED)


@pytest.fixture(scope="module")
def written(
    broker: Broker, seed: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, list[str]]]:
    """A store that a broker still writes, and expressions that name its properties."""
    path = tmp_path_factory.mktemp("filters") / "store"
    source = random.Random(f"{seed} pulled")
    texts = Texts(source)
    broker.start(path, {}, {})
    broker.topics({"orders": QUEUES})
    messages = [
        {
            "topic": "orders",
            "queue_id": n % QUEUES,
            "body": b"%d" % n,
            "tags": source.choice(TAGS),
            "properties": {k: v for k, v in texts.properties().items() if k in NAMES},
        }
        for n in range(MESSAGES)
    ]
    assert {sent.status for sent in broker.send(messages)} == {"SEND_OK"}
    expressions: list[str] = []
    while len(expressions) < PULLED:
        text = texts.expression()
        try:
            _core._sql_matches(text, b"")
        except rmqstore.FilterError:
            continue
        expressions.append(text)
    yield path, expressions
    broker.shutdown()


def ours(store: rmqstore.MessageStore, **filters: str) -> set[tuple[int, int]]:
    """Queue id and queue offset of what passes, as ``get`` finds it."""
    found = set()
    for queue_id in range(QUEUES):
        offset = 0
        while True:
            got = store.get("orders", queue_id, offset, 32, **filters)
            found |= {(m.queue_id, m.queue_offset) for m in got.messages}
            if got.next_offset >= got.max_offset:
                break
            offset = got.next_offset
    return found


def test_pulled_through_the_broker(
    broker: Broker, written: tuple[Path, list[str]], compared: Count
) -> None:
    path, expressions = written
    theirs = broker.filters_pull("orders", expressions)
    some = 0
    with rmqstore.open(path) as store:
        for text, found in zip(expressions, theirs, strict=True):
            assert ours(store, sql=text) == found, text
            assert store.scan("orders", sql=text).count() == len(found), text
            some += 0 < len(found) < MESSAGES
    assert some > PULLED // 4
    compared("9 filters through a broker", len(expressions))
    compared("9 messages asked by them", len(expressions) * MESSAGES)


def test_pushed_by_the_broker(
    broker: Broker, written: tuple[Path, list[str]], compared: Count
) -> None:
    path, expressions = written
    subscriptions: list[tuple[str, dict[str, str]]] = []
    with rmqstore.open(path) as store:
        chosen = [text for text in expressions if 0 < len(ours(store, sql=text)) < MESSAGES]
        subscriptions += [("sql", {"sql": text}) for text in chosen[:PUSHED]]
        subscriptions += [("tags", {"tags": text}) for text in TAG_EXPRESSIONS]
        for number, (kind, filters) in enumerate(subscriptions):
            text = filters[kind]
            tags, sql = ({"orders": text}, {}) if kind == "tags" else ({}, {"orders": text})
            broker.consumer_start(f"pushed-{number}", tags, sql)
        for number, (_, filters) in enumerate(subscriptions):
            wanted = ours(store, **filters)
            found: set[tuple[int, int]] = set()
            until = time.monotonic() + PUSH_TIMEOUT
            while found != wanted and time.monotonic() < until:
                rows = broker.consumer_rows(f"pushed-{number}")
                found |= {(row.queue_id, row.queue_offset) for row in rows}
                time.sleep(0.05)
            found |= {
                (row.queue_id, row.queue_offset) for row in broker.consumer_stop(f"pushed-{number}")
            }
            assert found == wanted, filters
    compared("9 filters pushed by a broker", len(subscriptions))
