"""Clients that are not Java against the gateway: Go, and C++ by its Python package."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqstore
from serve.languages import BUILT, ROOT, Said, building, kinds, run

GO = ROOT / "interop" / "go"
WHEEL = "rocketmq==0.4.4"

pytestmark = [pytest.mark.interop, pytest.mark.campaign]


@pytest.fixture(scope="module")
def server() -> Iterator[rmqstore.serve.Server]:
    config = rmqstore.StoreConfig(transaction_timeout=1000, transaction_check_interval=1000)
    with rmqstore.serve(config=config) as running:
        yield running


@pytest.fixture(scope="session")
def go_client(need: Callable[..., None]) -> Path:
    """The program of the Go client, built once for these sources."""
    need("go")
    target = BUILT / "go-client"
    with building():
        sources = [GO / name for name in ("main.go", "go.mod", "go.sum")]
        newest = max(source.stat().st_mtime for source in sources)
        if not target.exists() or target.stat().st_mtime < newest:
            done = subprocess.run(
                ["go", "build", "-o", str(target), "."],
                cwd=GO,
                capture_output=True,
                timeout=600,
                check=False,
            )
            assert done.returncode == 0, done.stderr.decode()
    return target


def test_go_2_1_2(server: rmqstore.serve.Server, go_client: Path, tmp_path: Path) -> None:
    names = ["send", "batch", "big", "push", "tags", "orderly", "delayed", "transactions"]
    said = run(str(go_client), server.address, *names, env={"HOME": str(tmp_path)})
    assert kinds(said, "end")
    assert not kinds(said, "late")
    scenario: dict[str, Said] = {}
    for each in said:
        if each["kind"] == "scenario":
            here = scenario[each["name"]] = []
        else:
            here.append(each)
    for name, count in {"send": 4, "batch": 1, "big": 1, "delayed": 1, "transactions": 3}.items():
        sent = kinds(scenario[name], "sent")
        assert [each["status"] for each in sent] == [0] * count, name
    for name, count in {
        "push": 12,
        "tags": 8,
        "orderly": 12,
        "delayed": 1,
        "transactions": 2,
    }.items():
        got = kinds(scenario[name], "got")
        assert len({each["body"] for each in got}) == count, name
        assert {each["psly"] for each in got} == {"psly"}, name
    assert {each["tags"] for each in kinds(scenario["tags"], "got")} == {"paid"}
    assert next(each["keys"] for each in kinds(scenario["transactions"], "check")) == "unknown"
    store = server.store
    assert len(list(store["go-sent"].messages())) == 5
    assert [m.body for m in store["go-batched"].messages()] == [b"batch %d" % n for n in range(5)]


@pytest.fixture(scope="session")
def cpp_client() -> Path:
    """Where the wheel with librocketmq is, apart from the packages of the tests."""
    if platform.machine() != "x86_64" or sys.platform != "linux":
        pytest.skip("the wheel has librocketmq for Linux on x86-64 alone")
    site = BUILT / "python-rocketmq"
    with building():
        if not (site / "rocketmq" / "client.py").exists():
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            done = subprocess.run(
                [*command, "--target", str(site), WHEEL],
                capture_output=True,
                timeout=300,
                check=False,
            )
            if done.returncode != 0:
                reason = f"{WHEEL} cannot be installed: {done.stderr.decode()[-500:]}"
                if os.environ.get("CI"):
                    pytest.fail(reason)
                pytest.skip(reason)
    return site


def test_cpp_by_python_0_4_4(
    server: rmqstore.serve.Server, cpp_client: Path, tmp_path: Path
) -> None:
    program = str(Path(__file__).with_name("python_client.py"))
    said = run(
        sys.executable, "-I", program, server.address, str(cpp_client), env={"HOME": str(tmp_path)}
    )
    assert kinds(said, "end")
    assert [each["status"] for each in kinds(said, "sent")] == [0] * 8
    for who in ("push", "pull"):
        got = [each for each in kinds(said, "got") if each["who"] == who]
        assert {each["body"] for each in got} == {f"body {n}" for n in range(8)}, who
        assert {each["psly"] for each in got} == {"psly"}
        assert {each["tags"] for each in got} == {"created", "paid"}
    assert sorted(m.body for m in server.store["cpp"].messages()) == [
        b"body %d" % n for n in range(8)
    ]
