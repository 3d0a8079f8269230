"""A store of the kind that repairs are tried on, and a copy of it for a test."""

import shutil

import pytest

from support import repairs


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole") / "store"
    repairs.make(root)
    return root


@pytest.fixture
def root(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "store")
