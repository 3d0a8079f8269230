"""Figures of a store's directory, read by an independent parser of Prometheus' text format."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rmqstore
from rmqstore.toolbox import metrics_text

pytestmark = pytest.mark.pure

Labels = frozenset[tuple[str, str]]

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def parsed(text: str) -> dict[tuple[str, Labels], float]:
    """Samples of a text; fails where the format is broken or a series is there twice."""
    assert text.endswith("\n")
    found: dict[tuple[str, Labels], float] = {}
    typed: set[str] = set()
    for line in text[:-1].split("\n"):
        if line.startswith("#"):
            mark, kind, name, rest = line.split(" ", 3)
            assert mark == "#"
            assert _NAME.fullmatch(name)
            if kind == "TYPE":
                assert rest in ("gauge", "counter")
                assert name not in typed
                typed.add(name)
            else:
                assert kind == "HELP"
            continue
        match = _SAMPLE.fullmatch(line)
        assert match, line
        assert match[1] in typed
        labels = match[2] or ""
        pairs = _LABEL.findall(labels)
        assert "".join(one[0] for one in _LABEL.finditer(labels)) == "".join(labels)
        unescaped = [(n, re.sub(r"\\.", lambda one: _ESCAPES[one[0]], v)) for n, v in pairs]
        key = (match[1], frozenset(unescaped))
        assert key not in found
        found[key] = float(match[3])
    return found


def value(text: str, name: str, **labels: str) -> float:
    (one,) = (
        value
        for (of, found), value in parsed(text).items()
        if of == name and set(labels.items()) <= found
    )
    return one


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "s", "a", config=rmqstore.StoreConfig.small()) as store:
        store.create_topic("orders", 1)
        for number in range(6):
            store.put("orders", b"%d" % number)
        store.put("orders", b"later", delay_level=18)
        with store.consumer("orders", group="billing") as orders:
            messages = iter(orders)
            for _ in range(2):
                next(messages)
            orders.commit()
    return tmp_path / "s"


def contents(root: Path) -> list[tuple[str, int, bytes]]:
    return [
        (str(one), one.stat().st_mtime_ns, one.read_bytes() if one.is_file() else b"")
        for one in (root, *sorted(root.rglob("*")))
    ]


def test_figures(root: Path) -> None:
    before = contents(root)
    text = metrics_text(root)
    assert contents(root) == before
    with rmqstore.open(root) as store:
        end = store.recovery.log_end
        sizes = sum(one.store_size for one in store["orders"].messages())
    assert value(text, "rocketmq_brokeruntime_commitlog_minoffset") == 0
    assert value(text, "rocketmq_brokeruntime_commitlog_maxoffset", boottime="") == end
    assert value(text, "rocketmq_producer_offset", topic="orders") == 6
    assert value(text, "rocketmq_consumer_offset", topic="orders", group="billing") == 2
    assert value(text, "rocketmq_group_diff", topic="orders", group="billing") == 4
    assert value(text, "rmqstore_topic_retained_messages", topic="orders") == 6
    assert value(text, "rmqstore_topic_retained_bytes", topic="orders") == sizes
    assert 0 <= value(text, "rmqstore_topic_oldest_seconds", topic="orders") < 600
    assert value(text, "rmqstore_delay_pending", level="18") == 1
    assert value(text, "rmqstore_halfmsg_in_doubt", broker="unknown") == 0
    assert "tps" not in text


def test_the_series_stay_the_same(root: Path) -> None:
    assert parsed(metrics_text(root)).keys() == parsed(metrics_text(root)).keys()


def test_labels_of_a_broker_conf(root: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text('brokerName=b"\\\\1\nbrokerIP1=10.0.0.1\n')
    text = metrics_text(root, config=conf)
    name = "rocketmq_brokeruntime_commitlog_minoffset"
    labels = {"cluster": "DefaultCluster", "brokerHost": 'b"\\1', "brokerIP": "10.0.0.1"}
    assert value(text, name, **labels) == 0
    assert value(text, "rocketmq_producer_offset", broker='b"\\1', topic="orders") == 6


@pytest.mark.parametrize("name", ['a"b', "a\nb", "a\\nb", "a{b=1} 2", "%s\u00e9"])
def test_hostile_names(root: Path, name: str) -> None:
    (root / "consumequeue/orders").rename(root / "consumequeue" / name)
    names = {dict(labels).get("topic") for _, labels in parsed(metrics_text(root))}
    assert name in names


def test_a_name_that_utf8_does_not_have(root: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\\ud800\n")
    assert (
        value(metrics_text(root, config=conf), "rmqstore_halfmsg_in_doubt", broker="a\\ud800") == 0
    )


def test_damage(root: Path) -> None:
    whole = parsed(metrics_text(root))
    (root / "consumequeue/orders/0" / ("0" * 20)).write_bytes(b"x" * 77)
    (root / "config/consumerOffset.json").write_text("{")
    (root / "config/consumerOffset.json.bak").write_text("{")
    kinds = {
        dict(labels)["kind"]
        for name, labels in parsed(metrics_text(root))
        if name == "rmqstore_verify_problems"
    }
    assert "json" in kinds
    (root / "config/delayOffset.json").write_text("{")
    names = {name for name, _ in parsed(metrics_text(root))}
    assert "rmqstore_delay_pending" not in names
    assert "rmqstore_topic_retained_messages" in names
    assert len(parsed(metrics_text(root))) < len(whole) + len(kinds)
