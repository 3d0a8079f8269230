"""Work of SQL92 filters: linear in expression and properties, and done in slices."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rmqstore
from rmqstore import GetResult, GetStatus, MessageStore, StoreClosedError, _core
from rmqstore._core import PullFilter

EXPRESSION = 64 << 10  # characters that a client may send
PROPERTIES = 32_000  # bytes
MILLISECONDS = 50  # of processor time for a message; a few where the machine is quiet
COUNT = 300
COSTLY = " AND TRUE" * 200_000  # changes no outcome, and has 600,000 steps
NOTHING = "n < 0" + " OR FALSE" * 200_000  # which all run


def stored(**properties: bytes) -> bytes:
    return b"\x02".join(name.encode() + b"\x01" + value for name, value in properties.items())


def any_of(term: str) -> str:
    return " OR ".join([term] * ((EXPRESSION + 4) // (len(term) + 4)))


def colliding(count: int) -> list[str]:
    """Words of one slot in a table of 4,096 that FNV-1a fills, as any client can find them."""
    letters = np.random.default_rng(5).integers(97, 123, (7, 5000 * count), dtype=np.uint8)
    code = np.full(letters.shape[1], 2166136261, dtype=np.uint32)
    for row in letters:
        code = (code ^ row) * np.uint32(16777619)
    code ^= code >> np.uint32(15)
    words = {bytes(word).decode() for word in letters[:, code & 0xFFF == 0].T}
    return sorted(words)[:count]


ONES = b"1" * (PROPERTIES // 2 - 10)
CROSSES = b"x" * (PROPERTIES // 2 - 10)
BROKEN = b"\xff" * (PROPERTIES // 2 - 10)

CASES = {
    "int": (any_of("a=5"), stored(a=b"0" * (PROPERTIES - 2) + b"1")),
    "long": (any_of("a=5555555555"), stored(a=b"0" * (PROPERTIES - 2) + b"1")),
    "double": (any_of("a=5.5"), stored(a=b"0x" + b"0" * (PROPERTIES - 10) + b"p1")),
    "blanks": (any_of("a=5.5"), stored(a=b" " * (PROPERTIES - 2) + b"1")),
    "two doubles": (any_of("a>b"), stored(a=ONES, b=b"2" + ONES)),
    "between": (any_of("a BETWEEN b AND 1"), stored(a=ONES, b=ONES)),
    "literal": (any_of("a='x'"), stored(a=b"x" * (PROPERTIES - 2))),
    "texts": (any_of("a=b"), stored(a=CROSSES + b"1", b=CROSSES + b"2")),
    "same texts": (any_of("a<>b"), stored(a=CROSSES, b=CROSSES)),
    "broken texts": (any_of("a=b"), stored(a=BROKEN + b"1", b=BROKEN + b"2")),
    "same broken texts": (any_of("a<>b"), stored(a=BROKEN, b=b"\xfe" + BROKEN[1:])),
    "broken at the end": (any_of("a=b"), stored(a=CROSSES + b"\xff", b=CROSSES + b"\xfe1")),
    "in": (any_of("a IN('','b','c','d','e','f','g','h','i')"), stored(a=CROSSES)),
    "in, broken": (any_of("a IN('x')"), stored(a=CROSSES + b"\xff")),
    "in, one long": (
        "a IN('" + "x" * 16_000 + "'," + ",".join(f"'{n:x}'" for n in range(7000)) + ")",
        stored(a=CROSSES + b"\xff"),
    ),
    "null": (any_of("a IS NULL"), stored(a=ONES)),
    "names": (
        any_of("a=1")[: 32 << 10].rpartition(" OR ")[0],
        b"\x02".join(b"%x\x01v" % number for number in range(5000)),
    ),
}  # fmt: skip


def milliseconds(sql: str, properties: bytes) -> float:
    """Processor time of one message, the least of three."""
    assert len(sql) <= EXPRESSION
    assert len(properties) < 1 << 15
    _core._sql_matches(sql, b"")  # compiled
    took = []
    for _ in range(3):
        began = time.thread_time()
        _core._sql_matches(sql, properties)
        took.append(time.thread_time() - began)
    return min(took) * 1000


@pytest.mark.parametrize("case", CASES)
def test_each_conversion_is_made_once(case: str) -> None:
    assert milliseconds(*CASES[case]) < MILLISECONDS


def test_names_in_one_slot() -> None:
    """A client chooses them; nobody knows how they are hashed."""

    def seconds(words: list[str]) -> float:
        properties = b"\x02".join(f"{word}\x011".encode() for word in words)
        took = []
        for n in range(3):
            began = time.thread_time()
            _core._sql_matches(f"{'='.join(words)} OR {n} = 0", properties)
            took.append(time.thread_time() - began)
        return min(took)

    plain = [f"abc{number:04}" for number in range(2000)]
    chosen = colliding(2000)
    assert len(chosen) > 1900
    assert seconds(chosen) < 10 * seconds(plain)


def test_what_was_compared_before_does_not_count_for_the_next_message() -> None:
    long = "x" * 100
    sql = f"a = '{long}' OR b = a OR c = 5 OR a > 7"
    for _ in range(2):
        assert _core._sql_matches(sql, stored(a=long.encode()))
        assert not _core._sql_matches(sql, stored(a=b"y" * 100, b=b"z" * 100, c=b"6"))
        assert _core._sql_matches(sql, stored(a=b"y" * 100, b=b"y" * 100))
        assert _core._sql_matches(sql, stored(a=b"1", c=b"5"))
        assert _core._sql_matches(sql, stored(a=b"8"))
        assert not _core._sql_matches(sql, stored(a=b"6"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("work") / "store"
    with rmqstore.open(path, "a", config=rmqstore.StoreConfig.small()) as store:
        for n in range(COUNT):
            store.put("t", b"%d" % n, queue_id=0, tags="ab"[n % 2], properties={"n": str(n)})
    return path


@pytest.fixture(params=["r", "r+"])
def store(request: pytest.FixtureRequest, root: Path) -> Iterator[MessageStore]:
    with rmqstore.open(root, request.param) as opened:
        yield opened


def summary(got: GetResult) -> tuple[object, ...]:
    offsets = [message.queue_offset for message in got.messages]
    return got.status, offsets, got.next_offset, got.min_offset, got.max_offset


@pytest.mark.parametrize(
    ("sql", "tags", "offset", "most", "most_bytes"),
    [
        ("n > 10", None, 0, 20, None),
        ("n > 1000", None, 5, 32, None),
        ("n > 290", "a", 0, 1000, None),
        ("n > 20", None, 3, 100, 1000),
        ("n = 299", None, 298, 1, None),
        ("n = 5", None, COUNT, 1, None),
        ("n = 5", None, COUNT + 1, 1, None),
    ],
)
def test_get_goes_on(
    store: MessageStore, sql: str, tags: str | None, offset: int, most: int, most_bytes: int | None
) -> None:
    """What a costly filter finds is what the same filter finds without its costs."""
    wanted = store.get("t", 0, offset, most, max_bytes=most_bytes, tags=tags, sql=sql)
    got = store.get("t", 0, offset, most, max_bytes=most_bytes, tags=tags, sql=f"({sql}){COSTLY}")
    assert summary(got) == summary(wanted)


def test_a_scan_goes_on(store: MessageStore) -> None:
    sql = f"(n >= 20 AND n < 60){COSTLY}"
    for where in (("t", 0), ("t",), ()):
        scan = store.scan(*where, columns=["queue_offset"], sql=sql)
        assert scan.to_table()["queue_offset"].to_pylist() == list(range(20, 60))
    assert [message.queue_offset for message in store.scan("t", sql=sql)] == list(range(20, 60))


def test_a_pull_pauses(root: Path) -> None:
    """It has what was found so far; the next one begins behind what was examined."""
    made = PullFilter(None, f"(n = 40 OR n = 41){COSTLY}")
    with rmqstore.open(root, "r+") as store:
        offset, rounds, found = 0, 0, 0
        while offset < COUNT:
            status, following, least, end, count, _ = store.core.pull(
                "t", 0, offset, 32, 1 << 18, made
            )
            assert offset < following <= min(offset + 2, COUNT)  # 600,000 of 1,048,576 a message
            assert status is (GetStatus.FOUND if count else GetStatus.NO_MATCHED_MESSAGE)
            assert (least, end) == (0, COUNT)
            offset, rounds, found = following, rounds + 1, found + count
    assert (rounds, found) == (COUNT // 2, 2)


def test_bodies_are_work_too(tmp_path: Path) -> None:
    """A pull that wants nothing does not read all of a queue of large messages."""
    with rmqstore.open(tmp_path / "store", "a") as store:
        for _ in range(12):
            store.put("t", bytes(3 << 20), queue_id=0, tags="a")
        made = PullFilter(None, "n = 5")
        assert store.core.pull("t", 0, 0, 32, 1 << 18, made)[1] == 6
        assert store.get("t", 0, 0, sql="n = 5").next_offset == 12


LETTERS = "\u00e9" * 31  # 62 bytes
TEXTS = {
    "short": ("x", "y", any_of("a=b")),
    "two properties": (LETTERS + "y", LETTERS + "z", any_of("a=b")),
    "a literal": (LETTERS + "y", "y", any_of(f"a='{LETTERS}z'")),
    "replaced": ("\ufffd" * 63 + "y", "\u00e9" * 31 + "z", any_of("a=b")),
}


@pytest.mark.parametrize("case", TEXTS)
def test_a_look_that_compares_texts_takes_milliseconds(tmp_path: Path, case: str) -> None:
    """A step that decodes two texts is more work than one that compares two numbers."""
    one, other, sql = TEXTS[case]
    made = PullFilter(None, sql)
    took = []
    with rmqstore.open(tmp_path / "store", "a") as store:
        for _ in range(400):
            store.put("t", b"x", queue_id=0, properties={"a": one, "b": other})
        for _ in range(3):
            began = time.thread_time()
            assert store.core.pull("t", 0, 0, 32, 1 << 18, made)[4] == 0
            took.append(time.thread_time() - began)
    assert min(took) * 1000 < MILLISECONDS / 2


class StoppedError(Exception):
    """By the alarm."""


def test_get_is_interrupted(root: Path) -> None:
    def stop(*_: object) -> None:
        raise StoppedError

    with rmqstore.open(root) as store:
        store.get("t", 0, 0, sql=NOTHING)  # compiled
        began = time.process_time()
        store.get("t", 0, 0, sql=NOTHING)
        whole = time.process_time() - began
        before = signal.signal(signal.SIGPROF, stop)
        began = time.process_time()
        try:
            signal.setitimer(signal.ITIMER_PROF, whole / 20)
            with pytest.raises(StoppedError):
                store.get("t", 0, 0, sql=NOTHING)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
        assert time.process_time() - began < whole / 2


def test_closing_ends_a_get(root: Path) -> None:
    outcome: list[object] = []
    store = rmqstore.open(root)

    def get() -> None:
        try:
            while True:
                outcome.append(store.get("t", 0, 0, sql=NOTHING))
        except StoreClosedError as error:
            outcome.append(error)

    thread = threading.Thread(target=get)
    thread.start()
    store.close()
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(outcome[-1], StoreClosedError)
    assert len(outcome) <= 2
