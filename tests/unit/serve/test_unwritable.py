"""A store whose ``config/`` cannot be written: an answer for clients, a line in the log."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import rmqstore
from rmqstore.brokerfiles.configfile import ConfigFile
from rmqstore.serve.consuming import newgroups
from rmqstore.serve.server import Server
from support.remoting import RemotingClient

SEND = {"a": "p", "b": "new", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
        "i": "", "j": "0", "k": "false", "m": "false"}  # fmt: skip
UPDATE_TOPIC = {
    "topic": "made", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
}  # fmt: skip


@pytest.fixture
def server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Server]:
    caplog.set_level(logging.WARNING, "rmqstore.serve")
    with rmqstore.serve(tmp_path / "store", config=rmqstore.StoreConfig.small()) as server:
        server.store.put("orders", b"1", queue_id=0)

        def save(file: ConfigFile, value: object) -> None:
            raise PermissionError(13, "Permission denied", str(file.path))

        with monkeypatch.context() as patched:
            patched.setattr(ConfigFile, "save", save)
            yield server


def test_answers_and_lines(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with RemotingClient(server.address) as client:
        for code, fields, body in (
            (310, SEND, b"x"),
            (17, UPDATE_TOPIC, b""),
            (200, None, json.dumps({"groupName": "g"}).encode()),
            (36, {"group": "g", "offset": 0, "delayLevel": 0}, b""),
            (215, {"topic": "orders"}, b""),
        ):
            caplog.clear()
            answer = client.ask(code, fields, body)
            assert answer.code == 1, code
            assert not any(one.exc_info for one in caplog.records), caplog.text
            if code in (200, 215):
                assert answer.remark == "PermissionError: Permission denied"
            if code in (310, 36):
                assert answer.remark == "UNKNOWN_ERROR"
            if code != 17:
                assert "Permission denied" in caplog.text
        assert client.ask(310, {**SEND, "b": "orders"}, b"x").code == 0


def test_groups_are_not_written_over_and_over(
    server: Server, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    rests: list[float] = []

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        await asyncio.sleep(0.001 if len(rests) < 4 else 3600)

    monkeypatch.setattr(newgroups, "asyncio", SimpleNamespace(sleep=sleep))
    beat = {"clientID": "c", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": []}]}
    with RemotingClient(server.address) as client:
        assert client.ask(34, None, json.dumps(beat).encode()).code == 0
        wait_until(lambda: len(rests) == 4)
    assert rests[0] < 1
    assert all(rest >= 5 for rest in rests[1:])
