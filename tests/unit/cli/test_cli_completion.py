"""Completion: what the verb prints makes a shell complete verbs, options and directories."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import rmqstore

pytestmark = pytest.mark.pure

BOTH = ["audit", "orders"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A path on which ``rmqstore`` is."""
    command = tmp_path / "bin" / "rmqstore"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m rmqstore "$@"\n')
    command.chmod(0o755)
    return os.environ | {
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(rmqstore.__file__).parents[1]),
    }


def completed(environment: dict[str, str], cwd: Path, *words: str) -> list[str]:
    """What bash offers for the last of some words."""
    line = " ".join(map(shlex.quote, words))
    script = (
        'eval "$(rmqstore completion bash)"\n'
        f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}\n"
        "_rmqstore_completion rmqstore 2>/dev/null\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=cwd,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_bash_completes(environment: dict[str, str], tmp_path: Path) -> None:
    assert completed(environment, tmp_path, "rmqstore", "to") == ["topics"]
    assert set(completed(environment, tmp_path, "rmqstore", "")) >= {"info", "cat", "find", "put"}
    assert completed(environment, tmp_path, "rmqstore", "cat", "x", "--fo") == [
        "--follow",
        "--format",
    ]
    assert completed(environment, tmp_path, "rmqstore", "cat", "-o", "js") == ["jsonl"]


@pytest.mark.parametrize(
    ("words", "kind"),
    [("cat sto", "dir,sto"), ("cat --store sto", "dir,sto"), ("cat x -c br", "file,br")],
)
def test_the_shell_completes_paths(environment: dict[str, str], words: str, kind: str) -> None:
    done = subprocess.run(
        ["rmqstore"], capture_output=True, text=True, check=True,
        env=environment | {
            "_RMQSTORE_COMPLETE": "bash_complete", "COMP_WORDS": f"rmqstore {words}",
            "COMP_CWORD": str(len(words.split())),
        },
    )  # fmt: skip
    assert done.stdout.split() == [kind]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell(environment: dict[str, str], shell: str) -> None:
    done = subprocess.run(
        ["rmqstore", "completion", shell], capture_output=True, text=True, check=True,
        env=environment,
    )  # fmt: skip
    assert f"_RMQSTORE_COMPLETE={shell}_complete" in done.stdout
    offered = subprocess.run(
        ["rmqstore"], capture_output=True, text=True, check=True,
        env=environment | {
            "_RMQSTORE_COMPLETE": f"{shell}_complete", "COMP_WORDS": "rmqstore qu",
            "COMP_CWORD": "qu" if shell == "fish" else "1",
        },
    )  # fmt: skip
    assert "queues" in offered.stdout
    assert "topics" not in offered.stdout


def test_another_shell_is_usage(environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["rmqstore", "completion", "csh"], capture_output=True, text=True, check=False,
        env=environment,
    )  # fmt: skip
    assert done.returncode == 2
    assert "'bash', 'zsh', 'fish'" in done.stderr


def test_help_says_how() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rmqstore", "completion", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": "80"},
    )
    assert "~/.local/share/bash-completion/completions/rmqstore" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "s", "a", config=rmqstore.StoreConfig.small()) as opened:
        opened.put("orders", b"x")
        opened.put("audit", b"x", delay_level=1)
        opened.create_group("billing")
        opened.create_group("CID_RMQ_SYS_TRANS")
    return tmp_path / "s"


def test_topics_and_groups(environment: dict[str, str], tmp_path: Path, store: Path) -> None:
    assert completed(environment, tmp_path, "rmqstore", "cat", "s", "-t", "ord") == ["orders"]
    assert completed(environment, tmp_path, "rmqstore", "cat", "s", "-t", "") == BOTH
    # Names of the system once they are begun.
    sched = completed(environment, tmp_path, "rmqstore", "cat", "s", "--topic", "SCHED")
    assert sched == ["SCHEDULE_TOPIC_XXXX"]
    assert completed(environment, tmp_path, "rmqstore", "lag", "s", "-g", "") == ["billing"]
    assert completed(environment, tmp_path, "rmqstore", "stats", "s", "") == BOTH
    assert completed(environment, tmp_path, "rmqstore", "cat", "missing", "-t", "o") == []
    with_variable = environment | {"RMQSTORE_PATH": str(store)}
    assert completed(with_variable, tmp_path, "rmqstore", "stats", "o") == ["orders"]
    assert completed(with_variable, tmp_path, "rmqstore", "lag", "-g", "b") == ["billing"]
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    completed(with_variable, tmp_path, "rmqstore", "cat", "-t", "o")
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


def test_verbs_come_by_section(environment: dict[str, str], tmp_path: Path) -> None:
    offered = completed(environment, tmp_path, "rmqstore", "")
    assert offered[:3] == ["info", "topics", "queues"]
    assert offered.index("lag") < offered.index("cat") < offered.index("serve")
    assert offered[-1] == "help"
    assert completed(environment, tmp_path, "rmqstore", "--ver") == ["--version"]
    assert completed(environment, tmp_path, "rmqstore", "help", "ti") == ["times"]
    shown = subprocess.run(
        ["rmqstore"], capture_output=True, text=True, check=True,
        env=environment | {
            "_RMQSTORE_COMPLETE": "zsh_complete", "COMP_WORDS": "rmqstore gr", "COMP_CWORD": "1",
        },
    )  # fmt: skip
    assert "look: Consumer groups" in shown.stdout
    assert "find: Messages by the text" in shown.stdout
