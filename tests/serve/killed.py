"""``rmqstore serve`` killed under load of Java clients: what was acknowledged, what was consumed.

The loads go on through the kills: producers send until they are told to stop, and consumers of one
group share the queues. Nothing acknowledged may be missing from the store, at its place, and all of
it must have come to a consumer.

Run as a program: ``python -m serve.killed --kills 50 --hand-overs 10``.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import rmqstore
from interop.broker import Broker
from serve.javaclients import JavaClients

START_TIMEOUT = 60.0
STOP_TIMEOUT = 60.0
COME_BACK_TIMEOUT = 60.0
LEAST = 10  # acknowledged messages between one event and the next


def free_port() -> int:
    """Return a free port whose VIP port is free too."""
    while True:
        with socket.socket() as main, socket.socket() as vip:
            main.bind(("127.0.0.1", 0))
            port: int = main.getsockname()[1]
            try:
                vip.bind(("127.0.0.1", port - 2))
            except OSError:
                continue
            return port


class ServeProcess:
    """``rmqstore serve`` in a process of its own.  A context manager."""

    def __init__(self, path: Path, port: int, *options: str) -> None:
        self.path = path
        self.port = port
        self.log = path.parent / f"{path.name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "rmqstore",
                    "serve",
                    str(path),
                    "--port",
                    str(port),
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    raise AssertionError(f"no server: {self.log.read_text()[-3000:]}") from None
                time.sleep(0.02)
            else:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()

    def kill(self) -> None:
        """Kill it as ``kill -9`` does."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT)

    def stop(self) -> None:
        """End it as a service manager does."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(STOP_TIMEOUT)
        assert code == 0, f"exit code {code}: {self.log.read_text()[-3000:]}"
        assert not (self.path / "abort").exists()


@dataclass
class Seen:
    """Output of the clients of a load so far.

    What consumers have had is in files of theirs, which a consumer that is killed leaves whole.
    """

    scratch: Path
    acknowledged: dict[str, tuple[int, int]] = field(default_factory=dict)
    statuses: list[str] = field(default_factory=list)
    errors: int = 0

    @property
    def got(self) -> Counter[str]:
        """How often each body was consumed."""
        counts: Counter[str] = Counter()
        for path in self.scratch.glob("*.consumed"):
            text = path.read_bytes().decode()
            counts.update(text[: text.rfind("\n") + 1].splitlines())
        return counts

    def load(self, process: JavaClients, name: str, port: int, topic: str, threads: int) -> None:
        """Begin to send and to consume."""
        process.call(
            "load_start",
            name=name,
            namesrv=f"127.0.0.1:{port}",
            topic=topic,
            threads=threads,
            consume=True,
            consumed=str(self.scratch / f"{name}.consumed"),
        )

    def more(self, loads: list[tuple[JavaClients, str]]) -> None:
        """Wait until further messages are acknowledged."""
        for process, name in loads:
            self.take(process.call("load_rows", name=name)[0])
        enough = len(self.acknowledged) + LEAST
        deadline = time.monotonic() + COME_BACK_TIMEOUT
        while len(self.acknowledged) < enough:
            assert time.monotonic() < deadline, "clients did not come back"
            time.sleep(0.1)
            for process, name in loads:
                self.take(process.call("load_rows", name=name)[0])

    def all_consumed(self, seconds: float) -> bool:
        """Wait until all acknowledged messages are consumed."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.acknowledged.keys() <= self.got.keys():
                return True
            time.sleep(0.2)
        return False

    def take(self, rows: list[list[Any]]) -> None:
        """Add rows."""
        for row in rows:
            match row[0]:
                case "acknowledged":
                    self.acknowledged[row[1]] = (row[2], row[3])
                case "status":
                    self.statuses.append(row[1])
                case "error":
                    self.errors += 1


def campaign(scratch: Path, *, kills: int, seed: str, hand_overs: int = 0) -> dict[str, int]:
    """Kill the server so often under load; return counts.  AssertionError if anything is lost."""
    chance = random.Random(seed)
    path = scratch / "store"
    topic = "killed"
    port = free_port()
    seen = Seen(scratch)
    options = ("--flush", "sync")
    server = ServeProcess(path, port, *options)
    try:
        with JavaClients() as clients, JavaClients() as others:
            loads = [(clients, "one"), (others, "two")]
            for process, name in loads:
                seen.load(process, name, port, topic, 2)
            for _ in range(kills):
                time.sleep(chance.uniform(0.3, 1.2))
                server.kill()
                time.sleep(chance.uniform(0, 0.2))
                server = ServeProcess(path, port, *options)
                seen.more(loads)
            # One of the two dies while the other sends: its queues are taken over.
            others.call("load_quiet", name="two")
            seen.take(others.call("load_rows", name="two")[0])
            others.kill()
            seen.more([(clients, "one")])
            clients.call("load_quiet", name="one")
            seen.take(clients.call("load_rows", name="one")[0])
            seen.all_consumed(60)
            seen.take(clients.call("load_stop", name="one")[0])
        server.stop()
    finally:
        if server.process.poll() is None:
            server.kill()
    check(path, topic, seen)
    for _ in range(hand_overs):
        hand_over(path, port, topic, seen, chance)
    return {
        "kills": kills,
        "hand-overs": hand_overs,
        "acknowledged": len(seen.acknowledged),
        "consumed": sum(seen.got.values()),
        "errors at clients": seen.errors,
    }


def check(path: Path, topic: str, seen: Seen) -> None:
    """Check that acknowledged messages are stored at their reported places, and were consumed."""
    assert not seen.statuses, seen.statuses[:5]
    with rmqstore.open(path, "r") as store:
        stored = {
            message.body.decode(): (message.queue_id, message.queue_offset)
            for message in store[topic].messages()
        }
    lost = {body: place for body, place in seen.acknowledged.items() if stored.get(body) != place}
    assert not lost, f"{len(lost)} lost or elsewhere: {list(lost.items())[:5]}"
    got = seen.got
    missed = seen.acknowledged.keys() - got.keys()
    assert not missed, f"{len(missed)} never consumed: {sorted(missed)[:5]}"


def sha1(body: str) -> str:
    """Return the digest as the Java programs write it."""
    return base64.b64encode(hashlib.sha1(body.encode()).digest()).decode()


def hand_over(path: Path, port: int, topic: str, seen: Seen, chance: random.Random) -> None:
    """Give the directory to a real broker, which sends and reads, and take it back, with sends."""
    name = f"turn-{chance.getrandbits(32):08x}"
    with Broker() as broker:
        broker.start(path, {}, {})
        pulled = {
            one.uniq_key if hasattr(one, "uniq_key") else one.body_sha1
            for one in broker.pull(topic)
        }
        assert len(pulled) >= len(seen.acknowledged) * 9 // 10
        for n in range(20):
            sent = broker.send(
                [{"topic": topic, "body": f"{name}:{n}".encode(), "queue_id": n % 4}]
            )[0]
            assert sent.status == "SEND_OK"
            seen.acknowledged[f"{name}:{n}"] = (sent.queue_id, sent.queue_offset)
        assert broker.shutdown()
    with ServeProcess(path, port, "--flush", "sync") as server, JavaClients() as clients:
        seen.load(clients, name, port, topic, 1)
        seen.more([(clients, name)])
        clients.call("load_quiet", name=name)
        seen.take(clients.call("load_rows", name=name)[0])
        seen.all_consumed(60)
        seen.take(clients.call("load_stop", name=name)[0])
        server.stop()
    check(path, topic, seen)


def main() -> int:
    """Run the campaign as a program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--hand-overs", type=int, default=10)
    parser.add_argument("--seed", default=f"{random.SystemRandom().getrandbits(32):x}")
    parser.add_argument("--scratch", type=Path)
    arguments = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="killed-", dir=arguments.scratch))
    print(f"seed {arguments.seed}", flush=True)
    counts = campaign(
        scratch, kills=arguments.kills, seed=arguments.seed, hand_overs=arguments.hand_overs
    )
    for name, count in counts.items():
        print(f"{count:>12,}  {name}")
    shutil.rmtree(scratch)
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
