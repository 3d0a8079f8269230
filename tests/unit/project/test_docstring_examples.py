"""The examples in docstrings, each run as a program with the names that it takes for granted."""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore

pytestmark = pytest.mark.pure

PACKAGE = Path(__file__).parents[3] / "src/rmqstore"
TRACE = "\x01".join(
    ["Pub", "1", "cn", "g", "orders", "ID1", "TagA", "k", "h:1", "12", "3", "0", "OFF1", "true"]
)


def examples() -> Iterator[tuple[str, str]]:
    """Yield the place of each docstring with examples, and their code."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                found = doctest.DocTestParser().get_examples(ast.get_docstring(node) or "")
                if found:
                    place = module if isinstance(node, ast.Module) else f"{module} {node.name}"
                    yield place, "".join(one.source for one in found)


def consuming(names: dict[str, Any], handled: list[Any]) -> Callable[[], None]:
    store = names["store"]
    store.put_many("orders", [b"paid", b"shipped"])
    names["handle"] = lambda message: handled.append(message.body)

    def check() -> None:
        assert sorted(handled) == [b"paid", b"shipped"]
        assert sum(store.offsets["orders", "billing"].values()) == 2

    return check


def serving(names: dict[str, Any], handled: list[Any]) -> Callable[[], None]:
    def program(address: str) -> None:
        handled.append(address)
        names["server"].store.put("orders", b"paid", queue_id=0)

    names["run_the_program_under_test"] = program

    def check() -> None:
        assert handled == [names["server"].address]
        assert names["server"].closed

    return check


def serving_async(names: dict[str, Any], handled: list[Any]) -> Callable[[], None]:
    async def program(address: str) -> None:
        handled.append(address)

    names["program"] = program

    def check() -> None:
        assert handled == [names["server"].address]

    return check


def tracing(names: dict[str, Any], handled: list[Any]) -> Callable[[], None]:
    names["store"].put("RMQ_SYS_TRACE_TOPIC", (TRACE + "\x02").encode())
    names["print"] = handled.append

    def check() -> None:
        ((trace,),) = handled
        assert (trace.topic, trace.msg_id) == ("orders", "ID1")

    return check


class Totals:
    """A streaming DataFrame as far as the example goes."""

    def __init__(self, handled: list[Any]) -> None:
        self.writeStream = self
        self.handled = handled

    def outputMode(self, mode: str) -> Totals:
        self.handled.append(mode)
        return self

    def foreachBatch(self, function: Callable[..., None]) -> Totals:
        self.handled.append(list(inspect.signature(function).parameters))
        return self

    def start(self) -> None:
        self.handled.append("started")


def streaming(names: dict[str, Any], handled: list[Any]) -> Callable[[], None]:
    from rmqstore.spark import batch_appender

    names.update(batch_appender=batch_appender, totals=Totals(handled))

    def check() -> None:
        assert handled == ["update", ["rows", "batch_id"], "started"]

    return check


def putting(names: dict[str, Any], handled: list[Any]) -> Callable[[], None]:
    def check() -> None:
        with rmqstore.open("data/store") as made:
            message = made["Topic1"][2][-1]
        assert (message.body, message.tags) == (b"Hello RocketMQ", "TagA")

    return check


def summing_up(names: dict[str, Any], handled: list[Any]) -> Callable[[], None]:
    with rmqstore.open("data/store", "a", config=rmqstore.StoreConfig.small()) as made:
        made.put("orders", b"paid")
    names["print"] = lambda *values: handled.append(values)

    def check() -> None:
        ((keys, size),) = handled
        assert (keys["topic"], list(keys), size > 0) == ("orders", ["topic", "day"], True)

    return check


SETTINGS = {
    "__init__.py": putting,
    "opening.py open": putting,
    "consume/consuming.py consumer": consuming,
    "serve/serving.py serve": serving,
    "serve/serving.py aserve": serving_async,
    "toolbox/__init__.py": summing_up,
    "traces.py": tracing,
    "spark/sink/foreach.py batch_appender": streaming,
}
EXAMPLES = dict(examples())


def test_each_example_has_its_setting() -> None:
    assert sorted(EXAMPLES) == sorted(SETTINGS)


@pytest.mark.parametrize("place", SETTINGS)
def test_example(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = EXAMPLES[place].replace("port=9876", "port=0")  # another server may have it
    code = compile(text, place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with rmqstore.open("given", "a", config=rmqstore.StoreConfig.small()) as store:
        names: dict[str, Any] = {"rmqstore": rmqstore, "store": store}
        check = SETTINGS[place](names, [])
        running = eval(code, names)
        if running is not None:
            asyncio.run(running)
        check()
