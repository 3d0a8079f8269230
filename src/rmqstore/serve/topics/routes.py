"""Routes: the place of a topic's queues, which is always here.

Source: ``namesrv/processor/DefaultRequestProcessor.java getRouteInfoByTopic``,
``namesrv/routeinfo/RouteInfoManager.java pickupTopicRouteData``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rmqstore.files import paths
from rmqstore.serve.network.sockets import address_text
from rmqstore.serve.topics.topictable import DEFAULT_TOPIC
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.fields import text
from rmqstore.serve.wire.frames import Answer, Refusal, Request

if TYPE_CHECKING:
    from rmqstore.serve.network.answers import Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.topics.nameserver import NameServer
    from rmqstore.serve.topics.topictable import ServedTopics

__all__ = ["Routes"]

_INHERIT = 1  # PermName.PERM_INHERIT: topics are made after this one


class Routes:
    """Routes of topics."""

    def __init__(self, settings: Settings, topics: ServedTopics, names: NameServer) -> None:
        self._settings = settings
        self._topics = topics
        self._names = names

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route}

    def route(self, connection: Connection, request: Request) -> Answer:
        """Answer GET_ROUTEINFO_BY_TOPIC.

        The JSON suits every parser, with quoted keys, and has ``enableActingMaster``: clients of
        RocketMQ 5 miss it otherwise, older ones skip it.
        """
        topic = text(request, "topic")
        entry = self._topics.config(topic) if paths.is_stored_topic_name(topic) else None
        if entry is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}",
                faq=True,
            )
        settings = self._settings
        broker = {
            "brokerAddrs": {"0": address_text(*connection.address)},
            "brokerName": settings.broker,
            "cluster": settings.cluster,
            "enableActingMaster": False,
        }
        perm = self._names.perm(entry)
        if topic == DEFAULT_TOPIC and not settings.auto_create:
            perm &= ~_INHERIT  # a broker's topics.json may have it
        queues = {
            "brokerName": settings.broker,
            "perm": perm,
            "readQueueNums": entry.read_queue_nums,
            "topicSysFlag": entry.topic_sys_flag,
            "writeQueueNums": entry.write_queue_nums,
        }
        body: dict[str, object] = {"brokerDatas": [broker], "filterServerTable": {}}
        order = self._names.order(topic)
        if order is not None:
            body["orderTopicConf"] = order
        body["queueDatas"] = [queues]
        return Answer(body=json.dumps(body, separators=(",", ":")).encode())
