"""``toolbox.report``: what is in the page, what never is, and that it is safe to open."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

import rmqstore
from rmqstore import StoreConfig, StoreNotFoundError, toolbox
from rmqstore.toolbox import report_html
from support import damaged_store

BODY, KEY, SECRET, HOST = "BodyOfAMessage", "KeyOfAMessage", "Secret77", "10.20.30.40"
VOID = ("meta", "br")


class Balance(HTMLParser):
    """Fails at a tag that is not closed, and gathers names and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(file: Path) -> Balance:
    text = file.read_text()
    found = Balance()
    found.feed(text)
    found.close()
    assert found.open == []
    assert not found.tags & {"script", "link", "img", "iframe", "object", "base", "a"}
    assert not found.attributes & {"src", "href", "style", "onload", "onerror"}
    assert "default-src 'none'" in text
    assert not any(one in text for one in ("http:", "https:", "src=", "<script", "url(", "@import"))
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "s", "a", config=StoreConfig.small()) as store:
        for number in range(5):
            store.put("orders", BODY.encode(), keys=KEY, queue_id=0)
            store.put("%DLQ%billing", BODY.encode(), queue_id=0, tags=str(number))
        with store.consumer("orders", group="billing") as orders:
            next(iter(orders))
            orders.commit()
    return tmp_path / "s"


def hostile(root: Path) -> None:
    """Give a group and a topic of the offsets a name that is HTML."""
    file = root / "config" / "consumerOffset.json"
    name = json.dumps("orders@<script>alert(1)</script>\x1b[31m")
    file.write_text(file.read_text().replace('"orders@billing"', name))


def test_contents(root: Path, tmp_path: Path) -> None:
    before = damaged_store.state(root)
    assert toolbox.report(root, tmp_path / "r.html") == tmp_path / "r.html"
    assert damaged_store.state(root) == before
    text = " ".join(parsed(tmp_path / "r.html").text.split())
    for wanted in (
        "a 4.9.3 broker would start",
        "orders",
        "at most 10 messages in an hour",
        "dead letters of billing5",
        "delayed messages0",
        "deleteWhen=04",
        "mappedFileSizeCommitLog",
        "closed cleanly",
    ):
        assert wanted in text, wanted
    assert sorted(one.name for one in tmp_path.iterdir()) == ["r.html", "s"]


def test_names_are_escaped(root: Path, tmp_path: Path) -> None:
    hostile(root)
    toolbox.report(root, tmp_path / "r.html")
    text = parsed(tmp_path / "r.html").text
    assert "<script>alert(1)</script>\\x1b[31m" in text
    assert "\x1b" not in text


def test_redaction(root: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"accessKey=424242\nsecretKey={SECRET}\nbrokerIP1={HOST}\nnamesrvAddr={HOST}:9876\n"
        "brokerName=inner-name\nfileReservedTime=48\nflushDiskType=ASYNC_FLUSH\n"
        "mappedFileSizeCommitLog=9999\n"
    )
    toolbox.report(root, tmp_path / "r.html", config=conf)
    hidden = (tmp_path / "r.html").read_bytes()
    parsed(tmp_path / "r.html")
    for never in (BODY, KEY, "424242", SECRET, HOST, "inner-name", str(tmp_path)):
        assert never.encode() not in hidden, never
    assert all(one in hidden for one in (b"secretKey", b">48<", b">ASYNC_FLUSH<"))
    toolbox.report(root, tmp_path / "all.html", config=conf, redact=False)
    shown = (tmp_path / "all.html").read_bytes()
    assert all(one.encode() in shown for one in (SECRET, HOST, "inner-name", str(root)))
    assert BODY.encode() not in shown
    assert KEY.encode() not in shown


def test_an_existing_file_stays(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    out.symlink_to("nowhere")
    with pytest.raises(FileExistsError):
        toolbox.report(tmp_path / "no-store", out)  # not even looked for
    assert out.is_symlink()
    with pytest.raises(ValueError, match="inside the store"):
        toolbox.report(root, root / "r.html")
    with pytest.raises(StoreNotFoundError):
        toolbox.report(tmp_path / "no-store", tmp_path / "new.html")
    assert not (tmp_path / "new.html").exists()


def test_damage(tmp_path: Path) -> None:
    root = damaged_store.make(tmp_path / "s")
    damaged_store.flip(root, damaged_store.records(root)[30].physical_offset + 90)
    (root / "commitlog" / "x.bak").write_bytes(b"")
    before = damaged_store.state(root)
    toolbox.report(root, tmp_path / "r.html")
    assert damaged_store.state(root) == before
    text = parsed(tmp_path / "r.html").text
    assert "x.bak" in text
    assert "stop" in text


def test_a_store_that_does_not_open(root: Path, tmp_path: Path) -> None:
    log = next((root / "commitlog").iterdir())
    log.rename(root / "commitlog" / "00000000000000000007")
    toolbox.report(root, tmp_path / "r.html")
    assert "Would a 4.9.3 broker start" in parsed(tmp_path / "r.html").text


def test_beside_a_live_owner(root: Path, tmp_path: Path) -> None:
    with rmqstore.open(root, "r+") as store:
        store.put("later", b"x", queue_id=0)
        toolbox.report(root, tmp_path / "r.html")
    assert "later" in parsed(tmp_path / "r.html").text


def test_a_column_of_whole_words() -> None:
    made = report_html.table(("event", "=goes", "#unconsumed"), [("delete", "1,142 messages", 3)])
    assert '<th>event</th><th class="w">goes</th><th class="n">unconsumed</th>' in made
    assert '<td>delete</td><td class="w">1,142 messages</td><td class="n">3</td>' in made
