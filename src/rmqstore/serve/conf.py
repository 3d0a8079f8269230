"""Keys of a ``broker.conf`` for the gateway: names, addresses, creation by clients.

Keys of the store are :class:`rmqstore.StoreConfig`'s, which reads the same file and warns about
unknown keys.

Source: ``common/BrokerConfig.java``, ``remoting/netty/NettyServerConfig.java``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from rmqstore.config.brokerconf import read_properties
from rmqstore.config.fields import boolean, integer, parse_value, specs_of, text

__all__ = ["BrokerConf"]

# Occurs in JSON of clients and tools, in properties of records, and as names of topics.
_NAME = r"[!#-\[\]-~]{1,115}"
_NAME_TEXT = "1 to 115 characters of ASCII, no blanks, quotes or backslashes"
_HOST = r"[0-9A-Za-z.:_-]{1,255}"
_TOPIC = r"[%|a-zA-Z0-9_-]{1,127}"


@dataclass(frozen=True)
class BrokerConf:
    """Keys of a ``broker.conf`` used by the gateway, with 4.9.3's defaults except one."""

    cluster: str = text("brokerClusterName", "DefaultCluster", _NAME, _NAME_TEXT)
    broker: str = text("brokerName", "broker-a", _NAME, _NAME_TEXT)
    region: str = text("regionId", "DefaultRegion", _NAME, _NAME_TEXT)
    # Address for clients, if reachable.
    host: str | None = text("brokerIP1", None, _HOST, "an address or a name")
    port: int | None = integer("listenPort", None, 1, 65535)
    auto_create: bool = boolean("autoCreateTopicEnable", True)
    auto_create_groups: bool = boolean("autoCreateSubscriptionGroup", True)
    default_queue_nums: int = integer("defaultTopicQueueNums", 8, 1, 65536)  # of TBW102
    trace: bool = boolean("traceTopicEnable", False)  # the trace topic exists from the start
    trace_topic: str = text(
        "msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", _TOPIC, "the name of a topic"
    )
    property_filter: bool = boolean("enablePropertyFilter", True)  # by SQL92; 4.9.3 has false
    acl: bool = boolean("aclEnable", False)  # requires accounts; their file is not in these keys
    idle_seconds: int = integer("serverChannelMaxIdleTimeSeconds", 120, 1)  # without a frame

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> BrokerConf:
        """Read a file; other keys are ignored.

        ``OSError`` if it is unreadable, ``ValueError`` with path and line if a value is out of
        range.
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
