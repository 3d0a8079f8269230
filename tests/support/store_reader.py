"""A program that looks at stores, each time in a forked child with bounded time and memory.

A line of its input is one look, a line of its output what the child found, in JSON.  A child costs
a fork, not another start of Python, which is most of the time where a sanitizer watches.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

# A free-threaded Python reserves as much again at its start.
MEMORY = 1 << (31 if sysconfig.get_config_var("Py_GIL_DISABLED") else 30)
SECONDS = 60


class Looker:
    """The program, as its caller has it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).resolve()],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def look(self, *question: Any) -> dict[str, Any]:
        """Ask; what a child that died has written to standard error is in the test's output."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert answer["status"] == 0, answer
        return answer["said"]

    def close(self) -> None:
        self.process.communicate(timeout=SECONDS)


def look(
    root: str, mode: str, fill: str, verify: str, sizes: dict[str, int], count: int
) -> dict[str, Any]:
    """Read all there is and ask for the first ``count`` keys."""
    said: dict[str, Any] = {"bodies": [], "corrupt": [], "opened": False, "keys": []}
    try:
        config = rmqstore.StoreConfig(**sizes)
        with rmqstore.open(root, mode, config=config, on_corruption=fill, verify=verify) as store:
            said["opened"] = True
            said["cut"] = store.recovery.bytes_cut
            said["saved"] = list(store.recovery.saved_to)
            said["notes"] = list(store.recovery.notes)
            for topic in store.topics.values():
                for queue in topic.values():
                    for at in range(queue.min_offset, queue.max_offset):
                        try:
                            m = queue[at]
                        except rmqstore.StoreCorruptError as error:
                            said["corrupt"].append(str(error))
                        except LookupError:
                            pass
                        else:
                            said["bodies"].append([m.topic, m.queue_id, at, m.body.decode()])
            for number in range(count):
                try:
                    found = store.query("Topic1", f"k{number}")
                except rmqstore.StoreCorruptError as error:
                    said["corrupt"].append(str(error))
                    found = []
                said["keys"].append([m.body.decode() for m in found])
    except (rmqstore.StoreError, OSError) as error:
        said["error"] = [type(error).__name__, str(error)]
    return said


def bounded(writing: int, question: list[Any]) -> None:
    """Be the child: less memory than a hostile length asks for; a sanitizer's shadow needs more."""
    status = 1
    try:
        signal.alarm(SECONDS)
        if "asan" not in os.environ.get("LD_PRELOAD", ""):
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        with os.fdopen(writing, "w") as pipe:
            json.dump(look(*question), pipe)
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
        os._exit(status)


def main() -> None:
    for line in sys.stdin:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            bounded(writing, json.loads(line))
        os.close(writing)
        with os.fdopen(reading) as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        print(f'{{"status": {code}, "said": {(code == 0 and said) or "null"}}}', flush=True)


if __name__ == "__main__":
    import rmqstore

    _ = rmqstore.open  # it and all it needs are loaded at first use: here, for every child
    main()
