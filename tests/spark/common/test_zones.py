"""Local times in a zone: the first of two, and past a gap, as Java and Spark have them."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from rmqstore.spark.common.zones import _SHORT, in_zone, zone_of  # noqa: E402

pytestmark = pytest.mark.spark

ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICRO = dt.timedelta(microseconds=1)


def slow(moment: dt.datetime, name: str) -> dt.datetime:
    return moment.replace(tzinfo=ZoneInfo(name), fold=0).astimezone(dt.UTC)


def converted(values: list[dt.datetime | None], name: str, unit: str = "us") -> list[object]:
    return in_zone(pa.array(values, pa.timestamp(unit)), zone_of(name)).to_pylist()


TIMES = st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1))


@given(st.sampled_from(ZONES), st.lists(st.none() | TIMES))
def test_any_times(name: str, values: list[dt.datetime | None]) -> None:
    assert converted(values, name) == [v and slow(v, name) for v in values]


@pytest.mark.parametrize("name", ZONES[:4])
@pytest.mark.parametrize("year", [1893, 2026, 2450])
def test_every_half_of_an_hour_of_a_year(name: str, year: int) -> None:
    half = dt.timedelta(minutes=30)
    values = [dt.datetime(year, 1, 1, 0, 7) + n * half for n in range(366 * 48)]
    assert converted(values, name) == [slow(v, name) for v in values]


@pytest.mark.parametrize(
    ("local", "utc"),
    [
        ("2026-03-29T01:59:59.999999", "2026-03-29T00:59:59.999999"),
        ("2026-03-29T02:00:00", "2026-03-29T01:00:00"),  # skipped: 03:00
        ("2026-03-29T02:30:00", "2026-03-29T01:30:00"),
        ("2026-03-29T03:00:00", "2026-03-29T01:00:00"),
        ("2026-10-25T02:30:00", "2026-10-25T00:30:00"),  # twice: the first
        ("2026-10-25T03:00:00", "2026-10-25T02:00:00"),
    ],
)
def test_the_nights_of_berlin(local: str, utc: str) -> None:
    value = dt.datetime.fromisoformat(local)
    wanted = dt.datetime.fromisoformat(f"{utc}+00:00")
    assert converted([None, value], "Europe/Berlin") == [None, wanted]
    assert (
        converted([value.replace(microsecond=0)], "Europe/Berlin", "ns")[0].replace(
            microsecond=wanted.microsecond
        )
        == wanted
    )


@pytest.mark.parametrize("ticks", [-(2**62), -70 * 10**15, 300 * 10**15, 2**62])
def test_years_that_python_has_none_of(ticks: int) -> None:
    array = pa.array([ticks], pa.int64()).cast(pa.timestamp("us"))
    (found,) = in_zone(array, zone_of("Asia/Kathmandu")).cast(pa.int64()).to_pylist()
    assert ticks - found == (20_476_000_000 if ticks < 0 else 20_700_000_000)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("Z", 0), ("UTC", 0), ("GMT", 0), ("+02:00", 7200), ("-3:30", -12600), ("UTC+8", 28800),
        ("GMT-01:00", -3600), ("+0530", 19800), ("-00:00:30", -30),
    ],
)  # fmt: skip
def test_offsets_as_spark_spells_them(name: str, seconds: int) -> None:
    local = dt.datetime(2026, 1, 1)
    assert converted([local], name) == [local.replace(tzinfo=dt.UTC) - dt.timedelta(0, seconds)]


@pytest.mark.parametrize(
    ("name", "long"),
    [("PST", "America/Los_Angeles"), ("CST", "America/Chicago"), ("IST", "Asia/Kolkata"),
     ("ECT", "Europe/Paris"), ("CNT", "America/St_Johns")],
)  # fmt: skip
def test_short_names_as_java_has_them(name: str, long: str) -> None:
    values: list[dt.datetime | None] = [dt.datetime(2026, month, 9, 2, 30) for month in (3, 7)]
    assert converted(values, name) == [v and slow(v, long) for v in values]


def test_all_short_names_are_zones() -> None:
    for name in _SHORT:
        zone_of(name)


@pytest.mark.parametrize("name", ["Europe/Atlantis", "", "../UTC", "PST/", "+99"])
def test_zones_that_are_not_there(name: str) -> None:
    with pytest.raises(ValueError, match=r"no time zone .* cast the column|timedelta"):
        zone_of(name)
