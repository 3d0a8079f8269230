"""A Java program that knows nothing of rmqstore sends to a store, as it would to a broker.

The program is `interop/clients/src/main/java/rmqstore/clients/Producer.java`: RocketMQ's own client
4.9.3, `DefaultMQProducer`, told nothing but the address of a name server. Here it gets the address
of a store that this process serves; what it has sent is then read from that store, in Python.

    mvn -q -f interop/clients/pom.xml package
    python examples/producer.py build/producer

It needs Java 17; Maven fetches and compiles once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import rmqstore

CLIENTS = Path(__file__).resolve().parents[1] / "interop/clients/target"
PROGRAM = "rmqstore.clients.Producer"
TIMEOUT = 60  # seconds


def run_program(clients: Path, namesrv: str, home: Path) -> str:
    """Run the Java program and return what it prints."""
    home_of_java = os.environ.get("JAVA_HOME")
    java = f"{home_of_java}/bin/java" if home_of_java else "java"
    done = subprocess.run(
        [
            java, "-cp", f"{clients / 'clients.jar'}{os.pathsep}{clients / 'lib'}/*",
            "-Drocketmq.client.logUseSlf4j=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            f"-Duser.home={home}", PROGRAM, namesrv,
        ],
        capture_output=True, text=True, check=False, timeout=TIMEOUT,
    )  # fmt: skip
    if done.returncode != 0:
        sys.exit(f"the Java program ended with {done.returncode}:\n{done.stderr}")
    return done.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path, help="is made anew, with the store in it")
    parser.add_argument("--clients", type=Path, default=CLIENTS, help="where Maven has put the jar")
    options = parser.parse_args()
    if not (options.clients / "clients.jar").exists():
        sys.exit("first: mvn -q -f interop/clients/pom.xml package")
    shutil.rmtree(options.directory, ignore_errors=True)
    options.directory.mkdir(parents=True)

    with rmqstore.serve(options.directory / "store") as server:
        print(f"a store is served at {server.address}")
        print(f"$ java {PROGRAM} {server.address}")
        print(run_program(options.clients, server.address, options.directory))
        message = server.store["Topic1"][2][0]
        print(
            f"in the store: {message.topic}/{message.queue_id}@{message.queue_offset}"
            f"  tag {message.tags}  psly={message.properties['psly']}"
            f"  {message.body.decode()!r}"
        )
    with rmqstore.open(options.directory / "store") as store:  # a broker may open it just so
        print(f"after its close: {store['Topic1'][2][0].body.decode()!r}")


if __name__ == "__main__":
    main()
