"""Spark's processes on this machine, of which none outlives its test.

Each program with a session of Spark's runs as a child in a process session of its own, and with
it all that it starts: clusters, executors, Python workers, also those that leave the process group.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

HERE = Path(__file__).parent
TESTS = HERE.parent
SOURCES = TESTS.parent / "src"
JVM_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def environment() -> dict[str, str]:
    """Environment of every process of Spark's here: loopback, this Python, the tests' modules."""
    import rmqstore

    paths = [str(TESTS)]
    if Path(rmqstore.__file__).is_relative_to(SOURCES):  # not installed
        paths.append(str(SOURCES))
    if "PYTHONPATH" in os.environ:
        paths.append(os.environ["PYTHONPATH"])
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
    }


# ---- children


def processes_of(session_id: int) -> dict[int, list[str]]:
    """The living processes of a process session, with their command lines."""
    found = {}
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            # After the name, which may have spaces: state, parent, group, session.
            state = (directory / "stat").read_bytes().rpartition(b")")[2].split()
            if int(state[3]) == session_id and state[0] not in (b"Z", b"X"):
                line = (directory / "cmdline").read_bytes()
                found[int(directory.name)] = os.fsdecode(line).split("\0")
    return found


def parent_of(pid: int) -> int:
    """The parent of a process; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def kill_session(session_id: int, bound: float = 20.0) -> None:
    """End all processes of a process session as ``kill -9`` does; done when none is left."""
    give_up = time.monotonic() + bound
    while alive := processes_of(session_id):
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > give_up:
            raise TimeoutError(f"processes {sorted(alive)} do not end")
        time.sleep(0.01)


@contextlib.contextmanager
def child(program: str, *arguments: object, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program of this folder; at the end it is gone, and all that it started.

    What it prints goes to ``<program>.out`` and ``<program>.err`` in the directory. It has a pipe
    to write to it, whose end means that this process is gone: :func:`end_with_parent`.
    """
    with (
        (directory / f"{program}.out").open("w") as output,
        errors_of(program, directory).open("a") as errors,
    ):
        started = subprocess.Popen(
            [sys.executable, str(HERE / program), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            env=environment(),
            cwd=directory,
            text=True,
            start_new_session=True,
        )
        try:
            yield started
        finally:
            kill_session(started.pid)
            started.wait(30)
            started.stdin.close()


def errors_of(program: str, directory: Path) -> Path:
    """Where the errors of a program of this folder go."""
    return directory / f"{program}.err"


def output_of(program: str, *arguments: object, directory: Path, bound: float) -> str:
    """Return the output of a program of this folder; its errors are in the failure."""
    with child(program, *arguments, directory=directory) as running:
        try:
            how = f"ended with {running.wait(bound)}"
        except subprocess.TimeoutExpired:
            how = "took too long"
    if how != "ended with 0":
        errors = errors_of(program, directory).read_text(errors="replace")
        raise AssertionError(f"{program} {arguments} {how}:\n{errors[-6000:]}")
    return (directory / f"{program}.out").read_text()


# ---- clusters; started by a child, whose process session ends them


def spark_home() -> Path:
    """Path of pyspark, without loading it."""
    from importlib.util import find_spec

    return Path(find_spec("pyspark").origin).parent


def linked_home(directory: Path) -> Path:
    """Make a home of Spark's that is the installed one but for ``work``.

    local-cluster's executors work in ``SPARK_HOME/work``, which is in the package otherwise.
    """
    home = directory / "home"
    home.mkdir()
    for entry in spark_home().iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


@contextlib.contextmanager
def _daemon(class_name: str, *arguments: str, log: Path, **settings: str) -> Iterator[Path]:
    """Run one of Spark's daemons; its output goes to ``log``."""
    command = [str(spark_home() / "bin" / "spark-class"), class_name, *arguments]
    extra = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": JVM_FLAGS, **settings}
    with log.open("w") as output:
        started = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment() | extra,
            cwd=log.parent,
        )
    try:
        yield log
    finally:
        started.kill()
        started.wait(30)


def _said(log: Path, pattern: str, bound: float = 60.0) -> str:
    """Wait until a log has a line that matches, and return the group of the match."""
    give_up = time.monotonic() + bound
    while (match := re.search(pattern, log.read_text(errors="replace"))) is None:
        if time.monotonic() > give_up:
            raise TimeoutError(f"{log.name} never said {pattern!r}:\n{log.read_text()[-3000:]}")
        time.sleep(0.05)
    return match[1]


@contextlib.contextmanager
def standalone(directory: Path, *, workers: int = 2, memory: str = "1g") -> Iterator[str]:
    """Run a master and workers of one core each on free ports, and give the master's address."""
    deploy = "org.apache.spark.deploy"
    with contextlib.ExitStack() as stack:
        master = _daemon(
            f"{deploy}.master.Master",
            *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
            log=directory / "master.log",
        )
        url = _said(stack.enter_context(master), r"Starting Spark master at (spark://\S+)")
        logs = [
            stack.enter_context(
                _daemon(
                    f"{deploy}.worker.Worker",
                    *("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1"),
                    *("--memory", memory, "--work-dir", str(directory / f"worker-{number}"), url),
                    log=directory / f"worker-{number}.log",
                    SPARK_LOCAL_DIRS=str(directory / f"local-{number}"),
                )
            )
            for number in range(workers)
        ]
        for log in logs:
            _said(log, r"(Successfully registered with master)")
        yield url


@contextlib.contextmanager
def connect_server(directory: Path, settings: dict[str, str]) -> Iterator[str]:
    """Run a Spark Connect server with two local threads, and give the address for clients."""
    logging = {"spark.log.level": "INFO"}  # has the port
    options = [
        argument
        for name, value in (settings | logging).items()
        for argument in ("--conf", f"{name}={value}")
    ]
    server = _daemon(
        "org.apache.spark.deploy.SparkSubmit",
        *("--master", "local[2]", "--class"),
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        *options,
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--conf", "spark.connect.grpc.binding.port=0"),
        "spark-internal",
        log=directory / "connect.log",
        SPARK_DAEMON_MEMORY="1g",  # it is a daemon to the launcher: of this size its driver is
    )
    with server as log:
        port = _said(log, r"Spark Connect server started at: \S*:(\d+)")
        yield f"sc://127.0.0.1:{port}"


# ---- in the child


def end_with_parent(commands: IO[str]) -> Iterator[str]:
    """Give the lines that the parent writes, and end this process session when it is gone."""
    for line in commands:
        yield line.strip()
    os.killpg(0, signal.SIGKILL)


def session_settings(directory: Path) -> dict[str, str]:
    """Settings of a small session that leaves nothing outside of ``directory``."""
    for name in ("tmp", "s"):
        (directory / name).mkdir(exist_ok=True)
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{JVM_FLAGS} -Djava.io.tmpdir={directory / 'tmp'}",
        "spark.executor.extraJavaOptions": JVM_FLAGS,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
        **socket_settings(directory / "s"),
    }


def socket_settings(directory: Path) -> dict[str, str]:
    """Settings for workers behind sockets in a directory; its name may have 60 characters."""
    if len(str(directory)) > 60:
        return {"spark.python.unix.domain.socket.enabled": "false"}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(directory),
    }
