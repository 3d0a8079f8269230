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
    """Bounds of the state that clients can make the gateway keep.

    Each owner has a share of a table: see ``shares.py``.

    Attributes
    ----------
    connections : int
        Open at a time; one more is closed at once, and also one that leaves too few file
        descriptors, unless its address has few of them: see ``network/places.py``.
    write_buffer : int
        Bytes of answers that wait for a slow reader before its requests are no longer read;
        16 times as many of all.
    read_buffers : int
        Bytes of incomplete frames, and of requests that are answered later, of all connections;
        beyond, the largest connection of the largest owner is closed.
    unanswered : int
        Bytes of requests that are answered later, and of answers that wait for the disk, of all
        connections. A connection that has as many as are left is not read from.
    held_pulls : int
        Pulls that wait for messages; beyond, one more is answered at once.
    held_bytes : int
        Bytes that held pulls take, each 2 KiB and its expression; beyond, one more is answered at
        once.
    subscriptions : int
        Topics in one heartbeat.
    subscription_bytes : int
        Bytes of the topics and expressions of all subscriptions, each with 256 more; beyond,
        heartbeats that add to them are refused.
    offsets : int
        Queues of groups that have an offset; clients make no more of them.
    topics : int
        Created by sends of producers; and groups.
    queues : int
        Of a topic, or of the retry topic of a group, that clients may ask for; with more in
        ``default_queue_nums``, that many. 1,024 as the largest topic of every broker has.
    idle_seconds : float
        Without a complete frame, until a connection is closed.
    handshake_seconds : float
        Where there is a certificate: until the first byte has come, and then the handshake.
    """

    connections: int = 1024
    write_buffer: int = 4 << 20
    read_buffers: int = 96 << 20
    unanswered: int = 32 << 20
    held_pulls: int = 40_000
    held_bytes: int = 64 << 20
    subscriptions: int = 1000
    subscription_bytes: int = 64 << 20
    offsets: int = 200_000
    topics: int = 24_000
    queues: int = 1024
    idle_seconds: float = 120.0
    handshake_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class OpenHow:
    """How the store is opened.

    Attributes
    ----------
    infer_sizes : bool
        Take the file sizes from the files, in spite of the configuration.
    on_corruption, verify : str
        As :func:`rmqstore.open` has them.
    from_file : bool
        The configuration is a ``broker.conf``: errors name its keys.
    """

    infer_sizes: bool = False
    on_corruption: Literal["raise", "fill"] = "raise"
    verify: Literal["tail", "full"] = "tail"
    from_file: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """Behaviour of a gateway.

    Attributes
    ----------
    host, port : str, int
        Where it listens.
    vip : bool
        Whether it listens on the port minus two as well.
    advertise : (str, int) or None
        The address in routes and message ids; None: the one that the client dialled.
    own_host : str or None
        The same with the port that is listened on, whichever that is.
    auto_create : bool
        Whether a message to an unknown topic creates it.
    auto_create_groups : bool
        Whether a consumer group is created by its first consumer.
    default_queue_nums : int
        Of TBW102, the template of new topics.
    trace_topic : str or None
        The topic of traces, if it is there from the start.
    property_filter : bool
        Whether consumers may filter by SQL92.
    tls_only : bool
        Whether connections that do not begin with TLS are closed.
    cluster, broker, region : str
        Names in routes and answers; by default of the quick start's broker, to which the directory
        can be handed over.
    """

    host: str = "127.0.0.1"
    port: int = 0
    vip: bool = True
    advertise: tuple[str, int] | None = None
    own_host: str | None = None
    auto_create: bool = True
    auto_create_groups: bool = True
    default_queue_nums: int = 8
    trace_topic: str | None = None
    property_filter: bool = True
    tls: ssl.SSLContext | None = None
    tls_only: bool = False
    acl: Acl | None = None
    cluster: str = "DefaultCluster"
    broker: str = "broker-a"
    region: str = "DefaultRegion"
    limits: Limits = field(default_factory=Limits)

    @property
    def most_queues(self) -> int:
        """Limit of queues that a client may ask for in a topic."""
        return max(self.limits.queues, self.default_queue_nums)
