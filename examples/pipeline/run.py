"""The pipeline through a bad day, and whether it adds up.

Orders are put while ``job.py`` sums them up. Its whole process is killed with ``kill -9`` and
started again. It is then stopped, retention removes orders that it has not read, it refuses to go
on, and goes on where the loss is accepted. Some minutes are computed again with their late orders.
In the end each order is looked for.

    python examples/pipeline/run.py build/pipeline
    python examples/pipeline/run.py build/pipeline --short

It needs ``pip install ".[examples]"`` in the checkout and Java 17.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import orders
import picture
import pyspark
import report
from job import TOPICS, Places
from orders import Run

import rmqstore

HERE = Path(__file__).parent
MARK = "made-by-the-pipeline-example"
PATIENCE = 600  # seconds for a step, on a busy machine


class Spark:
    """Processes of the pipeline, and samples of their metrics."""

    def __init__(self, places: Places) -> None:
        self.log = places.root / "job.log"
        self._places = places
        self.samples: list[picture.Sample] = []
        self.events: list[tuple[float, str]] = []
        self._children: list[subprocess.Popen[bytes]] = []
        self._stderr = self.log.open("ab")

    def start(self, script: str, *arguments: object) -> subprocess.Popen[bytes]:
        """Start a script in a process group of its own, so that it can be killed whole."""
        environment = {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **os.environ,
            "SPARK_CONF_DIR": str(self._places.root / "conf"),
        }
        command = [sys.executable, str(HERE / script), *map(str, arguments)]
        child = subprocess.Popen(
            command, start_new_session=True, env=environment, stderr=self._stderr
        )
        self._children.append(child)
        return child

    def note(self, text: str) -> None:
        """Print an event; the picture has it as well."""
        self.events.append((time.time(), text))
        print(f"{time.time() - self.events[0][0]:4.0f} s  {text}", flush=True)

    def wait(self, done: Callable[[], object], job: subprocess.Popen[bytes]) -> None:
        """Take samples until ``done``, while a job runs."""
        give_up = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > give_up or job.poll() is not None:
                raise SystemExit(f"the pipeline stands still; see {self.log}")
            self.samples.append(self.latest())
            time.sleep(picture.PERIOD)

    def latest(self) -> picture.Sample:
        """Return the present metrics."""
        return picture.sample(self._places.metrics)

    def last_error(self) -> str:
        """Return the latest error of a job."""
        lines = self.log.read_text(errors="replace").splitlines()
        name = "DataLossError"
        return [line[line.index(name) :] for line in lines if name in line][-1]

    def stop(self, job: subprocess.Popen[bytes]) -> None:
        """Stop a job as its scheduler would."""
        job.terminate()
        if job.wait(timeout=PATIENCE):
            raise SystemExit(f"the job failed; see {self.log}")

    def kill(self, child: subprocess.Popen[bytes]) -> None:
        """Kill a process and all that it started, as ``kill -9`` does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(timeout=30)

    def close(self) -> None:
        """Kill what still runs."""
        for child in self._children:
            if child.poll() is None:
                self.kill(child)
        self._stderr.close()


def run(root: Path, *, rate: int, seconds: int) -> bool:
    """Run it all; whether each order is found once."""
    places = Places(root)
    configure_spark(root)
    minutes = int(seconds * orders.MINUTES_A_SECOND)
    some = Run(0, 500, 0, 1)
    paced = Run(some.orders, rate * seconds, 1, minutes)
    unread = Run(paced.first + paced.orders, paced.orders // 2, 1 + minutes, 60)
    with rmqstore.open(places.orders, "a", config=orders.CONFIG) as store:
        orders.put_run(store, some)
    spark = Spark(places)
    try:
        spark.note("Spark starts")
        job = spark.start("job.py", "stream", root)
        spark.wait(lambda: "totals" in spark.latest().reported, job)

        spark.note(f"orders are put, {rate:,} a second")
        writer = spark.start("orders.py", places.orders, *vars(paced).values())
        spark.wait(lambda: count(places.orders, "orders") > unread.first // 2, job)
        spark.kill(job)
        spark.note("kill -9 of Spark, started again")
        job = spark.start("job.py", "stream", root)
        spark.wait(lambda: writer.poll() is not None, job)
        if writer.returncode:
            raise SystemExit(f"putting orders failed; see {spark.log}")
        spark.wait(lambda: count(places.routed, *TOPICS) >= unread.first, job)
        spark.stop(job)
        spark.note("Spark is stopped, orders are put, retention removes the oldest")
        put, lost = lose_orders(places, unread)

        job = spark.start("job.py", "stream", root)
        if job.wait(timeout=PATIENCE) != 1:
            raise SystemExit("the loss went unnoticed")
        spark.note("Spark refuses to go on; then the loss is accepted")
        print(f"        {spark.last_error()}")
        job = spark.start("job.py", "stream", root, "--accept-loss")
        spark.wait(lambda: count(places.routed, *TOPICS) >= len(put) - len(lost), job)
        with rmqstore.open(places.orders, "a", config=orders.CONFIG) as store:
            closed = orders.put_closing(store)
        spark.wait(lambda: spark.latest().watermark >= closed, job)
        dropped = spark.latest().dropped
        spark.stop(job)

        again = range(unread.first_minute + 21, unread.first_minute + 31)
        spark.note(f"{len(again)} minutes are computed again, with their late orders")
        since, until = (time_of(minute).isoformat() for minute in (again.start, again.stop))
        job = spark.start("job.py", "backfill", root, "--since", since, "--until", until)
        if job.wait(timeout=PATIENCE):
            raise SystemExit(f"the backfill failed; see {spark.log}")
    finally:
        spark.close()
    first = orders.FIRST_MINUTE // orders.MINUTE
    again = range(first + again.start, first + again.stop)
    exact = report.print_report(places, put, lost, again)
    print(f"{dropped:>9,} rows dropped behind the watermark, after the last start")
    picture.draw(spark.samples, spark.events, root / "pipeline.png")
    print(f"lag over time: {root / 'pipeline.png'}")
    return exact


def configure_spark(root: Path) -> None:
    """Write the settings of a small machine, where ``spark-submit`` would have a cluster's."""
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # short lives
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": root / "local",
        "spark.sql.warehouse.dir": root / "warehouse",
        "spark.python.unix.domain.socket.enabled": "true",
    }
    jars = Path(pyspark.__file__).parent / "jars"
    if any(jars.glob("delta-spark_*.jar")):
        settings["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
        catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        settings["spark.sql.catalog.spark_catalog"] = catalog
    (root / "conf").mkdir()
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (root / "conf" / "spark-defaults.conf").write_text("".join(lines))


def count(path: str, *topics: str) -> int:
    """Return how many messages of some topics were ever put."""
    with rmqstore.open(path) as store:
        return sum(queue.max_offset for topic in topics for queue in store[topic].values())


def lose_orders(places: Places, unread: Run) -> tuple[dict[int, report.Order], set[int]]:
    """Put orders that Spark does not read, and remove the older ones; return all, and the lost."""
    with rmqstore.open(places.orders, "a", config=orders.CONFIG) as store:
        orders.put_run(store, unread)
        put = report.read_orders(store)
        store.delete_expired(before=time_of(unread.first_minute + 20))
        removed = put.keys() - report.read_orders(store).keys()
    return put, {number for number in removed if number >= unread.first}


def time_of(minute: int) -> datetime:
    """Return when a minute of the orders' clock begins."""
    return datetime.fromtimestamp((orders.FIRST_MINUTE + minute * orders.MINUTE) / 1000, UTC)


def main() -> int:
    """Run the pipeline."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="made anew: what is there is removed")
    parser.add_argument("--short", action="store_true", help="fewer orders: what CI runs")
    given = parser.parse_args()
    root = given.directory.absolute()
    if root.exists() and not (root / MARK).exists():
        raise SystemExit(f"{root} is there and not from an earlier run: name another directory")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    (root / MARK).touch()
    exact = run(root, rate=1000, seconds=15) if given.short else run(root, rate=5000, seconds=60)
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
