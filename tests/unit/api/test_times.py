"""Points in time: what callers write, what people type, what is shown."""

import datetime as dt
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.base.layout import INT64_MAX, INT64_MIN
from rmqstore.base.times import format_millis, parse_time, to_millis

pytestmark = pytest.mark.pure

UTC = dt.UTC
NOON = 1_767_268_800_000  # 2026-01-01T12:00:00Z


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("value", "millis"),
    [
        (0, 0),
        (NOON, NOON),
        (INT64_MAX, INT64_MAX),
        (INT64_MIN, INT64_MIN),
        ("2026-01-01T12:00:00Z", NOON),
        ("2026-01-01T13:00+01:00", NOON),
        ("2026-01-01 12:00:00.123456+00:00", NOON + 123),
        ("1969-12-31T23:59:59.9995Z", -1),
        (dt.datetime(2026, 1, 1, 12, tzinfo=UTC), NOON),
        (dt.datetime(2026, 1, 1, 4, tzinfo=dt.timezone(dt.timedelta(hours=-8))), NOON),
    ],
)
def test_to_millis(value: int | str | dt.datetime, millis: int) -> None:
    assert to_millis(value, name="begin") == millis


@pytest.mark.parametrize(
    "value",
    [
        dt.datetime(2026, 1, 1, 12),
        "2026-01-01T12:00:00",
        "2026-01-01",
        "soon",
        "",
        "-2h",
        1 << 63,
        -(1 << 63) - 1,
    ],
)
def test_what_is_no_point_in_time(value: int | str | dt.datetime) -> None:
    with pytest.raises(ValueError, match="begin must be "):
        to_millis(value, name="begin")


@pytest.mark.parametrize("value", [None, True, 1.5, b"2026", dt.date(2026, 1, 1)])
def test_wrong_type(value: object) -> None:
    with pytest.raises(TypeError, match="begin must be "):
        to_millis(value, name="begin")  # type: ignore[arg-type]


def test_like_an_integer() -> None:
    class Index:
        def __index__(self) -> int:
            return 7

    assert to_millis(Index(), name="begin") == 7


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("now", NOON),
        ("-90s", NOON - 90_000),
        ("-30m", NOON - 1_800_000),
        ("-2h", NOON - 7_200_000),
        ("-1d", NOON - 86_400_000),
        ("-2w", NOON - 14 * 86_400_000),
        ("-5ms", NOON - 5),
        (" 1767268800000 ", NOON),
        ("@17", 17),
        ("2026-01-01T12:00:00Z", NOON),
        ("2026-01-01T13:00:00+01:00", NOON),
    ],
)
@pytest.mark.parametrize("local", [False, True])
@pytest.mark.usefixtures("in_berlin")
def test_typed(text: str, millis: int, local: bool) -> None:
    assert parse_time(text, name="--from", now=NOON, local=local) == millis


@pytest.mark.parametrize(
    ("text", "local", "millis"),
    [
        ("2026-01-01T12:00:00", False, NOON),
        ("2026-01-01 12:00", False, NOON),
        ("2026-07-01", False, NOON + 181 * 86_400_000 - 12 * 3_600_000),
        ("2026-01-01T13:00:00", True, NOON),
        ("2026-01-01 13:00", True, NOON),
        ("2026-07-01", True, NOON + 181 * 86_400_000 - 14 * 3_600_000),
    ],
)
@pytest.mark.usefixtures("in_berlin")
def test_typed_without_a_zone(text: str, local: bool, millis: int) -> None:
    assert parse_time(text, name="--from", now=NOON, local=local) == millis


@pytest.mark.parametrize("text", ["", "2h", "-2y", "--1d", "yesterday", "2026-13-01", "-", "@"])
def test_typed_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"--from must be a time"):
        parse_time(text, name="--from")


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31T23:59:59"])
@pytest.mark.parametrize("local", [False, True])
@pytest.mark.usefixtures("in_berlin")
def test_typed_at_the_edges(text: str, local: bool) -> None:
    millis = parse_time(text, name="--from", local=local)
    assert format_millis(millis).startswith(("0", "9", "+1", "-"))


def test_now_is_now() -> None:
    before = int(time.time() * 1000)
    assert before <= parse_time("now", name="--from") <= time.time() * 1000


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (NOON + 7, "2026-01-01T12:00:00.007Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "+10000-01-01T00:00:00.000Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (-62_135_596_800_001, "0000-12-31T23:59:59.999Z"),
        (INT64_MAX, "+292278994-08-17T07:12:55.807Z"),
        (INT64_MIN, "-292275055-05-16T16:47:04.192Z"),
    ],
)
def test_shown(millis: int, text: str) -> None:
    assert format_millis(millis) == text


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (NOON + 7, "2026-01-01T13:00:00.007+01:00"),
        (NOON + 181 * 86_400_000 - 1, "2026-07-01T13:59:59.999+02:00"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (INT64_MIN, "-292275055-05-16T16:47:04.192Z"),
    ],
)
@pytest.mark.usefixtures("in_berlin")
def test_shown_in_local_time(millis: int, text: str) -> None:
    assert format_millis(millis, local=True) == text


def test_shown_in_local_time_that_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC0")
    time.tzset()
    assert format_millis(NOON, local=True) == "2026-01-01T12:00:00.000Z"
    monkeypatch.undo()
    time.tzset()


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_shown_time_is_read_back(millis: int) -> None:
    assert to_millis(format_millis(millis), name="time") == millis
    for local in (False, True):
        shown = format_millis(millis, local=local)
        assert parse_time(shown, name="time", local=not local) == millis
