"""Random schedules of the Spark sink's writers, which die at the steps of a commit."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rmqstore
from rmqstore.spark.sink.ledger import Ledger
from support import sink_driver
from support.sink_driver import Crash, killed, settings

# Steps of a commit before, within and after which a process may die.
COMMIT = [
    Crash(owner, name, when, count)
    for owner, name, whens, counts in (
        (rmqstore.MessageStore, "flush", ("before", "after"), (1, 2)),
        (Ledger, "begin", ("before", "after"), (1,)),
        (rmqstore.MessageStore, "put_table", ("before", "within", "after"), (1, 2, 3)),
        (Ledger, "seal", ("before", "after"), (1,)),
        (Ledger, "end", ("before", "after"), (1,)),
        (Ledger, "sweep", ("before",), (1,)),
        (Ledger, "discard", ("before", "after"), (1,)),
        (rmqstore.MessageStore, "close", ("before", "after"), (1,)),
    )
    for when in whens
    for count in counts
]


def parted(texts: Sequence[str], parts: int, seed: int) -> list[list[dict[str, Any]]]:
    """Rows in another order and in other partitions."""
    mixed = random.Random(seed).sample(texts, len(texts))
    return [[{"body": text.encode()} for text in mixed[at::parts]] for at in range(parts)]


def stored(root: Path) -> list[str]:
    """Bodies in the order of the log; the store is checked whole."""
    # With its sizes: the process may have died before there was an index file to tell them.
    config = root / "broker.conf"
    with rmqstore.open(root / "store", "a", config=config, verify="full") as store:
        table = store.scan(columns=["body", "uniq_key"]).to_table()
        keys = Counter(table["uniq_key"].to_pylist())
        twice = [key for key, count in keys.items() if count > 1]
        assert not twice, f"there twice: {twice}"
        return [body.decode() for body in table["body"].to_pylist()]


def put_foreign(root: Path, options: dict[str, str], text: str) -> None:
    with rmqstore.open(root / "store", "a", config=options["config"]) as store:
        store.put("foreign", text.encode())


class Schedule:
    """Two queries, batch jobs and a foreign writer on one store; some die, and try again."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.random = random.Random(seed)
        self.options = settings(root)
        self.batch = {"q1": 0, "q2": 0}
        self.open: dict[str, list[str]] = {}
        self.wanted: list[str] = []
        self.uncertain: list[list[str]] = []
        self.made = 0

    def texts(self, what: str) -> list[str]:
        count = self.random.randrange(0, 14)
        self.made += count
        return [f"{what} {i}" for i in range(self.made - count, self.made)]

    def parts(self, texts: list[str]) -> Any:
        return parted(texts, self.random.randrange(1, 4), self.random.randrange(1 << 30))

    def query(self, name: str, *, dies: bool) -> None:
        texts = self.open.setdefault(name, self.texts(name))
        parts = self.parts(texts)
        batch = self.batch[name]

        def work() -> None:
            sink_driver.write_stream(self.options, name, batch, parts)

        if dies and killed(self.random.choice(COMMIT), work):
            return
        if not dies:
            work()
        self.wanted += self.open.pop(name)
        self.batch[name] += 1

    def job(self, *, dies: bool) -> None:
        texts = self.texts("job")
        parts = self.parts(texts)
        if dies and killed(
            self.random.choice(COMMIT), lambda: sink_driver.write_batch(self.options, parts)
        ):
            self.uncertain.append(texts)
            return
        if not dies:
            sink_driver.write_batch(self.options, parts)
        self.wanted += texts

    def step(self) -> None:
        kind = self.random.choice(["q1", "q1", "q2", "q2", "job", "foreign", "lost"])
        dies = self.random.random() < 0.6
        if kind == "job":
            self.job(dies=dies)
        elif kind == "foreign":
            self.made += 1
            put_foreign(self.root, self.options, f"foreign {self.made}")
            self.wanted.append(f"foreign {self.made}")
        elif kind == "lost":  # a driver that dies before the commit
            name = self.random.choice(["q1", "q2"])
            texts = self.open.setdefault(name, self.texts(name))
            sink_driver.stage_stream(self.options, name, self.batch[name], self.parts(texts))
        else:
            self.query(kind, dies=dies)

    def run(self) -> None:
        for _ in range(5):
            self.step()
        for name in list(self.open):
            self.query(name, dies=False)
        sink_driver.write_batch(self.options, [[]])
        found = Counter(stored(self.root))
        for texts in self.uncertain:
            there = [text for text in texts if text in found]
            assert there in ([], texts), f"of {texts} there are {there}"
            self.wanted += there
        wanted = Counter(self.wanted)
        assert found == wanted, f"too many: {found - wanted}, missing: {wanted - found}"
