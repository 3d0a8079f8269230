"""Client of ``interop/``'s BrokerDriver: a real name server, broker and clients in one process.

Its calls are bounded and its end is certain as :mod:`interop.driver` says.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, NamedTuple

import rmqstore
from interop.driver import StoreReader
from rmqstore.brokerfiles.delays import DelayTable


class Sent(NamedTuple):
    """What the client got back for one send; a batch has joined ids."""

    status: str
    queue_id: int
    queue_offset: int
    uniq_key: str
    msg_id: str | None


class Loaded(NamedTuple):
    """One message of the background load, acknowledged by the broker."""

    topic: str
    queue_id: int
    queue_offset: int
    msg_id: str
    uniq_key: str
    body_sha1: str
    status: str


class Consumed(NamedTuple):
    """One message as a consumer got it; base64 of the SHA-1 of the inflated body."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    msg_id: str
    body_sha1: str
    reconsume_times: int
    properties: dict[str, str]


class Broker(StoreReader):
    """A process in which at most one broker runs.  A context manager."""

    main = "rmqstore.interop.BrokerDriver"
    flags = (
        "-Drocketmq.client.logUseSlf4j=true",
        "-Drocketmq.client.rebalance.waitInterval=500",
        "-Dtls.server.mode=disabled",
        "-Dio.netty.noUnsafe=false",
    )

    root: Path  # of the store it was started on last

    def start(self, path: Path, config: dict[str, Any], broker: dict[str, Any]) -> dict[str, Any]:
        """Start name server and broker on the store there.

        ``config`` has MessageStoreConfig's names, ``broker`` BrokerConfig's.
        """
        self.root = path
        started = self.call("start", dir=str(path.resolve()), config=config, broker=broker)[1]
        assert started["load"], self.log()
        return started

    def shutdown(self) -> bool:
        """Shut clients, broker and name server down; return whether ``abort`` is gone."""
        return self.call("shutdown")[1]["clean"]

    def topics(self, topics: dict[str, int]) -> None:
        """Make topics with so many queues."""
        self.call("topics", topics=list(topics.items()))

    def clean(self, reserved_ms: int | None = None, *, by_itself: bool = False) -> dict[str, Any]:
        """Run retention: on files not changed for so long, or by the broker's own rules.

        Those are a round that its owner asks for or, ``by_itself``, one of its ``deleteWhen``.
        """
        limit = {} if reserved_ms is None else {"reserved_ms": reserved_ms}
        return self.call("clean", by_itself=by_itself, **limit)[1]

    # ---- clients

    def send(self, messages: list[dict[str, Any]]) -> list[Sent]:
        """Send one after the other; what has ``messages`` goes as a batch."""
        rows, _ = self.call("send", messages=[_wire(m) for m in messages], timeout=120)
        return [Sent(*row) for row in rows]

    def load_start(self, **fields: Any) -> None:
        """Begin sending: ``seed``, ``topics``, ``queues``, ``rate`` a second, ``max_body``."""
        self.call("load_start", **fields)

    def load_rows(self) -> list[Loaded]:
        """Return what was acknowledged since the last call."""
        return [Loaded(*row) for row in self.call("load_rows")[0]]

    def load_stop(self) -> list[Loaded]:
        """End the load; return what was acknowledged since the last call."""
        rows, end = self.call("load_stop")
        assert end["failed"] is None, end["failed"]
        return [Loaded(*row) for row in rows]

    def consumer_start(
        self,
        group: str,
        tags: dict[str, str],
        sql: dict[str, str] | None = None,
        fail: str | None = None,
    ) -> None:
        """Subscribe a push consumer, from the first message on, by tags or SQL92 a topic.

        It fails what has the property ``fail``: retried once a second later, then a dead letter.
        """
        self.call("consumer_start", group=group, tags=tags, sql=sql or {}, fail=fail)

    def consumer_rows(self, group: str) -> list[Consumed]:
        """Return what the consumer got since the last call."""
        return [Consumed(*row) for row in self.call("consumer_rows", group=group)[0]]

    def consumer_stop(self, group: str) -> list[Consumed]:
        """End the consumer; return what it got since the last call."""
        return [Consumed(*row) for row in self.call("consumer_stop", group=group)[0]]

    def pull(self, topic: str) -> list[Consumed]:
        """Return everything that is in a topic, as a pull consumer gets it."""
        return [Consumed(*row) for row in self.call("pull", topic=topic)[0]]

    # ---- filters

    def filters_evaluate(self, cases: list[tuple[str, list[bytes]]]) -> list[str]:
        """Return what the real SQL92 filters say of expressions and stored properties strings.

        ``"refused"``, or a digit a string, 1 where it passes. No broker need run.
        """
        sent = [(text, [base64.b64encode(each).decode() for each in some]) for text, some in cases]
        return [row[0] for row in self.call("filters_evaluate", cases=sent, timeout=120)[0]]

    def filters_pull(self, topic: str, expressions: list[str]) -> list[set[tuple[int, int]]]:
        """Return queue id and queue offset of what the broker gives a pull consumer of each."""
        rows, _ = self.call("filters_pull", topic=topic, expressions=expressions, timeout=300)
        return [set(zip(row[::2], row[1::2], strict=True)) for row in rows]

    # ---- mqadmin

    def admin(self, namesrv: str, commands: list[list[str]]) -> list[tuple[str | None, str]]:
        """Run commands of mqadmin, each its words; return what each threw and what it printed."""
        # Each by itself: one that follows another in the same moment may wait for its connection.
        rows = [
            self.call("admin_run", namesrv=namesrv, commands=[command])[0][0]
            for command in commands
        ]
        return [(thrown, printed) for thrown, printed in rows]

    def connect(self, namesrv: str, group: str, topic: str, producer: str, name: str) -> None:
        """Start a push consumer and a producer at a name server, with fixed client ids."""
        self.call("admin_connect", namesrv=namesrv, group=group, topic=topic, producer=producer,
                  name=name)  # fmt: skip

    def disconnect(self) -> None:
        """End what was connected."""
        self.call("admin_disconnect")


def deliver_nothing(root: Path) -> None:
    """Mark what is delayed in a store as delivered: a broker then adds no message by itself."""
    with rmqstore.open(root) as store:
        ends = {level: end for level, (_, end) in store.schedule.progress().items()}
    delays = DelayTable.load(root)
    delays.offsets = ends
    delays.save()


def _wire(message: dict[str, Any]) -> dict[str, Any]:
    message = dict(message)
    if "messages" in message:
        message["messages"] = [_wire(m) for m in message["messages"]]
    if "body" in message:
        message["body"] = base64.b64encode(message["body"]).decode()
    message["properties"] = list(message.get("properties", {}).items())
    return message
