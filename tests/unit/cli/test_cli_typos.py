"""Names that there are not: exit code 1, and a line with the nearest."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from support.command_line import Run, one_line


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("typos") / "store"
    with rmqstore.open(root, "a", config=StoreConfig.small()) as store:
        for queue_id in range(4):
            store.put("orders", b"x", keys="k1", queue_id=queue_id)
        store.put("payments", b"x", queue_id=7)
        with store.consumer("orders", group="billing") as orders:
            next(iter(orders))
            orders.commit()
    return root


@pytest.mark.parametrize(
    "verb",
    [
        ["cat"], ["cat", "-q", "0"], ["cat", "-f", "%t\n"], ["find", "--key", "k1"], ["queues"],
        ["grep", "x"], ["trace", "k1"], ["unconsumed", "-g", "billing"], ["lag"],
    ],
    ids="-".join,
)  # fmt: skip
def test_a_topic_that_is_mistyped(run: Run, shop: Path, verb: list[str]) -> None:
    said = one_line(run(verb[0], shop, *verb[1:], "-t", "order"), 1)
    assert said == "rmqstore: no topic 'order'; did you mean 'orders'?\n"
    assert "'orders'" in one_line(run(verb[0], shop, *verb[1:], "-t", "Orders"), 1)
    far = one_line(run(verb[0], shop, *verb[1:], "-t", "zzz"), 1)
    assert far == "rmqstore: no topic 'zzz'; there are orders, payments\n"


def test_a_mistyped_topic_of_verbs_with_a_place(run: Run, shop: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    assert run("export", shop, file).exit_code == 0
    for words in (
        ["stats", shop, "order"],
        ["diff", shop, shop, "-t", "order"],
        ["export", shop, tmp_path / "o.jsonl", "-t", "orders", "-t", "order"],
        ["extract", shop, tmp_path / "o", "-t", "orders", "-t", "order"],
        ["import", file, tmp_path / "n", "-t", "orders", "-t", "order"],
        ["offsets", shop, "get", "-g", "billing", "-t", "order"],
        ["offsets", shop, "set", "-g", "billing", "-t", "order", "--to", "0"],
        ["offsets", shop, "by-time", "-g", "billing", "-t", "order", "--to", "@0"],
        ["offsets", shop, "clone", "-g", "b", "--from-group", "billing", "-t", "order"],
    ):
        said = one_line(run(*words), 1)
        assert said.endswith(" topic 'order'; did you mean 'orders'?\n"), words
    assert list(tmp_path.iterdir()) == [file]


def test_a_group_that_is_mistyped(run: Run, shop: Path) -> None:
    for verb in (
        ["groups"], ["lag"], ["dlq"], ["unconsumed"], ["offsets", "get"],
        ["offsets", "set", "--to", "0"], ["offsets", "by-time", "--to", "@0"],
    ):  # fmt: skip
        said = one_line(run(verb[0], shop, *verb[1:], "-g", "biling"), 1)
        assert said.endswith("; did you mean 'billing'?\n"), verb
    said = one_line(run("offsets", shop, "clone", "-g", "new", "--from-group", "biling"), 1)
    assert said.endswith("; did you mean 'billing'?\n")


def test_a_queue_that_there_is_not(run: Run, shop: Path) -> None:
    said = one_line(run("cat", shop, "-t", "orders", "-q", 9), 1)
    assert said == "rmqstore: no queue 9 in topic 'orders'; it has queues 0 to 3\n"
    said = one_line(run("cat", shop, "-t", "payments", "-q", 9), 1)
    assert "no queue 9 in topic 'payments'; it has queues 0, 1, 2, 3, 7" in said


def test_an_id_and_a_key_that_there_are_not(run: Run, shop: Path) -> None:
    assert "no message 'nothing'" in one_line(run("get", shop, "nothing"), 1)
    assert "has the key 'k9'" in one_line(run("find", shop, "--key", "k9"), 1)


def test_a_key_in_place_of_an_id(run: Run, shop: Path) -> None:
    said = one_line(run("get", shop, "k1"), 1)
    command = f"rmqstore find {shop} --key k1"
    assert said.endswith(f"no message 'k1'; it is a key: {command}\n")
    assert run(*shlex.split(command)[1:]).exit_code == 0


def test_a_key_without_its_option(run: Run, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run("find", shop, "--key", "k1").stdout
    assert expected
    assert run("find", shop, "k1").stdout == expected
    assert run("find", "k1", "--store", shop).stdout == expected
    assert "unexpected argument 'k2'" in one_line(run("find", shop, "k1", "k2"), 2)
    assert "unexpected argument 'k1'" in one_line(run("find", shop, "k1", "-k", "k1"), 2)
    monkeypatch.setenv("RMQSTORE_PATH", str(shop))
    assert run("find", "k1").stdout == expected
    assert run("find", "-k", "k1").stdout == expected
    assert "KEY is missing; KEY may also be given as --key" in one_line(run("find"), 2)


def test_what_an_id_is(run: Run, shop: Path) -> None:
    said = one_line(run("get", shop, "nothing"), 1)
    assert said.endswith(
        "no message 'nothing'; ID is a message id (%i), a unique key (%u) or TOPIC/QUEUE@OFFSET; "
        "'rmqstore find' finds by key\n"
    )
    said = one_line(run("get", shop, "7F00000100002A9F000000000000000"), 1)
    assert said.endswith("; a message id has 32 hexadecimal digits, this has 31\n")


def test_a_message_by_its_place(run: Run, shop: Path) -> None:
    shown = run("get", shop, "orders/2@0", "-f", "%t/%q@%o")
    assert (shown.exit_code, shown.stdout) == (0, "orders/2@0")
    for place, says in {
        "orders/2@5": "no message 'orders/2@5'; queue orders/2 has offsets 0 to 0",
        "payments/3@0": "no message 'payments/3@0'; queue payments/3 has no messages",
        "orders/9@0": "no queue 9 in topic 'orders'; it has queues 0 to 3",
        "order/2@0": "no topic 'order'; did you mean 'orders'?",
    }.items():
        assert one_line(run("get", shop, place), 1) == f"rmqstore: {says}\n"


def test_a_unique_key_that_looks_like_a_place(run: Run, tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=StoreConfig.small()) as store:
        store.put("orders", b"x", uniq_key="job/1@2")
    assert run("get", tmp_path / "s", "job/1@2", "-f", "%u").stdout == "job/1@2"


def test_a_place_for_a_topic(run: Run, shop: Path) -> None:
    said = one_line(run("cat", shop, "-t", "orders/3@10"), 1)
    assert said == ("rmqstore: no topic 'orders/3@10'; did you mean -t orders -q 3 --from 10?\n")


def test_since_is_from(run: Run, shop: Path) -> None:
    for verb in (["cat"], ["find", "-k", "k1"]):
        both = [
            run(verb[0], shop, *verb[1:], name, "-1h", "-f", "%t/%q@%o\n")
            for name in ("--from", "--since")
        ]
        assert both[0].exit_code == both[1].exit_code == 0
        assert both[0].stdout == both[1].stdout != ""
    assert "got 'soon'" in one_line(run("cat", shop, "--since", "soon"), 2)


def test_paths_that_are_near_a_store(run: Run, shop: Path, tmp_path: Path) -> None:
    def says(path: Path) -> str:
        return one_line(run("info", path), 4).removeprefix(f"rmqstore: {path}: no store: ")

    outer, inner = tmp_path / "outer", tmp_path / "outer/inner/store"
    shutil.copytree(shop, inner)
    none = "there is no commitlog/ in it"
    advice = "give the directory that holds 'commitlog'"
    assert says(tmp_path / "none") == f"there is no such directory; {advice}\n"
    assert says(outer) == f"{none}; did you mean {inner}?\n"
    assert says(inner / "commitlog") == f"{none}; did you mean {inner}?\n"
    assert says(inner / "consumequeue/orders") == f"{none}; did you mean {inner}?\n"
    [log] = (inner / "commitlog").iterdir()
    assert says(log) == f"it is a file; did you mean {inner}?\n"
    assert says(log / "x") == f"there is no such directory; {advice}\n"
    shutil.copytree(shop, outer / "inner/other")
    assert says(outer) == f"{none}; did you mean {outer}/inner/other or {inner}?\n"
    (tmp_path / "file").touch()
    assert says(tmp_path / "file") == f"it is a file; {advice}\n"


def test_writing_above_a_store(run: Run, shop: Path, tmp_path: Path) -> None:
    shutil.copytree(shop, tmp_path / "backup/store")
    before = sorted(tmp_path.rglob("*"))
    for path in (tmp_path / "backup", tmp_path / "backup/store/config"):
        said = one_line(run("put", path, "orders", input=b"x\n"), 2)
        assert said == (
            f"rmqstore: {path} holds something else than a store; "
            f"did you mean {tmp_path}/backup/store?\n"
        )
    assert sorted(tmp_path.rglob("*")) == before


def test_a_store_without_topics(run: Run, tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=StoreConfig.small()):
        pass
    said = one_line(run("cat", tmp_path / "store", "-t", "orders"), 1)
    assert said == "rmqstore: no topic 'orders'; there is no topic at all\n"


def test_following_a_topic_that_is_mistyped_ends_at_once(run: Run, shop: Path) -> None:
    assert "did you mean 'orders'?" in one_line(run("cat", shop, "-t", "order", "--follow"), 1)


def test_file_given_as_an_option(run: Run, tmp_path: Path) -> None:
    line = one_line(run("export", tmp_path, "-t", "orders", "-o", "x.parquet"), 2)
    assert "No such option '-o'; FILE is an argument: " in line
    assert "export STORE FILE'" in line
    assert "argument" not in one_line(run("export", tmp_path, "-z", "x.parquet"), 2)
