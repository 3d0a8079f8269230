"""The page for people: its files, and the figures that it requests.

There is none in 4.9.3; rocketmq-dashboard is the nearest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rmqstore.serve.figures.http import Reply, Resource
from rmqstore.serve.figures.lag import online_groups
from rmqstore.serve.network.sockets import address_text
from rmqstore.serve.page.figures import Overview, topic_traffic
from rmqstore.serve.page.messages import find_messages, message_body, topic_figures
from rmqstore.serve.page.sizes import RecordSizes
from rmqstore.serve.page.trend import Trend
from rmqstore.serve.topics.topictable import is_system_topic

if TYPE_CHECKING:
    from rmqstore.serve.figures.http import HttpServer
    from rmqstore.serve.figures.sources import GatewayFigures

__all__ = ["resources"]

_REST = 9  # figures are made for a tenth of the time, or every 30 s where they take longer
_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/plot.js": ("plot.js", "text/javascript; charset=utf-8"),
    "/find.js": ("find.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


def resources(sources: GatewayFigures, server: HttpServer) -> dict[str, Resource]:
    """Return the resources of the page, by path."""
    store, settings = sources.store, sources.settings
    built_in = partial(is_system_topic, settings)
    overview = Overview(store, RecordSizes(store.core), settings.limits.offsets, built_in)
    trend = Trend(sources, server.aside)

    async def whole() -> Reply:
        host, port = settings.advertise or (settings.host, settings.port)
        run = sources.work.turns.run
        online = await run(online_groups(sources.clients))
        traffic = await run(topic_traffic(sources.rates))
        figures = await server.aside(overview.figures, online, traffic)
        figures["at"] = sources.work.loop.time()
        figures["address"] = address_text(host, port)
        figures["connections"] = len(sources.connections.open)
        figures["trend"] = list(trend.points)
        return _json(figures)

    async def topic(query: Mapping[str, str]) -> Reply:
        return await server.read(_found, topic_figures, store, query.get("name", ""))

    async def find(query: Mapping[str, str]) -> Reply:
        topic, text = query.get("topic", ""), query.get("text", "")
        return await server.read(_found, find_messages, store, topic, text, built_in)

    async def body(query: Mapping[str, str]) -> Reply:
        return await server.read(_found, message_body, store, query.get("at", ""))

    return {
        **{path: _file(name, kind) for path, (name, kind) in _FILES.items()},
        "/api/overview": server.made_once(whole, rest=_REST),
        "/api/topic": topic,
        "/api/find": find,
        "/api/body": body,
    }


def _found(look: Callable[..., dict[str, Any] | None], *arguments: Any) -> Reply:
    """Look something up and encode it, possibly megabytes, in the calling thread."""
    found = look(*arguments)
    return _json(found) if found is not None else _json({"error": "not found"}, 404)


def _json(figures: Any, status: int = 200) -> Reply:
    body = json.dumps(figures, separators=(",", ":")).encode()
    return Reply(body, "application/json", status)


def _file(name: str, kind: str) -> Resource:
    """Return the resource of a file, read on request."""

    async def resource(query: Mapping[str, str]) -> Reply:
        return Reply(files(__package__).joinpath(name).read_bytes(), kind)

    return resource
