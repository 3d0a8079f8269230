"""Keys of a ``broker.conf`` for the gateway: names, addresses, creation by clients.

Keys of the store are :class:`rmqstore.StoreConfig`'s, which reads the same file and warns about
keys that no part of a broker knows.

Source: ``common/BrokerConfig.java``, ``remoting/netty/NettyServerConfig.java``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from rmqstore.config.brokerconf import read_properties
from rmqstore.config.fields import boolean, integer, parse_value, specs_of, text

__all__ = ["BrokerConf"]

# In the JSON of clients and tools, in properties of records, and as names of topics.
_NAME = r"[!#-\[\]-~]{1,115}"
_NAME_TEXT = "1 to 115 characters of ASCII, no blanks, quotes or backslashes"
_HOST = r"[0-9A-Za-z.:_-]{1,255}"
_TOPIC = r"[%|a-zA-Z0-9_-]{1,127}"


@dataclass(frozen=True)
class BrokerConf:
    """Keys of a ``broker.conf`` that the gateway follows, with 4.9.3's defaults but for one.

    Attributes
    ----------
    cluster, broker, region : str
        Names in routes and answers.
    host : str or None
        ``brokerIP1``: the address given to clients, where others can connect.
    port : int or None
        ``listenPort``.
    auto_create, auto_create_groups : bool
        Whether topics are created by sends, groups by consumers.
    default_queue_nums : int
        Queues of TBW102: a topic created by a send has at most as many.
    trace : bool
        Whether the trace topic is there from the start.
    trace_topic : str
    property_filter : bool
        Whether consumers may filter by SQL92; true by default, where 4.9.3 has false.
    acl : bool
        Whether accounts are required; their file is not named here.
    idle_seconds : int
        Without a complete frame, until a connection is closed.
    """

    cluster: str = text("brokerClusterName", "DefaultCluster", _NAME, _NAME_TEXT)
    broker: str = text("brokerName", "broker-a", _NAME, _NAME_TEXT)
    region: str = text("regionId", "DefaultRegion", _NAME, _NAME_TEXT)
    host: str | None = text("brokerIP1", None, _HOST, "an address or a name")
    port: int | None = integer("listenPort", None, 1, 65535)
    auto_create: bool = boolean("autoCreateTopicEnable", True)
    auto_create_groups: bool = boolean("autoCreateSubscriptionGroup", True)
    default_queue_nums: int = integer("defaultTopicQueueNums", 8, 1, 65536)
    trace: bool = boolean("traceTopicEnable", False)
    trace_topic: str = text(
        "msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", _TOPIC, "the name of a topic"
    )
    property_filter: bool = boolean("enablePropertyFilter", True)
    acl: bool = boolean("aclEnable", False)
    idle_seconds: int = integer("serverChannelMaxIdleTimeSeconds", 120, 1)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> BrokerConf:
        """Read a file, without the keys of others.

        Raises
        ------
        OSError
            The file cannot be read.
        ValueError
            A value is out of range; the message names path and line.
        """
        by_key = {spec.java: name for name, spec in _SPECS.items()}
        found: dict[str, Any] = {}
        for entry in read_properties(path):
            name = by_key.get(entry.key)
            value = entry.value.strip()
            if name is None or not value:  # an empty name is none
                continue
            try:
                found[name] = parse_value(entry.key, value, _SPECS[name], getattr(cls, name))
            except ValueError as error:
                raise ValueError(f"{os.fspath(path)}, line {entry.line}: {error}") from None
        return cls(**found)


_SPECS = specs_of(BrokerConf)
