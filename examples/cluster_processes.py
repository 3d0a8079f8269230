"""A Spark standalone master, its workers, and jobs given to it, on loopback.

Each is started in a process session of its own, and ended with all that it has started: executors
and Python workers too, which leave its process group.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # tasks go to both executors
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

Process = subprocess.Popen[str]


class Cluster:
    """Processes with their logs and other files in one directory.

    Everything must be done within ``bound`` seconds.
    """

    def __init__(self, directory: Path, bound: float) -> None:
        self.directory = directory
        self.began = time.monotonic()
        self.bound = bound
        self.children: list[Process] = []
        self.url = ""
        directory.mkdir()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for child in reversed(self.children[:]):
            self.end(child)

    def seconds(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self.began

    def until(self, done: Callable[[], Any], expected: str) -> Any:
        """Wait until ``done()`` is true, and return its value."""
        while not (value := done()):
            if self.seconds() > self.bound:
                raise SystemExit(f"not within {self.bound:.0f} s: {expected}")
            time.sleep(0.02)
        return value

    def start_master(self) -> None:
        """Start the master on a free port."""
        command = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0"]
        self._start("master", [program("spark-class"), *command, "--webui-port", "0"])
        self.url = self._logged("master", r"Starting Spark master at (spark://\S+)")

    def start_worker(self, name: str, *before: str) -> Process:
        """Start a worker of one core and 1 GB, by the command ``before`` it if any."""
        command = [
            *before, program("spark-class"), "org.apache.spark.deploy.worker.Worker",
            "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g",
            "--work-dir", str(self.directory / f"{name}.work"), self.url,
        ]  # fmt: skip
        worker = self._start(name, command)
        self._logged(name, "(Successfully registered with master)")
        return worker

    def executors(self) -> tuple[int, int]:
        """Return the number of executors started so far, and of their workers."""
        log = (self.directory / "master.err").read_text(errors="replace")
        workers = re.findall(r"Launching executor \S+ on worker (\S+)", log)
        return len(workers), len(set(workers))

    def submit(self, job: Path, step: str, *arguments: object, **settings: str) -> Process:
        """Start a step of a job."""
        options = {
            **SETTINGS,
            "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Djava.io.tmpdir={self.directory}",
            "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
            **settings,
        }
        command = [
            program("spark-submit"), "--master", self.url, "--total-executor-cores", "2",
            "--executor-cores", "1", "--executor-memory", "1g", "--driver-memory", "1g",
            *(word for pair in options.items() for word in ("--conf", "=".join(pair))),
            str(job), step, *map(str, arguments),
        ]  # fmt: skip
        return self._start(step, command)

    def result(self, step: str, job: Process) -> Any:
        """Wait for the end of a step, and return its result: the last line that it has printed."""
        self.until(lambda: job.poll() is not None, f"the end of {step}")
        if job.returncode != 0:
            errors = (self.directory / f"{step}.err").read_text(errors="replace")
            raise SystemExit(f"{step} failed:\n{errors[-4000:]}")
        self.end(job)
        return json.loads((self.directory / f"{step}.out").read_text().splitlines()[-1])

    def kill_executor(self, worker: Process) -> None:
        """Kill a worker's executor, and nothing else."""
        running = _processes(worker.pid).items()
        executors = [pid for pid, line in running if "CoarseGrainedExecutorBackend" in line]
        if not executors:
            raise SystemExit("the worker has no executor to kill")
        for pid in executors:
            os.kill(pid, signal.SIGKILL)

    def end(self, child: Process) -> None:
        """Kill a process and all that it has started."""
        give_up = time.monotonic() + 20
        while alive := _processes(child.pid):
            if time.monotonic() > give_up:
                raise SystemExit(f"processes {sorted(alive)} do not end")
            for pid in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        child.wait()
        self.children.remove(child)

    def _start(self, name: str, command: list[str]) -> Process:
        environment = {
            **os.environ,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_JAVA_OPTS": f"{JAVA_OPTIONS} -Djava.io.tmpdir={self.directory}",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": str(Path(program("")).parent),
            "SPARK_LOCAL_DIRS": str(self.directory),
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(self.directory),
        }
        with (
            (self.directory / f"{name}.out").open("w") as output,
            (self.directory / f"{name}.err").open("w") as errors,
        ):
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, text=True,
                env=environment, start_new_session=True,
            )  # fmt: skip
        self.children.append(child)
        return child

    def _logged(self, name: str, pattern: str) -> str:
        """Wait for a line of a daemon's log; return the pattern's group."""
        log = self.directory / f"{name}.err"
        found = self.until(
            lambda: re.search(pattern, log.read_text(errors="replace")), f"{pattern!r} in {log}"
        )
        return found[1]


def program(name: str) -> str:
    """Return the path of one of Spark's programs."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SystemExit("first, in the checkout: pip install '.[spark]'")
    return str(Path(spec.origin).parent / "bin" / name)


def _processes(session: int) -> dict[int, str]:
    """Return the living processes of a process session, with their command lines."""
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # After the name, which may have spaces: state, parent, group, session.
            state = (directory / "stat").read_bytes().rpartition(b")")[2].split()
            if int(state[3]) == session and state[0] not in (b"Z", b"X"):
                found[int(directory.name)] = (directory / "cmdline").read_text(errors="replace")
    return found
