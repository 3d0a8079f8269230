"""Places that are no store, or where nothing can be made: one line, in every verb alike."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import rmqstore
from rmqstore import toolbox
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import StoreNotFoundError
from support.command_line import Run, one_line

_APPLIED = {
    "clean": ["--before", "now", "--apply"],
    "offsets": ["set", "-g", "billing", "-t", "orders", "--to", "0", "--apply"],
    "rebuild": ["--apply"],
    "repair": ["--apply"],
    "restore": ["--apply"],
}
_READ = ("info", "plan", "rebuild", "repair", "restore", "verify")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("places") / "store"
    with rmqstore.open(root, "a", config=StoreConfig.small()) as store:
        store.put("orders", b"x", keys="k1", queue_id=0)
    return root


@pytest.fixture
def places(tmp_path: Path) -> dict[Path, str]:
    """Paths that are no directory, with their errors."""
    file, pipe, loop, link = (tmp_path / name for name in ("file", "pipe", "loop", "link"))
    file.touch()
    os.mkfifo(pipe)
    loop.symlink_to("loop")
    link.symlink_to(tmp_path / "none")
    return {
        file: "it is a file",
        pipe: "it is a file",
        loop: "is a symbolic link to loop, which leads in a circle: is its disk mounted?",
        link: f"is a symbolic link to {tmp_path}/none, which is not there: is its disk mounted?",
        tmp_path / "none": "there is no such directory",
    }


@pytest.mark.parametrize("verb", sorted({*_READ, *_APPLIED}))
def test_no_directory(run: Run, places: dict[Path, str], verb: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    for path, why in places.items():
        for options in ([] if verb in _READ else None, _APPLIED.get(verb)):
            if options is not None:
                assert why in one_line(run(verb, path, *options), 4)
    assert sorted(tmp_path.iterdir()) == before


def test_a_report_of_no_directory(run: Run, places: dict[Path, str], tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    for path, why in places.items():
        assert why in one_line(run("report", path, out), 4)
        with pytest.raises(StoreNotFoundError, match=r"store|link"):
            toolbox.report(path, out)
    assert not out.exists()


def test_a_name_too_long(run: Run) -> None:
    for verb in _READ:
        assert "File name too long" in one_line(run(verb, "x" * 300), 4)


@pytest.mark.parametrize(
    "words",
    [
        ["info", ""], ["repair", "", "--apply"], ["put", "", "orders"], ["diff", "", "SHOP"],
        ["diff", "SHOP", ""], ["snapshot", "SHOP", ""], ["backup", "SHOP", ""],
        ["extract", "SHOP", "", "-t", "orders"], ["export", "SHOP", "", "--format", "csv"],
        ["report", "SHOP", ""], ["import", "", "SHOP", "--format", "csv"],
    ],
    ids="-".join,
)  # fmt: skip
def test_an_empty_path_is_not_the_working_directory(
    run: Run, shop: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop)
    before = sorted(shop.rglob("*"))
    said = one_line(run(*(shop if one == "SHOP" else one for one in words), input=""), 2)
    assert " is empty (see" in said
    assert sorted(shop.rglob("*")) == before


def test_a_file_in_a_directory_that_is_missing(run: Run, shop: Path, tmp_path: Path) -> None:
    none = tmp_path / "none"
    said = f"rmqstore: {none}: no such directory: make it first\n"
    for words in (
        ["export", shop, none / "o.csv"], ["report", shop, none / "o.html"],
        ["metrics", shop, "--textfile", none / "o.prom"],
    ):  # fmt: skip
        assert one_line(run(*words), 4) == said
    assert not none.exists()


def test_figures_replace_files_alone(run: Run, shop: Path, tmp_path: Path) -> None:
    pipe, loop, link = tmp_path / "pipe", tmp_path / "loop", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    loop.symlink_to("loop")
    for path in (pipe, link):
        said = one_line(run("metrics", shop, "--textfile", path), 2)
        assert said == f"rmqstore: --textfile {path} is a FIFO, not a regular file; name a file\n"
    assert pipe.is_fifo()
    assert link.is_symlink()
    link.unlink()
    (tmp_path / "real").touch()
    link.symlink_to("real")
    assert run("metrics", shop, "--textfile", link).exit_code == 0
    assert link.is_symlink()
    assert "rocketmq_" in (tmp_path / "real").read_text()


def test_paths_of_any_bytes(run: Run, shop: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"o\xffd\n d")
    for words in (
        ["snapshot", shop, odd], ["diff", shop, odd], ["diff", odd, shop], ["verify", odd],
        ["report", shop, tmp_path / os.fsdecode(b"\xff.html")],
    ):  # fmt: skip
        assert run(*words).exit_code == 0, words
    said = one_line(run("repair", odd, "--undo", os.fsdecode(b"\xff")), 2)
    assert said.endswith("(there is none), got '\\udcff'\n")


def test_config_names_its_own_argument(run: Run, tmp_path: Path) -> None:
    (tmp_path / "consumequeue").mkdir()
    assert " needs FILE, with store_path_commit_log" in one_line(run("config", "show", tmp_path), 4)


def test_a_store_of_rocketmq_5_has_one_remedy(run: Run, shop: Path, tmp_path: Path) -> None:
    assert run("snapshot", shop, tmp_path / "five").exit_code == 0
    queues = tmp_path / "five/consumequeue"
    (queues / "orders").rename(queues / ("x" * 200))
    said = one_line(run("backup", tmp_path / "five", tmp_path / "copy"), 4)
    assert said.count("verbs that only read") == 1


def test_a_key_as_an_option(run: Run, shop: Path) -> None:
    both = [run("trace", shop, *words).stdout for words in (["k1"], ["--key", "k1"])]
    assert both[0] == both[1] != ""
    assert "unexpected argument" in one_line(run("trace", shop, "k1", "-k", "k1"), 2)
