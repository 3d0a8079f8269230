"""The examples of README and pages, each run from top to bottom in one directory as a reader would.

``make demo`` is run as the command that it ends in, on fewer messages.  A broker's store is
unpacked from ``tests/data``, as in a checkout.  ``tests/spark/test_documentation.py`` has the pages
with Spark.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore.serve.testing.under_test import RmqServer
from support.documents import (
    PROJECT,
    SPARK_PAGES,
    blocks,
    commands,
    file_name,
    run_page,
    run_python,
    run_shell,
    workplace,
)

pytestmark = pytest.mark.pure

README = PROJECT / "README.md"
CHINESE = "\u4e2d\u6587"
DOCS = PROJECT / "docs"
CLI, SERVE, FAULTS = DOCS / "cli.md", DOCS / "serve.md", DOCS / "known-broker-faults.md"
PAGES_RUN = [  # with the examples that each has at least
    (README, 5),
    (DOCS / "guide.md", 11),
    (DOCS / "tutorials/outbox.md", 4),
    (DOCS / "landing.md", 4),
    (PROJECT / "README.zh.md", 6),
    (DOCS / "start.zh.md", 11),
    (CLI, 10),
    (DOCS / "toolbox.md", 24),
]
API = DOCS / "api"
PAGES = [README, PROJECT / "README.zh.md", *sorted(DOCS.rglob("*.md"))]
NAMES = [str(page.relative_to(PROJECT)) for page in PAGES]
BESIDE = [PROJECT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")]
RUN_WHOLE = [*(page for page, _ in PAGES_RUN), *SPARK_PAGES]
FIRST_SCREEN = 40  # lines of 80 columns


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to work in, as the top of a checkout; the command is on the path."""
    work, environment = workplace(tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RMQSTORE_PATH", raising=False)
    monkeypatch.chdir(work)
    return work


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize(("page", "least"), PAGES_RUN, ids=[page.name for page, _ in PAGES_RUN])
def test_examples_do_what_is_shown(page: Path, least: int) -> None:
    assert run_page(page) >= least


def test_the_copy_of_a_broken_store_can_be_looked_at(
    reader: Path, broker_copy: Callable[[str, Path], object]
) -> None:
    (block,) = (block for block in blocks(FAULTS) if block.language == "python")
    broker_copy("broker-clean", reader)
    copy = reader / "broker-clean"
    printed = run_python(FAULTS, block, {"rmqstore": rmqstore, "path": copy})
    assert "nothing was found" in printed
    assert "Recovery(clean=True, mode='r+'" in printed


@pytest.mark.usefixtures("reader")
def test_the_examples_of_serve_do_what_they_say() -> None:
    fixture, listener, program = (block for block in blocks(SERVE) if block.language == "python")
    with RmqServer() as server:

        def send(name_server: str) -> None:
            assert name_server == server.address
            server.store.put("payments", b"order-1", tags="paid")

        names: dict[str, object] = {"run_my_program": send}
        run_python(SERVE, fixture, names)
        names["test_an_order_is_paid"](server)  # type: ignore[operator]
    with RmqServer() as server:
        names["start_my_listener"] = lambda name_server: None
        run_python(SERVE, listener, names)
        names["test_a_listener"](server)  # type: ignore[operator]
        assert "payments" in server.store
    assert run_python(SERVE, program, names).startswith("127.0.0.1:")
    asyncio.run(names["program"]())  # type: ignore[operator]
    shown = run_shell("rmqstore serve --help")
    lines = [command for block in blocks(SERVE) if block.language == "console"
             for command, _ in commands(block)]  # fmt: skip
    named = re.findall(r"--[a-z-]+", " ".join(lines))
    assert len(named) >= 2
    assert all(option in shown for option in named)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_block_is_run_or_known(page: Path) -> None:
    run = {"serve.md": {"python", "console"}, "known-broker-faults.md": {"python"},
           "lakehouse.md": {"python"}, "index.md": {"{toctree}"}}  # fmt: skip
    made = {"python", "pycon", "{toctree}"}  # from docstrings
    known = {"text", "sh", "json"} | (made if page.parent == API else run.get(page.name, set()))
    if page in RUN_WHOLE:
        known |= {"python", "python spark", "console"}
        known |= {block.language for block in blocks(page) if file_name(block)}
    assert {block.language for block in blocks(page)} <= known


def test_every_tutorial_is_run() -> None:
    assert set((DOCS / "tutorials").glob("*.md")) <= set(RUN_WHOLE)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_pages_are_ascii_or_chinese(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert page.name.endswith(".zh.md") or text.replace(CHINESE, "").isascii()


def test_the_readme_leads_to_every_page() -> None:
    text = README.read_text(encoding="utf-8")
    for page in PAGES[1:]:
        if page.parent != API or page.name == "index.md":
            assert f"({page.relative_to(PROJECT)})" in text, page
    assert all(f"({page.name})" in text for page in BESIDE)


def test_the_first_screen_says_what_it_is() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert max(len(line) for line in lines[:FIRST_SCREEN]) <= 80
    screen = [block for block in blocks(README) if block.line <= FIRST_SCREEN]
    python, text, console = screen[:3]
    assert [python.language, text.language, console.language] == ["python", "text", "console"]
    assert len([line for line in python.text.splitlines() if line]) == 6
    assert [command.split()[0] for command, _ in commands(console)] == ["rmqstore"]
    first = "\n".join(lines[:FIRST_SCREEN])
    assert all(f"| {word} |" in first for word in ("works", "not yet", "not planned"))


def test_make_targets_exist() -> None:
    makefile = (PROJECT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)", makefile, re.MULTILINE)
    assert phony is not None
    named = []
    for page in PAGES:
        named += re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8"))
        for block in blocks(page):
            if block.language == "sh":
                for words in re.findall(r"^(?:\w+=\w+ )?make ([a-z -]+)", block.text, re.MULTILINE):
                    named += words.split()
    assert {"demo", "demo-producer", "demo-spark", "test", "bench", "asan", "tsan"} <= set(named)
    assert set(named) <= set(phony[1].split())


def test_the_demo_passes_over_parts_without_java(tmp_path: Path) -> None:
    for tool in ("make", "bash", "find", "sort", "python3", "env"):
        path = shutil.which(tool)
        assert path is not None, tool
        (tmp_path / tool).symlink_to(path)
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}

    def make(*arguments: str) -> list[str]:
        done = subprocess.run(
            ["make", *arguments], cwd=PROJECT, env=environment, capture_output=True, text=True,
            check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    parts = ("--dry-run", "demo-producer", "demo-spark")
    (line,) = make("demo-spark")
    assert line.startswith("demo-spark: skipped, there is no Java")
    dry = make(*parts)
    assert dry[-1] == f'echo "{line}"'
    skipped = "demo-producer: skipped, it needs Java (in JAVA_HOME or on the PATH) and Maven"
    assert f'echo "{skipped}"' in dry
    (tmp_path / "java").symlink_to("/bin/true")
    dry = make(*parts)
    assert "examples/pipeline/run.py" in dry[-1]
    assert f'echo "{skipped}"' in dry
    (tmp_path / "mvn").symlink_to("/bin/true")
    assert any("examples/producer.py" in one for one in make(*parts))


def test_the_demo_says_how_to_go_on(tmp_path: Path) -> None:
    """Its last lines are commands that a shell takes as they are, wherever the command is."""
    demo = [str(Path(sys.executable).parent / "rmqstore"), "demo", str(tmp_path / "s"), "-n", "500"]
    package = str(Path(rmqstore.__file__).parents[1].resolve())
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": package}
    done = subprocess.run(
        demo, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    lines = done.stdout.partition("Go on:")[2].splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.split()[0] == demo[0]
        shown = subprocess.run(
            ["sh", "-c", line], env=environment, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert (shown.returncode, shown.stderr) == (0, "")
        assert shown.stdout


def test_parts_are_listed_in_reading_order() -> None:
    core = PROJECT / "src/rmqstore/_core.pyx"
    page = (PROJECT / "docs/architecture.md").read_text()
    texts = core.read_text() + (core.parent / "_builds/faults/fuzz.pxi").read_text()
    included = re.findall(r'^include "_native/([\w/]+\.pxi)"', texts, re.MULTILINE)
    listed = []
    for layer, table in re.findall(
        r"^\| `_native/(\w+)/` \| \|\n((?:\|.*\n)+)", page, re.MULTILINE
    ):
        listed += [
            f"{layer}/{name}" for name in re.findall(r"^\| `([\w./]+)`", table, re.MULTILINE)
        ]
    assert [name for name in listed if name.endswith(".pxi")] == included
    leaves = {
        str(path.relative_to(core.parent / "_native"))
        for path in (core.parent / "_native").glob("*/*.pxd")
        if path.stem != "__init__"
    }
    assert {name for name in listed if name.endswith(".pxd")} == leaves


def test_the_architecture_names_what_is_there() -> None:
    page = (PROJECT / "docs/architecture.md").read_text()
    tables = re.compile(r"^\| `.*\n", re.MULTILINE)  # of parts: compared above
    named = re.findall(r"`(\w+(?:/\w+)+\.(?:px[id]|py))(?:: (\w+))?`", tables.sub("", page))
    assert len(named) > 30
    for file, function in named:
        roots = (PROJECT / "src/rmqstore/_native", PROJECT / "src/rmqstore", PROJECT)
        (text,) = [(root / file).read_text() for root in roots if (root / file).exists()]
        if function:
            defined = rf"^ *(?:cdef|def|class)\b[^\n=]*\b{function}\b"
            assert re.search(defined, text, re.MULTILINE), (file, function)


def test_every_module_is_in_a_table() -> None:
    page = (PROJECT / "docs/architecture.md").read_text()
    package = PROJECT / "src/rmqstore"
    python, rest = page.partition("\n## Python\n")[2].split("\n## Services and consumers\n")
    services, rest = rest.split("\n## Jobs of many processes\n")
    services, consume = services.split("| `src/rmqstore/consume/` |")
    offline, spark = rest.split("\n## Spark\n")
    # These have a table or a row of their own.
    own = {"brokerfiles", "cli", "consume", "offline", "serve", "services", "spark"}
    folders = {path.parent.name for path in package.glob("*/__init__.py")} - own
    for text, folder, patterns in (
        (python, package, ("*.py", *(f"{name}/**/*.py" for name in sorted(folders)))),
        (services, package / "services", ("*.py",)),
        (consume, package / "consume", ("*.py",)),
        (offline, package / "offline", ("*.py",)),
        (spark, package / "spark", ("**/*.py",)),
    ):
        listed = []
        for row in re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE):
            listed += re.findall(r"`([\w/]+\.py)`", row)
        there = [
            str(path.relative_to(folder))
            for pattern in patterns
            for path in folder.glob(pattern)
            if not path.name.startswith("__")
        ]
        assert sorted(listed) == sorted(there)


def test_the_walk_names_each_file_once() -> None:
    page = (PROJECT / "docs/architecture.md").read_text()
    walk = page.partition("## A message on its way")[2].partition("\n## ")[0]
    named = re.findall(r"`(\w+(?:/\w+)+\.pxi)", walk)
    assert len(named) > 15
    assert len(named) == len(set(named))


def test_the_walk_of_a_request_names_each_file_once() -> None:
    page = (PROJECT / "docs/architecture.md").read_text()
    walk = page.partition("## A request on its way")[2].partition("\n## ")[0]
    folder = PROJECT / "src/rmqstore"
    there = {
        str(path.relative_to(folder))
        for path in (folder / "serve").rglob("*.py")
        if path.name != "__init__.py"
    }
    named = re.findall(r"`(serve/[\w/]+\.py)", walk)
    assert sorted(named) == sorted(there)


def test_every_lock_and_layer_of_the_pages_is_there() -> None:
    locks = (PROJECT / "src/rmqstore/_native/base/locks.pxd").read_text()
    named = {
        lock
        for page in PAGES
        for lock in re.findall(r"\bLOCK_[A-Z_]+\b", page.read_text(encoding="utf-8"))
    }
    assert named
    assert all(f"{lock}," in locks for lock in named)


def test_the_terms_of_the_glossary_are_used() -> None:
    terms = re.findall(
        r"^\| \*\*(.+?)\*\* \|", (PROJECT / "docs/glossary.md").read_text(), re.MULTILINE
    )
    assert len(terms) > 60
    assert len(terms) == len(set(terms))
    sources = [
        path
        for path in (PROJECT / "src/rmqstore").rglob("*.p*")
        if path.suffix in {".py", ".pyx", ".pxd", ".pxi"}
    ]
    pages = [page for page in PAGES if page.name != "glossary.md"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in (*sources, *pages))
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    words = re.sub(r"[_\s#*]+", " ", spaced).casefold()
    assert [term for term in terms if term.casefold() not in words] == []


def test_the_folders_of_tests_are_in_a_table() -> None:
    page = (PROJECT / "docs/development.md").read_text()
    listed = re.findall(r"^\| `tests/(\w+)` \|", page, re.MULTILINE)
    there = [path.name for path in (PROJECT / "tests").iterdir() if path.is_dir()]
    assert sorted(listed) == sorted(name for name in there if not name.startswith(("_", ".")))
