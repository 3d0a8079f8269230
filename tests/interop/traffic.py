"""Random traffic of a real client, all kinds that a broker stores, and what must come of it."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Any

from interop.broker import Broker

QUEUES = 4
TOPICS = {"orders": QUEUES, "payments": QUEUES, "a_b-c%1|2": 2}
GROUP = "orders-group"
SQL_GROUP = "sql-group"
RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
SUBSCRIBED = ("paid", "shipped")
SQL = "n > 3 AND region IN ('eu', 'us')"
FAIL = "fail"  # a consumer fails what has this property

# Levels 1 and 2 are delivered while the tests look on, level 18 is not.
BROKER_CONFIG = {"messageDelayLevel": "1s 1s " + "5m " * 15 + "2h"}
BROKER = {"transactionCheckInterval": 1000, "transactionTimeOut": 1000}
SETTLE_TIMEOUT = 60.0

TAGS = [None, "paid", "paid", "shipped", "cancelled", "Aa", "BB", "\u6807\u7b7e", "\U0001f680"]
KEYS = [f"order-{n}" for n in range(200)] + ["Aa", "BB", "\u952e", "\U0001f511"]
OUTCOMES = [  # the client's answer at once, its answer to a check, whether it is committed
    ("COMMIT_MESSAGE", None, True),
    ("ROLLBACK_MESSAGE", None, False),
    ("UNKNOW", None, False),
    ("UNKNOW", "COMMIT_MESSAGE", True),
    ("UNKNOW", "ROLLBACK_MESSAGE", False),
]
COMPRESSED_OVER = 4096


@dataclass
class Message:
    """One message as the client sent it, and where the broker said that it is."""

    topic: str
    body: bytes
    uniq_key: str
    msg_id: str | None  # of the first record: half messages have none for the client
    queue_id: int | None
    queue_offset: int | None
    flag: int = 0
    tags: str | None = None
    keys: list[str] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    delay_level: int = 0
    transaction: bool = False
    committed: bool = True


class Traffic:
    """Sends messages, a request for many of them, and keeps what a reader must find."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.broker = broker
        self.random = random.Random(seed)
        self.sent: list[Message] = []
        broker.topics({**TOPICS, RETRY: 1})

    def _body(self) -> bytes:
        longest = self.random.choice([1, 40, 40, 200, 200, 1000, 3000])
        return self.random.randbytes(self.random.randint(1, longest))

    def _message(self, **fields: Any) -> dict[str, Any]:
        some = {
            "psly": "psly",
            "n": str(self.random.randrange(10)),
            "region": self.random.choice(["eu", "us", "asia"]),
            "\u5c5e\u6027": "\u503c",
            "rocket": "\U0001f680" * 3,
        }
        names = self.random.sample(sorted(some), self.random.randrange(len(some) + 1))
        return {
            "body": self._body(),
            "flag": self.random.choice([0, 0, 7, -(1 << 31), (1 << 31) - 1]),
            "tags": self.random.choice(TAGS),
            "keys": self.random.sample(KEYS, self.random.choice([0, 1, 1, 1, 2, 4])),
            "properties": {name: some[name] for name in names},
            **fields,
        }

    def _topic(self) -> dict[str, Any]:
        topic = self.random.choice(list(TOPICS))
        queue_id = self.random.choice([None, self.random.randrange(TOPICS[topic])])
        return {"topic": topic, "queue_id": queue_id}

    def _one(self) -> dict[str, Any]:
        kind = self.random.random()
        if kind < 0.05:
            count = self.random.choice([1, 2, 7, 40])
            messages = [self._message() for _ in range(count)]
            return {**self._topic(), "messages": messages}
        if kind < 0.08:
            return self._message(**self._topic(), delay_level=self.random.choice([1, 2, 18]))
        if kind < 0.12:
            at_once, checked, _ = self.random.choice(OUTCOMES)
            message = self._message(topic="payments")
            message["properties"]["outcome"] = at_once
            if checked is not None:
                message["properties"]["outcome-check"] = checked
            return message
        if kind < 0.15:  # the client compresses it
            text = b"%d " % self.random.randrange(1000)
            return self._message(**self._topic(), body=text * self.random.randint(2000, 20_000))
        return self._message(**self._topic())

    def everything(self, count: int) -> None:
        """About ``count`` sends of all kinds, in random order, and one of each that is seldom."""
        messages = [self._one() for _ in range(count)]
        messages += [
            self._message(topic="orders", queue_id=1, body=self.random.randbytes(300_000)),
            *(self._message(topic="orders", delay_level=level) for level in (1, 2, 18)),
        ]
        for at_once, checked, _ in OUTCOMES:
            properties = {"outcome": at_once}
            if checked is not None:
                properties["outcome-check"] = checked
            messages.append(self._message(topic="payments", properties=properties))
        messages += [
            self._message(topic="orders", tags="paid", properties={FAIL: str(n)}) for n in range(3)
        ]
        self.random.shuffle(messages)
        for message, answer in zip(messages, self.broker.send(messages), strict=True):
            assert answer.status == "SEND_OK", answer
            self._note(message, answer)

    def _note(self, message: dict[str, Any], answer: Any) -> None:
        batch = message.get("messages")
        uniq_keys = answer.uniq_key.split(",")
        outcome = message.get("properties", {}).get("outcome")
        msg_ids = answer.msg_id.split(",") if answer.msg_id else [None]
        for n, one in enumerate(batch or [message]):
            fields = {"topic": message["topic"], **one}
            fields.pop("queue_id", None)
            final = fields["properties"].get("outcome-check", outcome)
            self.sent.append(
                Message(
                    **fields,
                    uniq_key=uniq_keys[n],
                    msg_id=msg_ids[n],
                    queue_id=answer.queue_id if outcome is None else None,
                    queue_offset=answer.queue_offset + n if outcome is None else None,
                    transaction=outcome is not None,
                    committed=final in (None, "COMMIT_MESSAGE"),
                )
            )
        assert len(uniq_keys) == len(msg_ids) == len(batch or [message])

    def expected_dead(self) -> int:
        """Messages that the consumer of the group fails until they are dead letters."""
        return sum(
            m.topic == "orders" and m.tags in SUBSCRIBED and FAIL in m.properties for m in self.sent
        )

    def settle(self) -> None:
        """Wait for what the broker does by itself: deliveries, checks, retries and dead letters."""
        deadline = time.monotonic() + SETTLE_TIMEOUT
        due = [
            (m.topic, m.uniq_key)
            for m in self.sent
            if m.committed and (m.transaction or m.delay_level in (1, 2))
        ]
        while True:
            hits = self.broker.locate(due)
            dead = self.broker.minmax().get((DEAD, 0), (0, 0))[1]
            if all(hits) and dead == self.expected_dead():
                return
            assert time.monotonic() < deadline, (sum(not hit for hit in hits), dead)
            time.sleep(0.2)
