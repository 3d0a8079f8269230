"""What ``import rmqstore`` loads, and what it offers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import rmqstore
from rmqstore import offline, toolbox

pytestmark = pytest.mark.pure

HEAVY = ("numpy", "xxhash", "click", "rich", "pyarrow", "pyspark", "pytest", "asyncio")
# Of the standard library, for errors, notebooks, snapshots and help only: a tenth of a start.
RARE = ("bz2", "difflib", "html", "json", "logging", "lzma", "random", "shutil", "socket", "ssl")
RARE += ("subprocess", "tempfile", "textwrap", "traceback", "concurrent.futures", "multiprocessing")


def python(*arguments: str) -> str:
    """Run a fresh Python; return what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules)"
    return set(python("-c", script).split())


def loaded_by_verb(*arguments: str) -> set[str]:
    return loaded_after(
        f"""
from rmqstore.cli import main
try: main({list(arguments)!r})
except SystemExit as end: assert not end.code, end.code
print()
"""
    )


def test_import_loads_nothing_heavy() -> None:
    before = loaded_after("")
    new = loaded_after("import rmqstore") - before
    assert not new & {*HEAVY, *RARE, "dataclasses", "datetime", "pathlib"}, new
    assert [name for name in new if name.startswith("rmqstore")] == ["rmqstore"]


def test_writing_and_reading_load_nothing_heavy(tmp_path: object) -> None:
    before = loaded_after("")
    new = loaded_after(
        f"""
import rmqstore
with rmqstore.open({str(tmp_path)!r}, "a", config=rmqstore.StoreConfig.small()) as store:
    store.put("t", b"x", keys="k", queue_id=0)
    store.put_many("t", [b"y", b"z"], queue_key="key")
    assert len(store.get("t", 0, 0).messages) and store.query("t", "k")
    assert store["t"][0][0].body == b"x"
"""
    )
    assert not (new - before) & set(HEAVY), new & set(HEAVY)


@pytest.mark.parametrize("mode", ["r", "r+", "a"])
@pytest.mark.parametrize("config", ["", "config=rmqstore.StoreConfig.small()"])
def test_a_first_message_loads_nothing_rare(tmp_path: Path, mode: str, config: str) -> None:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("t", b"x", keys="k", queue_id=0)
    use = f"""
import rmqstore
with rmqstore.open({str(tmp_path)!r}, {mode!r}, {config}) as store:
    assert store.get("t", 0, 0).messages[0].body == b"x"
"""
    new = loaded_after(use) - loaded_after("")
    unneeded = {*HEAVY, *RARE, "rmqstore.offline", "rmqstore.serve", "rmqstore.spark"}
    assert not new & unneeded, new & unneeded


def test_a_verb_that_looks_loads_nothing_heavy(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("t", b"x", keys="k", delay_level=1)
        store.put_many("t", [b"y"] * 1000)
    unneeded = {*HEAVY, "multiprocessing", "concurrent.futures", "rmqstore.serve"} - {"click"}
    unneeded |= {"rmqstore.offline.build", "rmqstore.offline.log_copy"}
    for verb in ("info", "topics", "queues", "cat"):
        assert not loaded_by_verb(verb, str(tmp_path), "-o", "csv") & unneeded, verb


@pytest.mark.parametrize("verb", ["info", "topics", "queues"])
def test_a_table_loads_nothing_rare(tmp_path: Path, verb: str) -> None:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("t", b"x", keys="k")
    unneeded = {*HEAVY, *RARE, "csv"} - {"click"}
    loaded = loaded_by_verb(verb, str(tmp_path), "--output", "table") - loaded_after("")
    assert not loaded & unneeded, loaded & unneeded


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("verify", "STORE"), {"checks"}),
        (("plan", "STORE"), {"forecast"}),
        (("du", "STORE"), {"sizes"}),
        (("offsets", "STORE", "get", "-g", "g"), {"offsets"}),
        (("unconsumed", "STORE", "-g", "g"), {"backlog", "offsets", "search"}),
        (("export", "STORE", "OUT"), {"exchange"}),
        (("diff", "STORE", "STORE"), {"copies"}),
    ],
)
def test_a_verb_loads_its_tools_alone(
    tmp_path: Path, arguments: tuple[str, ...], parts: set[str]
) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("t", b"x", queue_id=0)
        with store.consumer("t", group="g") as consumer:
            assert next(iter(consumer)).body == b"x"
            consumer.commit()
    places = {"STORE": str(tmp_path / "store"), "OUT": str(tmp_path / "out.jsonl")}
    names = loaded_by_verb(*(places.get(one, one) for one in arguments))
    loaded = [name.split(".")[2:] for name in names if name.startswith("rmqstore.toolbox.")]
    assert {first for first, *_ in loaded} == parts


def test_export_loads_nothing_of_import_and_redaction(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("t", b"x")
    loaded = loaded_by_verb("export", str(tmp_path / "store"), str(tmp_path / "out.jsonl"))
    assert "rmqstore.toolbox.exchange.export" in loaded
    unneeded = {"rmqstore.toolbox.exchange.importing", "rmqstore.offline", "hashlib", "secrets"}
    assert not loaded & unneeded, loaded & unneeded


@pytest.mark.parametrize("package", [toolbox, offline])
def test_no_module_hides_a_function(package: ModuleType) -> None:
    assert set(package._MODULES) <= set(package.__all__) <= set(dir(package))
    modules = {module.partition(".")[0] for module in package._MODULES.values()}
    assert not modules & set(package.__all__)
    for name in package.__all__:
        assert not isinstance(getattr(package, name), ModuleType), name
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = package.nope


def test_tools_are_attributes_whichever_is_first() -> None:
    code = "from rmqstore.toolbox.forecast import plan_of; from rmqstore import toolbox"
    assert python("-c", f"{code}; print(toolbox.plan.__name__)") == "plan\n"
    code = "import rmqstore.offline.start; from rmqstore.offline import broker_start"
    assert python("-c", f"{code}; print(broker_start.__name__)") == "broker_start\n"


def test_stores_that_are_equal_are_compared_without_numpy(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        store.put_many("t", [b"x"] * 100)
    assert "numpy" not in loaded_after(
        f"""
from rmqstore.cli import main
try: main(["diff", {str(tmp_path)!r}, {str(tmp_path)!r}, "--full"])
except SystemExit as end: assert not end.code, end.code
print()
"""
    )


def test_import_is_fast() -> None:
    # The process's own time: other processes do not slow it.
    script = "import time; t = time.process_time(); import rmqstore; print(time.process_time() - t)"
    assert min(float(python("-c", script)) for _ in range(5)) < 0.03


def test_every_public_name_is_there() -> None:
    assert sorted(rmqstore.__all__) == rmqstore.__all__
    packages = {"serve"}  # which can be called
    assert set(rmqstore.__all__) == set(rmqstore._MODULES) | packages
    for name in rmqstore.__all__:
        value = getattr(rmqstore, name)
        assert value is getattr(rmqstore, name)
        assert value.__doc__, name
        assert value.__name__ == (f"rmqstore.{name}" if name in packages else name)
    assert set(rmqstore.__all__) <= set(dir(rmqstore))
    assert not [name for name in dir(rmqstore) if name.startswith("_") and name[:2] != "__"]
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = rmqstore.nope  # type: ignore[attr-defined]


def test_star_import() -> None:
    code = "from rmqstore import *; print(open.__module__, Message.__name__)"
    assert python("-c", code) == "rmqstore.opening Message\n"


def test_every_public_method_says_what_it_does() -> None:
    for name in rmqstore.__all__:
        value = getattr(rmqstore, name)
        for attribute in vars(value) if isinstance(value, type) else ():
            member = getattr(value, attribute)
            if not attribute.startswith("_") and callable(member):
                assert member.__doc__, f"{name}.{attribute}"


def test_module_runs_as_the_command_line() -> None:
    shown = python("-m", "rmqstore", "--help")
    assert shown.startswith("Usage: rmqstore")
    for verb in ("demo", "info", "topics", "queues", "cat", "get", "find", "put"):
        assert f"\n  {verb} " in shown
    assert python("-m", "rmqstore", "--version") == f"rmqstore {rmqstore.__version__}\n"


def test_only_arrays_load_numpy(tmp_path: Path) -> None:
    use = f"""
import rmqstore
with rmqstore.open({str(tmp_path / "store")!r}, "a", config=rmqstore.StoreConfig.small()) as store:
    store.put("t", b"x", keys="k", queue_key="k")
    store.put_many("t", [b"x"] * 10, keys=["k"] * 10)
    store.put_batch("t", [b"x"], queue_id=0)
    assert store.get("t", 0, 0).messages
    assert store.query("t", "k")
    assert store.query_many("t", ["k"])[0]
    assert store.scan().count() == 12 == len(list(store.scan()))
    assert store["t"][0][-1].body == b"x"
    store["t"][0].offset_at(0)
    store.index_coverage()
"""
    assert not loaded_after(use) & {"numpy", "pyarrow"}
    assert "numpy" in loaded_after(
        "import rmqstore\n"
        f"with rmqstore.open({str(tmp_path / 'store')!r}) as s: s.locate_many('t', ['k'])"
    )
