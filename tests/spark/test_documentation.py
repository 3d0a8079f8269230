"""The examples of docs/spark.md, run from top to bottom in one directory as a reader would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.documents import alike, masked

pytestmark = [pytest.mark.spark, pytest.mark.long]

TESTS = Path(__file__).parents[1]
DOCUMENT = TESTS.parent / "docs/spark.md"


def test_examples_do_what_is_shown(tmp_path: Path, spark_environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, TESTS / "support" / "documents.py", DOCUMENT, "python spark"],
        cwd=tmp_path,
        env={**os.environ, **spark_environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ran = json.loads(done.stdout.splitlines()[-1])
    for line, shown, printed in ran:
        assert not shown or alike(masked(shown), masked(printed)), f"line {line}:\n{printed}"
    assert len(ran) > 4
