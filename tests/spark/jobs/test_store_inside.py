"""Sinks and jobs make nothing inside a store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.errors import StoreError
from rmqstore.spark import rebuild
from rmqstore.spark.common.options import OptionError
from rmqstore.spark.jobs.new_store import DestinationError, new_store
from rmqstore.spark.sink.writers import BatchWriter, StreamWriter
from support import sink_driver

pytestmark = pytest.mark.spark

PLACES = ["commitlog", "consumequeue/orders/0", "consumequeue/new/0", "index", "config/deep/er"]
REFUSALS = (OptionError, DestinationError, ValueError, StoreError)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("inside") / "store"
    with rmqstore.open(made, "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("orders", b"x", queue_id=0, keys="k")
    return made


def appended(place: Path, root: Path) -> Any:
    BatchWriter({"path": str(place), "topic": "orders"}, sink_driver.schema(), False)


def overwritten(place: Path, root: Path) -> Any:
    options = {"path": str(place), "topic": "orders", "allowoverwrite": "true"}
    BatchWriter(options, sink_driver.schema(), True)


def streamed(place: Path, root: Path) -> Any:
    StreamWriter({"path": str(place), "topic": "orders"}, sink_driver.schema(), False)


def made_anew(place: Path, root: Path) -> Any:
    with new_store(place):
        pass


def rebuilt(place: Path, root: Path) -> Any:
    other = root.with_name("other")
    with rmqstore.open(other, "a", config=rmqstore.StoreConfig.small()):
        pass
    no_session: Any = None
    for source in (root, other):
        with pytest.raises(ValueError, match="dst must not be within"):
            rebuild(no_session, source, place)
    rebuild(no_session, other, place)


def files(root: Path) -> dict[Path, bytes | None]:
    return {one: one.read_bytes() if one.is_file() else None for one in root.rglob("*")}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("make", [appended, overwritten, streamed, made_anew, rebuilt])
@pytest.mark.parametrize("by_link", [False, True])
def test_nothing_is_made_inside_a_store(
    root: Path, tmp_path: Path, place: str, make: Callable[[Path, Path], Any], by_link: bool
) -> None:
    above = root
    if by_link:
        above = tmp_path / "link"
        above.symlink_to(root)
    before = files(root)
    with pytest.raises(REFUSALS, match=r"the store |not create what is there|not be within src"):
        make(above / place, root)
    assert files(root) == before


def test_a_store_is_made_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    with new_store(tmp_path / "link") as making:
        assert making.parent == tmp_path
    assert (tmp_path / "link").is_symlink()
    assert sorted(one.name for one in (tmp_path / "disk").iterdir()) == ["commitlog", "config"]


@pytest.mark.parametrize("place", ["link", "link/new"])
def test_no_store_is_made_where_a_link_leads_nowhere(tmp_path: Path, place: str) -> None:
    (tmp_path / "link").symlink_to("gone")
    with (
        pytest.raises(DestinationError, match="link is a symbolic link to gone, which is not"),
        new_store(tmp_path / place),
    ):
        raise AssertionError("the job has begun")
    assert [one.name for one in tmp_path.iterdir()] == ["link"]
