"""Settings of a gateway, and its limits.

Source: ``common/BrokerConfig.java``, ``remoting/netty/NettyServerConfig.java``.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rmqstore.serve.accounts.acl import Acl

__all__ = ["Limits", "OpenHow", "Settings"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the state that clients make the gateway keep, shared as in ``shares.py``."""

    # Open connections. The next is closed at once, as is one that leaves too few file descriptors,
    # unless its address has few: see ``network/places.py``.
    connections: int = 1024
    # Bytes of untaken answers until a connection is not read; of all connections 16 times as many.
    write_buffer: int = 4 << 20
    # Bytes of incomplete frames, and of requests answered later, of all connections; beyond,
    # the largest connection of the largest owner is closed.
    read_buffers: int = 96 << 20
    # Bytes of requests answered later, and of answers that wait for the disk, of all connections.
    # A connection with as many as are left is not read.
    unanswered: int = 32 << 20
    held_pulls: int = 40_000  # the next is answered at once
    # 2 KiB and the expression for each pull; the next is answered at once.
    held_bytes: int = 64 << 20
    subscriptions: int = 1000  # topics in one heartbeat
    # Of topics and expressions, plus 256 for each; beyond, heartbeats adding some are refused.
    subscription_bytes: int = 64 << 20
    offsets: int = 200_000  # queues with an offset of a group; clients cannot add more
    topics: int = 24_000  # created by sends of producers; also the limit of groups
    # Queues that clients may ask for in a topic or a retry topic, or ``default_queue_nums`` if
    # larger. The largest topic of every broker has 1,024.
    queues: int = 1024
    idle_seconds: float = 120.0  # without a complete frame, until a connection is closed
    # With a certificate: for the first byte, then for the handshake.
    handshake_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class OpenHow:
    """How to open the store."""

    infer_sizes: bool = False  # infer file sizes from the files, in spite of the configuration
    on_corruption: Literal["raise", "fill"] = "raise"
    verify: Literal["tail", "full"] = "tail"
    from_file: bool = False  # configured by a ``broker.conf``: errors name its keys


@dataclass(frozen=True, slots=True)
class Settings:
    """Behaviour of a gateway."""

    host: str = "127.0.0.1"
    port: int = 0
    vip: bool = True  # listen on the port minus two as well
    advertise: tuple[str, int] | None = None  # address in routes and message ids, if not as dialled
    own_host: str | None = None  # the same, with the listening port
    auto_create: bool = True  # topics, by messages to them
    auto_create_groups: bool = True  # by their first consumer
    default_queue_nums: int = 8  # of TBW102, the template of new topics
    trace_topic: str | None = None  # if it exists from the start
    property_filter: bool = True  # consumers may filter by SQL92
    tls: ssl.SSLContext | None = None
    tls_only: bool = False  # close connections that do not begin with TLS
    acl: Acl | None = None
    # Names in routes and answers; by default the quick start broker's, so that the directory can be
    # handed over to it.
    cluster: str = "DefaultCluster"
    broker: str = "broker-a"
    region: str = "DefaultRegion"
    limits: Limits = field(default_factory=Limits)

    @property
    def most_queues(self) -> int:
        """Limit of queues that a client may ask for in a topic."""
        return max(self.limits.queues, self.default_queue_nums)
