"""Client of ``interop/``'s StoreDriver: the real DefaultMessageStore 4.9.3 in a process of its own.

Every call is bounded: the driver ends itself when a request takes longer than its timeout, and this
side kills it a little later should it not.  It also ends when its standard input does, so that none
outlives the tests.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import ipaddress
import itertools
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / "interop"
TARGET = PROJECT / "target"
JAR = TARGET / "store-driver.jar"

BUILD_TIMEOUT = 600.0
CALL_TIMEOUT = 60.0
GRACE = 10.0  # seconds beyond a request's own timeout until the driver is killed
END_TIMEOUT = 60.0  # seconds until a process that is to end is gone
FOREVER = (1 << 63) - 1

# File sizes of the small broker stores and of the small stores that the tests write.
SMALL = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}
DEFAULT: dict[str, int] = {}

JAVA_FLAGS = [
    # Without these a mapped file cannot be unmapped, and a clean shutdown fails half-way.
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "-Xmx1g",
    "-XX:TieredStopAtLevel=1",
    "-Dfile.encoding=UTF-8",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    # A disk that is nearly full is not what these tests are about.
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.999",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.999",
]


class DriverError(Exception):
    """The driver answered with an error, ended, or gave no answer in time."""


class Unit(NamedTuple):
    """One consume queue unit and the fields of the record it points to (None: no record there)."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    record: dict[str, Any] | None


class ExtUnit(NamedTuple):
    """The tags code of a consume queue unit, and its ext unit; ``None``: it has none."""

    address: int | None
    tags_code: int | None
    store_timestamp: int | None
    bitmap: bytes | None


class Put(NamedTuple):
    """What the real store answered to one message, or to one batch."""

    status: str
    append_status: str | None
    physical_offset: int | None
    queue_offset: int | None
    wrote_bytes: int | None
    msg_id: str | None


class Got(NamedTuple):
    """What ``getMessage`` answered."""

    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    records: list[dict[str, Any]]


def _stamp(project: Path) -> str:
    """Digest of everything that the jar is made from."""
    digest = hashlib.sha256()
    for path in [project / "pom.xml", *sorted((project / "src").rglob("*.java"))]:
        digest.update(str(path.relative_to(project)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def build(jar: Path = JAR) -> None:
    """Build the driver and collect its class path, unless that was done for these sources."""
    target = jar.parent
    project = target.parent
    target.mkdir(exist_ok=True)
    stamp = target / ".built-from"
    with (target / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        want = _stamp(project)
        if jar.exists() and stamp.exists() and stamp.read_text() == want:
            return
        done = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(project / "pom.xml"), "package"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=BUILD_TIMEOUT,
            check=False,
        )
        if done.returncode != 0:
            raise DriverError(f"mvn package failed:\n{done.stdout.decode(errors='replace')}")
        stamp.write_text(want)


def host(text: str) -> tuple[str, int]:
    """``ip:port`` or ``[v6]:port`` as (shortest form of the address, port)."""
    ip, _, port = text.rpartition(":")
    return str(ipaddress.ip_address(ip.strip("[]"))), int(port)


def copy(source: Path, to: Path) -> Path:
    """Copy a store directory with its holes and times."""
    to.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(to)], check=True, timeout=120)
    return to


class JavaProcess:
    """A Java program that answers requests, a JSON object a line.  A context manager."""

    main: str
    jar: Path = JAR
    flags: tuple[str, ...] = ()
    end_timeout = END_TIMEOUT

    def __init__(self) -> None:
        self.build()
        self._home = Path(tempfile.mkdtemp(prefix="interop-"))
        self._log = (self._home / "log").open("wb")
        self._process = subprocess.Popen(
            [
                "java",
                *JAVA_FLAGS,
                *self.flags,
                f"-Duser.home={self._home}",
                f"-Djava.io.tmpdir={self._home}",
                "-cp",
                f"{self.jar}{os.pathsep}{self.jar.parent / 'lib'}/*",
                self.main,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=self._home,
        )
        self.pid = self._process.pid
        self._in = self._process.stdin
        self._out = self._process.stdout
        assert self._in is not None
        assert self._out is not None
        os.set_blocking(self._out.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)
        self._unread = bytearray()
        self._opened = False
        self.alive = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def log(self) -> str:
        """Return what the real store has logged so far, warnings and errors."""
        return (self._home / "log").read_text(errors="replace")

    # ---- the process

    def build(self) -> None:
        """Make the program, unless that was done."""
        build(self.jar)

    def close(self) -> None:
        """End the process, however it is, and remove what it left.  An open store is not closed."""
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def kill(self) -> None:
        """Kill the process as ``kill -9`` does; what it had open is as after a crash."""
        if self._process.poll() is None:
            self._process.kill()
        self._reap()

    def hang_up(self) -> int:
        """Close its standard input; return the exit code that this must lead to."""
        self._in.close()
        try:
            return self._process.wait(timeout=END_TIMEOUT)
        finally:
            self.kill()

    def _reap(self) -> None:
        self.alive = False
        self._opened = False
        self._process.wait(timeout=self.end_timeout)
        self._selector.close()
        with contextlib.suppress(OSError):
            self._in.close()
        self._out.close()
        self._log.close()

    def _line(self, deadline: float) -> bytes:
        while True:
            end = self._unread.find(b"\n")
            if end >= 0:
                line = bytes(self._unread[:end])
                del self._unread[: end + 1]
                return line
            left = deadline - time.monotonic()
            if left <= 0 or not self._selector.select(left):
                raise DriverError("no answer in time")
            chunk = os.read(self._out.fileno(), 1 << 20)
            if not chunk:
                raise DriverError("the driver ended")
            self._unread += chunk

    def call(self, op: str, *, timeout: float = CALL_TIMEOUT, **fields: Any) -> tuple[list, dict]:
        """Send one request; return its rows and its last line."""
        if not self.alive:
            raise DriverError("the driver has ended")
        request = json.dumps({"op": op, "timeout": int(timeout), **fields}).encode() + b"\n"
        deadline = time.monotonic() + timeout + GRACE
        rows: list = []
        try:
            self._in.write(request)
            self._in.flush()
            while True:
                line = self._line(deadline)
                if line.startswith(b"{"):
                    break
                rows.append(json.loads(line))
        except (DriverError, BrokenPipeError) as e:
            log = self.log()[-4000:]
            self.kill()
            raise DriverError(f"{op}: {e}; its log ends with:\n{log}") from None
        end = json.loads(line)
        if "exit" in end or end.get("error") == "timeout":
            self._reap()
        if not end["ok"]:
            raise DriverError(f"{op}: {end['error']}")
        return rows, end


class StoreReader(JavaProcess):
    """What a program answers that has a real store open: all that only reads it."""

    def info(self) -> dict[str, Any]:
        """Offsets of the log, how far dispatch is behind, and whether the store takes messages."""
        return self.call("info")[1]

    def flush(self) -> None:
        """Force everything that the real store forces."""
        self.call("flush")

    def dump(
        self, topic: str | None = None, *, body: bool = False, raw: bool = False
    ) -> list[Unit]:
        """Every unit of every queue, with its record; ``body`` and ``raw`` bytes if asked for."""
        rows, end = self.call("dump", topic=topic, body=body, raw=raw)
        assert end["count"] == len(rows)
        return [Unit(*row[:6], _record(row[6])) for row in rows]

    def query(
        self, topic: str, key: str, max_num: int = 64, begin: int = 0, end: int = FOREVER
    ) -> list[dict[str, Any]]:
        """``queryMessage``: records in the order of the answer, which may name one twice."""
        rows, _ = self.call("query", topic=topic, key=key, max=max_num, begin=begin, end=end)
        return [_record(row[0]) for row in rows]

    def locate(
        self,
        keys: list[tuple[str, str]],
        max_num: int = 1 << 14,
        begin: int = 0,
        end: int = FOREVER,
    ) -> list[list[int]]:
        """For each (topic, key) the index's physical offsets, newest first, equal hashes too."""
        return self.call("locate", keys=keys, max=max_num, begin=begin, end=end)[0]

    def records(self, offsets: list[int]) -> list[tuple[dict[str, Any], bytes]]:
        """For each physical offset the record, with body and raw bytes, and it encoded again."""
        rows, _ = self.call("records", offsets=offsets, body=True, raw=True)
        return [(_record(row[0]), base64.b64decode(row[1])) for row in rows]

    def get(
        self, topic: str, queue_id: int, offset: int, max_num: int = 32, tags: str | None = None
    ) -> Got:
        """``getMessage``, with the tag filter if one is given."""
        rows, end = self.call(
            "get", topic=topic, queue_id=queue_id, offset=offset, max=max_num, tags=tags
        )
        records = [_record(row[0]) for row in rows]
        return Got(end["status"], end["next_offset"], end["min_offset"], end["max_offset"], records)

    def offsets_at(self, topic: str, queue_id: int, times: list[int]) -> list[int]:
        """``getOffsetInQueueByTime`` for each time."""
        return [row[0] for row in self.call("time", topic=topic, queue_id=queue_id, times=times)[0]]

    def ext_units(self) -> dict[tuple[str, int, int], ExtUnit]:
        """Every unit by topic, queue and queue offset, with what ``getExt`` says of its code."""
        return {
            (topic, queue_id, offset): ExtUnit(
                *(None if one is None else int(one) for one in fields),  # longs come as text
                None if bits is None else base64.b64decode(bits),
            )
            for topic, queue_id, offset, *fields, bits in self.call("ext")[0]
        }

    def answers(self, method: str, arguments: list[list[Any]]) -> list[Any]:
        """What a method of MessageStore that reads answers to each list of arguments."""
        return [row[0] for row in self.call("call", method=method, arguments=arguments)[0]]

    def minmax(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Min and max offset of every queue that the store knows of, empty ones too."""
        return {(row[0], row[1]): (row[2], row[3]) for row in self.call("minmax")[0]}


class Driver(StoreReader):
    """A process that has at most one store open, a DefaultMessageStore without a broker."""

    main = "rmqstore.interop.StoreDriver"

    def names(self) -> list[list[str]]:
        """Methods of MessageStore and fields of MessageStoreConfig: kind, name, types."""
        return self.call("names")[0]

    def open(
        self, path: Path, config: dict[str, Any] | None = None, **options: Any
    ) -> dict[str, Any]:
        """Load and start the store there; the answer's ``load`` and ``start`` tell whether it did.

        ``config`` has MessageStoreConfig's names.  ``clean`` in the answer: there was no ``abort``.
        """
        end = self.call("open", dir=str(path), config=config or {}, **options)[1]
        self._opened = end["start"]
        return end

    def bloom(self, filters: list[tuple[int, int, str]]) -> list[tuple[int, int, list[int]]]:
        """Of each error rate, number of subscriptions and text: k, m and the text's bits."""
        return [tuple(row) for row in self.call("bloom", filters=filters)[0]]

    def shutdown(self) -> bool:
        """Shut down cleanly; return whether ``abort`` is gone."""
        self._opened = False
        return self.call("shutdown")[1]["clean"]

    def clean(self, reserved_ms: int) -> int:
        """One round of retention: of files not changed for so long; how many of the log it took."""
        return self.call("clean", reserved_ms=reserved_ms)[1]["files"]

    def halt(self) -> None:
        """End the process by ``Runtime.halt``, with the store open."""
        self.call("halt")

    def reset(self) -> None:
        """Leave no store open; what a test that failed left behind is closed here."""
        if self.alive and self._opened:
            self.shutdown()

    def append(self, messages: list[dict[str, Any]], *, wait: bool = True) -> list[Put]:
        """``putMessage`` for each: rmqstore's field names, ``body`` bytes, ``properties`` a dict.

        Returns when they are dispatched, or at once without ``wait``.
        """
        rows, _ = self.call("append", messages=[_message(m) for m in messages], wait=wait)
        return [Put(*row) for row in rows]

    def deflated(self, bodies: list[bytes]) -> list[bytes]:
        """Each body as the real client's producer compresses it."""
        given = [base64.b64encode(body).decode() for body in bodies]
        return [base64.b64decode(row[0]) for row in self.call("deflate", bodies=given)[0]]

    def inflated(self, records: list[bytes]) -> list[bytes]:
        """The body of each record as the real client's consumer has it."""
        given = [base64.b64encode(record).decode() for record in records]
        return [base64.b64decode(row[0]) for row in self.call("inflate", records=given)[0]]

    def traces(self, contexts: list[dict[str, Any]]) -> list[tuple[bytes, list[list[Any]]]]:
        """The real client's trace message for each context, and what it reads of it itself."""
        rows, _ = self.call("traces", contexts=contexts)
        return [(base64.b64decode(row[0]), row[1]) for row in rows]

    def killed_at_work(
        self, requests: list[dict[str, Any]], answers: int, ahead: int = 4
    ) -> list[list[Put]]:
        """Send ``append`` and ``batch`` requests, and kill the process after so many answers.

        ``ahead`` requests are always under way. Returns the rows of each request that was answered
        before the end, of the last one perhaps not all.
        """
        left = iter(requests)
        deadline = time.monotonic() + CALL_TIMEOUT
        done: list[list[Put]] = [[]]

        def send(count: int) -> None:
            for request in itertools.islice(left, count):
                messages = [_message(m) for m in request["messages"]]
                request = {**_message(request), "messages": messages}
                self._in.write(json.dumps(request).encode() + b"\n")
            self._in.flush()

        send(ahead)
        while True:
            try:
                line = self._line(deadline)
            except DriverError:  # killed, and all that it had said is read
                break
            if line.startswith(b"["):
                done[-1].append(Put(*json.loads(line)))
                continue
            assert json.loads(line)["ok"], line
            done.append([])
            if len(done) > answers:
                self._process.kill()
            else:
                send(1)
        assert len(done) > answers, self.log()
        self._reap()
        return done

    def batch(
        self, topic: str, queue_id: int, messages: list[dict[str, Any]], **fields: Any
    ) -> Put:
        """``putMessages``: one client batch of messages with ``body``, ``properties``, ``flag``."""
        fields = _message({"topic": topic, "queue_id": queue_id, **fields})
        rows, _ = self.call("batch", messages=[_message(m) for m in messages], **fields)
        return Put(*rows[0])


def _message(message: dict[str, Any]) -> dict[str, Any]:
    message = dict(message)
    if "body" in message:
        message["body"] = base64.b64encode(message["body"]).decode()
    message["properties"] = list(message.get("properties", {}).items())
    return message


def _record(record: dict[str, Any] | None) -> dict[str, Any] | None:
    if record is not None:
        for name in ("body", "raw"):
            if name in record:
                record[name] = base64.b64decode(record[name])
    return record
