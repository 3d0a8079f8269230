"""Tag expressions: what is one, what is refused, and any number of tags."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from rmqstore import FilterError
from rmqstore.filters import check_filter, message_passes

TAGS = [f"tag-{n}" for n in range(300)]


@pytest.mark.parametrize(
    ("tags", "position", "found"),
    [
        ("a |", 2, "a single '|'"),
        ("a|b", 1, "a single '|'"),
        ("|", 0, "a single '|'"),
        ("a ||| b", 4, "a single '|'"),
        ("paid && x", 5, "'&&'"),
        ("paid&&x", 4, "'&&'"),
        ("amount > 5", 7, "'>'"),
        ("a ||  b <> c", 8, "'<>'"),
        ("\u503c || \U0001f680 = x", 7, "'='"),
        (" || ", 0, "no tag in"),
    ],
)
def test_what_is_no_tag_expression(tags: str, position: int, found: str) -> None:
    with pytest.raises(FilterError) as refused:
        check_filter(tags=tags)
    assert found in refused.value.message
    assert refused.value.position == position
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "tags", ["*", "", " ", "a", "a||b", "a || ", "\ta\n||b ", "a&b", "a>5", "a\tb", "\x00a"]
)
def test_what_is_one(tags: str) -> None:
    check_filter(tags=tags)


@pytest.mark.parametrize("count", [1, 8, 9, 64, 65, 300])
def test_so_many_tags(tmp_path: Path, count: int) -> None:
    config = rmqstore.StoreConfig.small()
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        store.put_many("t", [b"x"] * len(TAGS), tags=TAGS, queue_id=0)
        store.put("t", b"x", tags="Aa", queue_id=0)
        store.put("t", b"x", tags="BB", queue_id=0)  # has the hash of Aa
        chosen = [*TAGS[-count:], "Aa", "Aa"]
        expression = " || ".join(chosen)
        wanted = set(chosen)
        for mode in ("own", "r"):
            reader = store if mode == "own" else rmqstore.open(tmp_path / "s")
            found = []
            offset = 0
            while offset < reader["t"][0].max_offset:
                got = reader.get("t", 0, offset, 500, tags=expression)
                found += [message.tags for message in got.messages]
                offset = got.next_offset
            assert len(found) == len(wanted)
            assert set(found) == wanted
            assert {m.tags for m in reader.scan("t", 0, tags=expression)} == wanted
            assert reader.scan(tags=expression).count() == len(wanted)
            for message in reader["t"][0]:
                passes = message_passes(message, tags=expression)
                assert passes == (message.tags in wanted)
        reader.close()
