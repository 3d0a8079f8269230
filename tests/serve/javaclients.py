"""Client of ``interop/clients``: real Java clients that run scenarios against a name server."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
from pathlib import Path
from typing import Any

from interop.driver import BUILD_TIMEOUT, PROJECT, DriverError, JavaProcess

CLIENTS = PROJECT / "clients"
FOUR = "4.9.3"
FIVE = "5.3.3"
TIMEOUT = 300.0  # of a scenario, which waits for each of its steps up to a minute


def build(version: str) -> Path:
    """Compile the program with the client of a release, once; return its jar."""
    target = CLIENTS / ("target" if version == FOUR else "target-five")
    target.mkdir(exist_ok=True)
    jar = target / "clients.jar"
    digest = hashlib.sha256(version.encode())
    for path in [CLIENTS / "pom.xml", *sorted((CLIENTS / "src").rglob("*.java"))]:
        digest.update(str(path.relative_to(CLIENTS)).encode() + b"\0" + path.read_bytes())
    stamp = target / ".built-from"
    with (target / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if jar.exists() and stamp.exists() and stamp.read_text() == digest.hexdigest():
            return jar
        done = subprocess.run(
            [
                "mvn", "-q", "-B", "-f", str(CLIENTS / "pom.xml"), f"-Drocketmq.version={version}",
                f"-Dclients.target={target.name}", "package",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=BUILD_TIMEOUT,
            check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise DriverError(f"mvn package failed:\n{done.stdout.decode(errors='replace')}")
        stamp.write_text(digest.hexdigest())
    return jar


class JavaClients(JavaProcess):
    """A process of clients of one release.  A context manager.

    Parameters
    ----------
    version : str, optional
        Of ``rocketmq-client``.
    flags : tuple of str, optional
        System properties of the process.
    """

    main = "rmqstore.clients.Main"
    flags = ("-Drocketmq.client.logUseSlf4j=true", "-Dio.netty.noUnsafe=false")

    def __init__(self, version: str = FOUR, flags: tuple[str, ...] = ()) -> None:
        self.version = version
        self.flags = (*type(self).flags, *flags)
        super().__init__()

    def build(self) -> None:
        """Make the program with the client of the release."""
        self.jar = build(self.version)

    def run(self, scenario: str, namesrv: str, **fields: Any) -> list[list[Any]]:
        """Run a scenario; return the output of the clients: rows ``[kind, ...]``."""
        return self.call("run", timeout=TIMEOUT, scenario=scenario, namesrv=namesrv, **fields)[0]
