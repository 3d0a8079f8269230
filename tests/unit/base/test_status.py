"""The status codes of the core: no two are the same number."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure

STATUS = Path(__file__).parents[3] / "src/rmqstore/_native/base/status.pxd"


def test_each_status_is_a_number_of_its_own() -> None:
    codes = re.findall(r"^    (E_\w+) = (-\d+)", STATUS.read_text(), re.MULTILINE)
    assert len(codes) > 20
    assert [
        value for value, count in Counter(value for _, value in codes).items() if count > 1
    ] == []
    assert all(int(value) < -4095 for _, value in codes)  # above are errno's
