"""``grep`` leaves out no message that matches, whatever it searches before it makes messages."""

from __future__ import annotations

import re
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from rmqstore import toolbox
from rmqstore.toolbox.search import Search

pytestmark = pytest.mark.pure

LOG_SIZE = 4 << 10
COMPRESSED = 1
CHARS = "abAB=\n .|iI\u0131\u0130kK\u212as\u017f\u00e9\u00c9\u6d88\ufffd"

texts = st.text(CHARS, max_size=90)
bodies = st.one_of(texts.map(str.encode), st.binary(max_size=60), st.sampled_from([b"\xe9", b"a"]))
names = st.sampled_from(["a", "ab", "a=b", "TAGS", "\u6d88"])


@dataclass
class Row:
    """A message as it is put; a stream of a wrong length cannot be inflated."""

    topic: str
    body: bytes
    stored: str
    properties: dict[str, str]

    def record(self) -> bytes:
        body = self.body if self.stored == "plain" else zlib.compress(self.body)
        if self.stored == "broken":
            body = body[:-1]
        flag = 0 if self.stored == "plain" else COMPRESSED
        return rmqstore.encode_record(self.topic, body, sys_flag=flag, properties=self.properties)

    def has(self, text: str, properties: bool) -> bool:
        shown = "\n".join(f"{name}={value}" for name, value in self.properties.items())
        body = zlib.compress(self.body)[:-1] if self.stored == "broken" else self.body
        return text.encode() in body or (properties and text in shown)


rows_of = st.lists(
    st.builds(
        Row,
        st.sampled_from(["ab", "other"]),
        bodies,
        st.sampled_from(["plain", "plain", "deflated", "broken"]),
        st.dictionaries(names, st.text(CHARS, min_size=1, max_size=9), max_size=3),
    ),
    min_size=1,
    max_size=60,
)
pieces = st.text(CHARS, max_size=4)
escapes = st.sampled_from([r"\b", r"\xe9", r"\u00e9", r"\.", "a?", "b*", "(ab)?", "[ab]+", "a{2}"])
expressions = st.lists(pieces.map(re.escape) | escapes, min_size=1, max_size=4).map("".join)
patterns = st.one_of(
    st.tuples(st.just(True), pieces | texts | st.just("a" * 70)),
    st.tuples(st.just(False), expressions | st.lists(expressions, max_size=2).map("|".join)),
    st.tuples(st.just(False), expressions.map("(?i)".__add__)),
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("search") / "store"


def write(root: Path, rows: list[Row]) -> None:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    with rmqstore.CommitLog(root / "commitlog", file_size=LOG_SIZE, mode="a") as log:
        log.append([row.record() for row in rows])


def seen(messages: Any) -> list[object]:
    """Return the offsets of messages, and the error behind them."""
    found: list[object] = []
    try:
        for message in messages:
            found.append(message.physical_offset)
    except rmqstore.StoreError as error:
        found.append((type(error), str(error)))
    return found


@given(rows_of, st.data())
def test_a_text_is_found_in_the_messages_that_have_it(
    root: Path, rows: list[Row], data: st.DataObject
) -> None:
    write(root, rows)
    own = st.sampled_from([row.body.decode("utf-8", "ignore") for row in rows])
    text = data.draw(own.flatmap(lambda body: st.just(body[:2]) | st.just(body[-9:])) | pieces)
    for properties in (False, True):
        expected = [n for n, row in enumerate(rows) if row.has(text, properties)]
        with rmqstore.open(root) as store:
            offsets = [message.physical_offset for message in store.scan()]
        found = toolbox.grep(root, text, fixed=True, properties=properties)
        assert [offsets.index(one.physical_offset) for one in found] == expected


@given(
    rows_of,
    patterns,
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, "ab"]),
    st.lists(st.tuples(st.integers(0, 3 * LOG_SIZE), st.binary(min_size=1, max_size=30))),
    st.sampled_from([None, 1, 300]),
)
def test_all_that_match_are_found_and_damage_is_met_at_the_same_place(
    root: Path,
    rows: list[Row],
    pattern: tuple[bool, str],
    ignore_case: bool,
    properties: bool,
    topic: str | None,
    wounds: list[tuple[int, bytes]],
    cut: int | None,
) -> None:
    write(root, rows)
    files = sorted((root / "commitlog").iterdir())
    for at, wound in wounds:
        with files[at // LOG_SIZE % len(files)].open("r+b") as file:
            file.seek(at % LOG_SIZE)
            file.write(wound[: LOG_SIZE - at % LOG_SIZE])
    if cut is not None:
        with files[-1].open("r+b") as file:
            file.truncate(LOG_SIZE - cut)
    fixed, text = pattern
    for policy in ("raise", "skip"):
        search = Search(text, fixed, ignore_case, properties, topic, None, None, policy)
        matches = search.matcher()
        with rmqstore.open(root) as store:
            every = store.scan(topic, on_corruption=policy, on_removed="skip")
            expected = seen(message for message in every if matches(message))
            assert seen(filter(matches, search.messages(store))) == expected


def test_no_other_character_has_a_letter_of_ascii_as_its_other_case() -> None:
    """But those that :mod:`re` knows beside Unicode's cases."""
    others = "".join(map(chr, range(0x80, 0xD800))) + "".join(map(chr, range(0xE000, 0x110000)))
    assert re.findall("[a-z]", others, re.IGNORECASE) == ["\u0130", "\u0131", "\u017f", "\u212a"]
    letters = "".join(set("abcdefghijklmnopqrstuvwxyz") - set("iks"))
    assert not re.findall(f"[{letters}]", others, re.IGNORECASE)
