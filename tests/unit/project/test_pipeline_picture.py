"""Metrics of the example's pipeline: the file of a dead job stays as it was."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.pure

EXAMPLE = Path(__file__).parents[3] / "examples" / "pipeline" / "picture.py"
METRICS = """\
# TYPE pipeline_lag_messages gauge
pipeline_lag_messages{query="route",queue="0",topic="orders"} 40.0
pipeline_lag_messages{query="route",queue="1",topic="orders"} 2.0
pipeline_lag_messages{query="totals",queue="0",topic="orders-clean"} 7.0
# TYPE pipeline_report_timestamp_seconds gauge
pipeline_report_timestamp_seconds{query="route"} 1000.5
pipeline_report_timestamp_seconds{query="totals"} 1001.0
# TYPE pipeline_watermark_timestamp_seconds gauge
pipeline_watermark_timestamp_seconds{query="totals"} 900.0
# TYPE pipeline_dropped_rows_total counter
pipeline_dropped_rows_total{query="totals"} 3.0
# TYPE pipeline_orders_total counter
pipeline_orders_total{topic="orders-late"} 11.0
"""


@pytest.fixture(scope="module")
def picture() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pipeline_picture", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["pipeline_picture"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_sample_sums_up_the_queues_of_each_query(picture: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.prom"
    before = picture.sample(file)
    assert (before.behind, before.reported, before.watermark, before.dropped) == ({}, {}, 0, 0)
    file.write_text(METRICS)
    sample = picture.sample(file)
    assert sample.behind == {"route": 42, "totals": 7}
    assert sample.reported == {"route": 1000.5, "totals": 1001}
    assert (sample.watermark, sample.dropped) == (900, 3)
    again = picture.sample(file)
    assert again.at >= sample.at
    assert again.reported == sample.reported
