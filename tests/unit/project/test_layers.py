"""The parts of the core use only what stands above them: the check finds what does not."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmqstore import MessageStore

pytestmark = pytest.mark.pure

TOP = Path(__file__).parents[3]
CHECK = TOP / "scripts" / "check_layers.py"
SOURCE = TOP / "src" / "rmqstore"


def check(source: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, CHECK, source], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(SOURCE / "_native", tmp_path / "_native")
    shutil.copytree(SOURCE / "_builds", tmp_path / "_builds")
    shutil.copy(SOURCE / "_core.pyx", tmp_path)
    return tmp_path


def test_the_core_is_in_layers() -> None:
    code, out = check(SOURCE)
    assert code == 0, out


@pytest.mark.parametrize(
    ("part", "planted", "name"),
    [
        ("format/record_parse", "    return store_drop(NULL)\n", "store_drop"),
        ("files/mapped_file", "cdef struct Planted:\n    Queue *queue\n", "Queue"),
        ("log/dispatch", "cdef int planted(ScanFilter *filter) noexcept nogil:\n    return 0\n",
         "ScanFilter"),
        ("read/query", "cdef int64_t planted = ALONG_QUEUES\n", "ALONG_QUEUES"),
    ],
)  # fmt: skip
def test_a_reference_upwards_is_found(copy: Path, part: str, planted: str, name: str) -> None:
    path = copy / "_native" / f"{part}.pxi"
    path.write_text(path.read_text() + "\n\n" + planted)
    code, out = check(copy)
    assert code == 1
    assert f"{part}.pxi:" in out
    assert f": {name} is defined below, in " in out
    assert "1 problems" in out


@pytest.mark.parametrize(
    "line",
    [
        "from rmqstore.store import MessageStore",
        "from rmqstore import store",
        "import rmqstore.store",
        "import rmqstore",
        "from rmqstore import MessageStore",
        "from ..store import MessageStore",
        "if TYPE_CHECKING:\n    from rmqstore.store import MessageStore",
    ],
)
def test_an_import_from_a_floor_above_is_found(copy: Path, line: str) -> None:
    module = copy / "files" / "planted.py"
    module.parent.mkdir()
    module.write_text(f"{line}\n")
    code, out = check(copy)
    assert code == 1
    last = line.count("\n") + 1
    assert re.search(rf"files/planted.py:{last}: rmqstore[.\w]* is of a floor above\n", out)
    assert "1 problems" in out


def test_a_module_without_a_floor_is_found(copy: Path) -> None:
    (copy / "planted.py").write_text("")
    code, out = check(copy)
    assert code == 1
    assert "planted.py: planted has no floor" in out


@pytest.mark.parametrize("guard", ["", "if TYPE_CHECKING:\n    "])
def test_a_circle_of_modules_is_found(copy: Path, guard: str) -> None:
    (copy / "files").mkdir()
    (copy / "files" / "one.py").write_text("from rmqstore.files import two\n")
    (copy / "files" / "two.py").write_text(f"{guard}from rmqstore.files.one import One\n")
    code, out = check(copy)
    assert code == 1
    assert "rmqstore.files.one imports itself over rmqstore.files.one, rmqstore.files.two" in out
    assert "2 problems" in out


@pytest.mark.parametrize("folder", ["cli", "consume", "services", "spark"])
def test_a_private_name_of_another_object_is_found(copy: Path, folder: str) -> None:
    (copy / folder).mkdir()
    (copy / folder / "planted.py").write_text("def f(store):\n    return store.core._bounds\n")
    code, out = check(copy)
    assert code == 1
    assert f"{folder}/planted.py:2: store.core._bounds is private" in out
    assert "1 problems" in out


def test_a_store_inherits_from_the_engine_alone() -> None:
    assert len(MessageStore.__mro__) <= 4


@pytest.mark.parametrize(
    ("leaf", "used", "says"),
    [
        ("base/status", "format.layout", "base/status.pxd: format/layout.pxd is of a layer above"),
        ("base/posix", "base.system", "base/posix.pxd imports itself over others"),
    ],
)
def test_a_declaration_that_stands_on_a_layer_above_is_found(
    copy: Path, leaf: str, used: str, says: str
) -> None:
    path = copy / "_native" / f"{leaf}.pxd"
    path.write_text(path.read_text() + f"\nfrom rmqstore._native.{used} cimport *\n")
    code, out = check(copy)
    assert code == 1
    assert says in out


def test_a_part_that_nothing_includes_is_found(copy: Path) -> None:
    (copy / "_native" / "log" / "planted.pxi").write_text("# planted\n")
    code, out = check(copy)
    assert code == 1
    assert "log/planted.pxi is not included" in out


def test_a_layer_in_two_places_is_found(copy: Path) -> None:
    core = copy / "_core.pyx"
    (copy / "_native" / "log" / "planted.pxi").write_text("# planted\n")
    core.write_text(core.read_text() + 'include "_native/log/planted.pxi"\n')
    code, out = check(copy)
    assert code == 1
    assert "log/ stands in two places" in out


def test_no_two_classes_have_one_name() -> None:
    """Of the package: a name is found where it is meant."""
    package = SOURCE
    names = [
        name
        for path in (*package.rglob("*.py"), *package.rglob("*.pxi"))
        for name in re.findall(r"^(?:cdef )?class (\w+)", path.read_text(), re.MULTILINE)
    ]
    assert len(names) > 100
    # Both are public: how far a group is behind a queue, and a stream behind its stores.
    names.remove("Lag")
    assert sorted(names) == sorted(set(names))


def test_unit_tests_lie_by_layer() -> None:
    layers = {path.name for path in (SOURCE / "_native").iterdir() if path.is_dir()}
    python = {"api", "brokerfiles", "cli", "serve", "toolbox"}  # of src/rmqstore and its packages
    unit = TOP / "tests/unit"
    folders = {path.parent.name for path in unit.rglob("test_*.py")}
    assert folders <= layers | python | {"project"}
    assert {"format", "log", "recover", "read", "scan", "store"} <= folders
    assert list(unit.glob("*.py")) == []
    packages = {path.parent.name for path in (SOURCE / "spark").rglob("*/*.py")}
    assert {path.parent.name for path in (TOP / "tests/spark").rglob("*/test_*.py")} <= packages
