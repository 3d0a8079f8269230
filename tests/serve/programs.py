"""Random programs of sends and of consumers that come and go, for ``interop/clients``' Program."""

from __future__ import annotations

from random import Random
from typing import Any

TOPICS = ("traffic-a", "traffic-b")
TRANSACTIONS = "traffic-tx"
QUESTIONS = "traffic-q"
QUEUES = 4
TAGS = ("red", "green", "blue")
EXPRESSIONS = (  # the first tag passes each of them
    "*",
    "red",
    "red || blue",
    "sql:TAGS = 'red' OR p0 IN ('plain', '\"quoted\" \\ / {}') AND p1 IS NOT NULL",
)
TEXTS = ("", "plain", "K\u00f6ln \u6771\u4eac", "\U0001f680 up", '"quoted" \\ / {}', "x" * 300)


def program(random: Random, sends: int) -> list[dict[str, Any]]:
    """Return the steps: so many sends of every kind, with actions of consumers between them."""
    steps: list[dict[str, Any]] = []
    number = 0

    def message() -> dict[str, Any]:
        nonlocal number
        number += 1
        properties = {f"p{n}": random.choice(TEXTS[1:]) for n in range(random.randrange(3))}
        if random.random() < 0.12:
            properties["fail"] = str(random.randrange(1, 4))
        return {
            "key": f"k{number}",
            "tag": random.choice(TAGS),
            "body": f"{number} {random.choice(TEXTS)}",
            "flag": random.randrange(3),
            "properties": properties,
        }

    for topic in TOPICS:  # so that they are there before anybody asks for them
        steps += [{"do": "send", "topic": topic, "queue": 0, **message()}]
    steps += [
        {"do": "transaction", "topic": TRANSACTIONS, "outcome": "COMMIT_MESSAGE", **message()}
    ]
    steps += [{"do": "send", "topic": QUESTIONS, "queue": 0, **message()}]
    groups = {
        f"traffic-g{n}": {
            **{topic: random.choice(EXPRESSIONS) for topic in TOPICS},
            TRANSACTIONS: "*",
        }
        for n in range(2)
    }
    running = []
    for group, topics in groups.items():
        running.append(f"{group}-0")
        steps.append({"do": "start", "group": group, "instance": running[-1], "topics": topics})
    everything = dict.fromkeys(TOPICS, "*")
    for how, instances, topics in (
        ("orderly", 1, everything | {TRANSACTIONS: "*"}),
        ("broadcast", 2, {topic: random.choice(EXPRESSIONS) for topic in TOPICS}),
        ("reply", 1, {QUESTIONS: "*"}),
    ):
        for n in range(instances):
            instance = f"traffic-{how}-{n}"
            steps.append(
                {"do": "start", "group": f"traffic-{how}", "instance": instance, "how": how,
                 "topics": topics}
            )  # fmt: skip
    steps += [  # whatever else comes
        {"do": "request", "topic": QUESTIONS, "queue": 0, **message()},
        {"do": "send", "topic": TOPICS[0], "queue": 0, "async": True, **message()},
    ]
    changes = sorted(random.sample(range(sends), 2))
    for n in range(sends):
        if n in changes:
            group, topics = random.choice(list(groups.items()))
            extra = [one for one in running if one.startswith(group) and not one.endswith("-0")]
            if extra:
                running.remove(extra[0])
                steps.append({"do": "stop", "instance": extra[0]})
            else:
                running.append(f"{group}-{n + 1}")
                steps.append(
                    {"do": "start", "group": group, "instance": running[-1], "topics": topics}
                )
        topic, queue = random.choice(TOPICS), random.randrange(QUEUES)
        kind = random.random()
        if kind < 0.12:
            some = [message() for _ in range(random.randrange(1, 6))]
            steps.append({"do": "batch", "topic": topic, "queue": queue, "messages": some})
        elif kind < 0.24:
            outcome = random.choice(["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"])
            one = {**message(), "flag": 0}  # a broker loses it with the copy that it asks with
            one["properties"] |= {
                "after-check": random.choice(["COMMIT_MESSAGE", "ROLLBACK_MESSAGE"]),
            }
            steps.append({"do": "transaction", "topic": TRANSACTIONS, "outcome": outcome, **one})
        elif kind < 0.3:
            steps.append({"do": "request", "topic": QUESTIONS, "queue": queue, **message()})
        else:
            one = {"do": "send", "topic": topic, "queue": queue, **message()}
            if random.random() < 0.15:
                one["delay"] = 1
            if random.random() < 0.15:
                one["oneway"] = True
            elif random.random() < 0.3:
                one["async"] = True
            steps.append(one)
    # A consumer's offset moves past messages that it did not select with the next one that it did.
    steps.append({"do": "settle", "ms": 2500})  # what is delayed is there
    for topic in TOPICS:
        for queue in range(QUEUES):
            last = {**message(), "tag": TAGS[0], "properties": {}}
            steps.append({"do": "send", "topic": topic, "queue": queue, **last})
    return steps
