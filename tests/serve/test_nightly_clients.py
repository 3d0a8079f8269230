"""Clients in Node and in Rust against the gateway; Rust's takes many minutes to build."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqstore
from serve.languages import BUILT, ROOT, Said, building, kinds, run

NODE = ROOT / "interop" / "node"
RUST = ROOT / "interop" / "rust"
BUILD_TIMEOUT = 3600
COUNT = 8

pytestmark = [pytest.mark.interop, pytest.mark.nightly]


@pytest.fixture(scope="module")
def server() -> Iterator[rmqstore.serve.Server]:
    """A gateway whose retries come soon."""
    with rmqstore.serve(config=rmqstore.StoreConfig(message_delay_level="1s 1s 1s 1s")) as running:
        yield running


def done(*command: str, cwd: Path) -> None:
    """Run a build of a client."""
    made = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=BUILD_TIMEOUT,
        check=False,
    )
    assert made.returncode == 0, made.stderr.decode(errors="replace")[-3000:]


@pytest.fixture(scope="session")
def node_modules(need: Callable[..., None]) -> Path:
    """Where the packages of the lock file are."""
    need("node", "npm")
    target = BUILT / "node"
    installed = target / "installed"
    lock = (NODE / "package-lock.json").read_bytes()
    with building():
        if not installed.exists() or installed.read_bytes() != lock:
            target.mkdir(exist_ok=True)
            for name in ("package.json", "package-lock.json"):
                shutil.copy(NODE / name, target)
            done("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=target)
            installed.write_bytes(lock)
    return target / "node_modules"


def bodies(said: Said, who: str) -> list[str]:
    """Return the messages of a consumer, without redeliveries."""
    return sorted(
        str(each["body"])
        for each in kinds(said, "got")
        if each["who"] == who and not each["reconsume_times"]
    )


def test_node_ali_ons_3_12(
    server: rmqstore.serve.Server, node_modules: Path, tmp_path: Path
) -> None:
    store = server.store
    store.create_topic("node", 4)
    said = run(
        "node", str(NODE / "main.js"), server.address,
        env={"NODE_PATH": str(node_modules), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert kinds(said, "end")
    assert not kinds(said, "late")
    assert [each["status"] for each in kinds(said, "sent")] == ["SEND_OK"] * (COUNT + 1)
    small = [f"body {n}" for n in range(COUNT)]
    assert bodies(said, "push") == sorted([*small, "50000"])
    assert bodies(said, "tags") == [f"body {n}" for n in (1, 3, 5, 7)]
    assert bodies(said, "sql") == ["body 1", "body 2"]
    retried = [each for each in kinds(said, "got") if each["who"] == "retry"]
    assert [(each["tags"], each["reconsume_times"]) for each in retried] == [("big", 0), ("big", 1)]
    assert {each["psly"] for each in kinds(said, "got")} == {"psly"}
    found = {message.properties["KEYS"]: message for message in store.scan("node")}
    assert found["k1"].body == b"body 1"
    assert found["k1"].tags == "paid"
    assert found["big"].body == b"big " * 12_500


@pytest.fixture(scope="session")
def rust_client(need: Callable[..., None]) -> Path:
    """The program of the Rust client, which cargo makes where something has changed."""
    need("cargo")
    target = BUILT / "rust"
    with building():
        done("cargo", "build", "--locked", "--target-dir", str(target), cwd=RUST)
    return target / "debug" / "rmqstore-interop-rust"


def test_rust_1_0_0(server: rmqstore.serve.Server, rust_client: Path, tmp_path: Path) -> None:
    said = run(str(rust_client), server.address, env={"HOME": str(tmp_path)})
    assert kinds(said, "end")
    assert not kinds(said, "late")
    assert [each["status"] for each in kinds(said, "sent")] == ["SendOk"] * (COUNT + 1)
    every = sorted(f"body {n}" for n in range(COUNT + 1))
    assert bodies(said, "pull") == bodies(said, "push") == every
    assert bodies(said, "tags") == [f"body {n}" for n in (1, 3, 5, 7)]
    again = [each for each in kinds(said, "got") if each["reconsume_times"]]
    assert [(each["who"], each["keys"]) for each in again] == [("push", "fails")]
    assert {each["psly"] for each in kinds(said, "got")} == {"psly"}
    assert sorted(message.body.decode() for message in server.store.scan("rust")) == every
