"""Tables that results print as, in a terminal and in a notebook."""

from __future__ import annotations

import pickle
from html.parser import HTMLParser
from pathlib import Path

import pytest

import rmqstore
from rmqstore.base.tables import TableMapping, html_table
from rmqstore.config.store_config import StoreConfig


def of(entries):
    return TableMapping(entries, ("name", "number"), dict.items)


class Cells(HTMLParser):
    """The texts of an HTML table, row by row; raises on tags that were not closed."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.open = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_a_mapping_prints_its_rows():
    assert repr(of({"a": 1, "long": 2_000})) == "name  number\na     1\nlong  2,000"
    assert repr(of({})) == "{}"


def test_it_is_a_mapping():
    made = of({"a": 1, "b": 2})
    assert made == {"a": 1, "b": 2}
    assert (made["b"], len(made), [*made], "c" in made) == (2, 2, ["a", "b"], False)
    assert made.get("c") is None
    with pytest.raises(TypeError):
        made["c"] = 3
    assert pickle.loads(pickle.dumps(made)) == made


def test_long_ones_are_cut():
    shown = repr(of({f"key {n}": n for n in range(1_031)})).splitlines()
    assert len(shown) == 1 + 30 + 1
    assert shown[-1] == "... 1,001 more"
    assert "<p>1,001 more</p>" in of(dict.fromkeys(map(str, range(1_031)), 0))._repr_html_()


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "a&b", "\x1b[31m", "\u202eabc", "x" * 999]
)
def test_names_are_made_harmless(name):
    made = of({name: 1})
    assert "\x1b" not in repr(made)
    assert "\u202e" not in repr(made)
    cells = Cells(made._repr_html_())
    assert cells.rows[0] == ["name", "number"]
    assert len(cells.rows[1][0]) <= 60
    if len(name) < 60 and name.isprintable():
        assert cells.rows[1] == [name, "1"]


def test_without_rows():
    assert Cells(html_table(("a",), [], caption="<none>")).rows == [["a"]]


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_store_shows_itself(tmp_path: Path, mode):
    path = tmp_path / "s"
    with rmqstore.open(path, "a", config=StoreConfig.small()) as store:
        store.create_topic("empty", 1)
        store.put_many("orders", [b"x"] * 8)
        with store.consumer("orders", group="billing") as consumer:
            next(iter(consumer))
            consumer.commit()
    with rmqstore.open(path, mode) as store:
        assert [*store.keys()] == [*store] == ["empty", "orders"]
        assert len(store) == 2
        assert {name: len(topic) for name, topic in store.items()} == {"empty": 1, "orders": 4}
        assert [*dict(store)] == [*store]
        assert Cells(store._repr_html_()).rows[2] == ["orders", "4", "6", "8"]
        assert Cells(store["orders"]._repr_html_()).rows[1] == ["0", "0", "2"]
        assert repr(store.groups).splitlines()[1].split() == ["billing", "orders", "16", "yes"]
        assert repr(store.offsets).splitlines()[1].split() == ["orders", "billing", "0", "1"]
        assert Cells(store.lag()._repr_html_()).rows[1][:4] == ["billing", "orders", "0", "1"]
        columns = Cells(store.scan("orders", columns=["topic", "queue_id"])._repr_html_()).rows[1:]
        assert columns == [["topic", "string"], ["queue_id", "int32"]]
    assert "closed" in store._repr_html_()


def test_a_store_without_topics_is_true(tmp_path: Path):
    with rmqstore.open(tmp_path / "s", "a", config=StoreConfig.small()) as store:
        assert len(store) == 0
        assert store
        assert "<table>" in store._repr_html_()
        assert store.lag()._repr_html_() == "<p>none</p>"
