"""Structs of the Arrow C data interface that no producer should hand over."""

from __future__ import annotations

import pytest

import rmqstore
from support.arrow_structs import Producer
from support.forked_child import in_child


@pytest.fixture
def store(tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=rmqstore.StoreConfig.small()) as opened:
        yield opened


@pytest.mark.parametrize("code", [b"w:99999999999999999999", b"w:", b"w:-1", b"w: 1", b"w:1_0"])
def test_widths_that_are_no_number(store, code):
    with pytest.raises(ValueError, match=r"^bodies: .* contradicts itself"):
        store.put_many("Topic1", Producer(code))


@pytest.mark.parametrize("code", [b"+l", b"+L"])
def test_lists_whose_children_are_missing(tmp_path, code):
    def put() -> str:
        with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
            try:
                store.put_many("Topic1", [b"a"], keys=Producer(code, children=1))
            except ValueError as error:
                return str(error)
            return "taken"

    assert "contradicts itself" in in_child(put)
