"""The pages with Spark, each run from top to bottom in one directory as a reader would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from serve.javaclients import FOUR, build
from support.clusters import session_settings
from support.documents import PROJECT, SPARK_PAGES, workplace

pytestmark = [pytest.mark.spark, pytest.mark.long]

TESTS = PROJECT / "tests"
LEAST = 4  # examples of a page
JAVA_PAGE = PROJECT / "docs/tutorials/java-to-spark.md"


def run(page: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    """Run a page in a process of its own, as its session stays there."""
    work, at_work = workplace(tmp_path)
    settings = {"spark.master": "local[2]", **session_settings(tmp_path)}
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (tmp_path / "spark-defaults.conf").write_text("".join(lines))
    done = subprocess.run(
        [sys.executable, TESTS / "support" / "documents.py", page],
        cwd=work,
        env={**os.environ, **environment, **at_work, "SPARK_CONF_DIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) >= LEAST


@pytest.mark.parametrize(
    "page", [page for page in SPARK_PAGES if page != JAVA_PAGE], ids=lambda page: page.name
)
def test_examples_do_what_is_shown(
    page: Path, tmp_path: Path, spark_environment: dict[str, str]
) -> None:
    run(page, tmp_path, spark_environment)


@pytest.mark.interop
def test_a_java_message_is_found_everywhere(
    tmp_path: Path, spark_environment: dict[str, str]
) -> None:
    build(FOUR)  # with Maven, which fetches the client
    run(JAVA_PAGE, tmp_path, spark_environment)
