"""The known defects that can be put back: each has a campaign that must find it."""

from __future__ import annotations

from faults.framework import load_campaigns
from faults.plants import REACH, planted
from rmqstore import _core


def test_every_plant_of_the_sources_is_in_the_table():
    assert planted() == REACH.keys()


def test_every_plant_is_in_the_reach_of_a_campaign():
    campaigns = load_campaigns()
    assert {one for reach in REACH.values() for one in reach} <= campaigns.keys()
    assert all(REACH.values())


def test_plants_are_in_their_own_build_alone(monkeypatch):
    monkeypatch.setenv("RMQ_PLANT", "a1")
    assert _core.planted("a1") == _core.PLANTS
