"""RocketMQ 4.9.3's message store as an embedded engine.

>>> import rmqstore
>>> with rmqstore.open("data/store", "a") as store:
...     done = store.put("Topic1", b"Hello RocketMQ", tags="TagA", queue_id=2)

Each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULES = {
    "open": ("rmqstore.opening", "open"),
    "MessageStore": ("rmqstore.store", "MessageStore"),
    "Topic": ("rmqstore.topic", "Topic"),
    "Queue": ("rmqstore.topic", "Queue"),
    "Consumer": ("rmqstore.consume.consumer", "Consumer"),
    "Group": ("rmqstore.consume.groups", "Group"),
    "Lag": ("rmqstore.consume.lag", "Lag"),
    "Scan": ("rmqstore.columns.scan", "Scan"),
    "IndexFile": ("rmqstore._core", "IndexFile"),
    "ConsumeQueue": ("rmqstore._core", "ConsumeQueue"),
    "CommitLog": ("rmqstore._core", "CommitLog"),
    "StoreConfig": ("rmqstore.config.store_config", "StoreConfig"),
    "RmqStoreWarning": ("rmqstore.config.store_config", "RmqStoreWarning"),
    "Server": ("rmqstore.serve.server", "Server"),
    "aserve": ("rmqstore.serve.serving", "aserve"),
    "InDoubt": ("rmqstore.services.transaction", "InDoubt"),
    "Transaction": ("rmqstore.services.transaction", "Transaction"),
    **{
        name: ("rmqstore._core", name)
        for name in (
            "Message",
            "PutResult",
            "PutManyResult",
            "crc32",
            "string_hash",
            "encode_record",
            "decode_record",
        )
    },
    **{
        name: ("rmqstore.types", name)
        for name in (
            "Deleted",
            "Delayed",
            "GetResult",
            "GetStatus",
            "PutStatus",
            "RecoveredRange",
            "Recovery",
            "Snapshot",
        )
    },
    **{
        name: ("rmqstore.errors", name)
        for name in (
            "StoreError",
            "StoreNotFoundError",
            "StoreLockedError",
            "StoreCorruptError",
            "IncompatibleStoreError",
            "StoreFailedError",
            "StoreClosedError",
            "ReadOnlyStoreError",
            "ForkedStoreError",
            "PutError",
            "MessageIllegalError",
            "FilterError",
            "TopicNotFoundError",
            "GroupNotFoundError",
            "ConsumeDisabledError",
            "MessageNotFoundError",
            "MessagesRemovedError",
        )
    },
}

if TYPE_CHECKING:
    from rmqstore._core import (
        Message,
        PutManyResult,
        PutResult,
        crc32,
        decode_record,
        encode_record,
        string_hash,
    )
    from rmqstore.columns.scan import Scan
    from rmqstore.config.store_config import RmqStoreWarning, StoreConfig
    from rmqstore.consume.consumer import Consumer
    from rmqstore.consume.groups import Group
    from rmqstore.consume.lag import Lag
    from rmqstore.errors import (
        ConsumeDisabledError,
        FilterError,
        ForkedStoreError,
        GroupNotFoundError,
        IncompatibleStoreError,
        MessageIllegalError,
        MessageNotFoundError,
        MessagesRemovedError,
        PutError,
        ReadOnlyStoreError,
        StoreClosedError,
        StoreCorruptError,
        StoreError,
        StoreFailedError,
        StoreLockedError,
        StoreNotFoundError,
        TopicNotFoundError,
    )
    from rmqstore.opening import open
    from rmqstore.serve.server import Server
    from rmqstore.serve.serving import aserve, serve
    from rmqstore.services.transaction import InDoubt, Transaction
    from rmqstore.store import MessageStore
    from rmqstore.topic import Queue, Topic
    from rmqstore.types import (
        Delayed,
        Deleted,
        GetResult,
        GetStatus,
        PutStatus,
        RecoveredRange,
        Recovery,
        Snapshot,
    )

__all__ = [
    "CommitLog",
    "ConsumeDisabledError",
    "ConsumeQueue",
    "Consumer",
    "Delayed",
    "Deleted",
    "FilterError",
    "ForkedStoreError",
    "GetResult",
    "GetStatus",
    "Group",
    "GroupNotFoundError",
    "InDoubt",
    "IncompatibleStoreError",
    "IndexFile",
    "Lag",
    "Message",
    "MessageIllegalError",
    "MessageNotFoundError",
    "MessageStore",
    "MessagesRemovedError",
    "PutError",
    "PutManyResult",
    "PutResult",
    "PutStatus",
    "Queue",
    "ReadOnlyStoreError",
    "RecoveredRange",
    "Recovery",
    "RmqStoreWarning",
    "Scan",
    "Server",
    "Snapshot",
    "StoreClosedError",
    "StoreConfig",
    "StoreCorruptError",
    "StoreError",
    "StoreFailedError",
    "StoreLockedError",
    "StoreNotFoundError",
    "Topic",
    "TopicNotFoundError",
    "Transaction",
    "aserve",
    "crc32",
    "decode_record",
    "encode_record",
    "open",
    "serve",
    "string_hash",
]


# ``serve`` is a callable module, so that importing a part of it does not hide the function.
_SUBMODULES = ("metrics", "serve", "testing", "toolbox")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"rmqstore.{name}")
    try:
        module, attribute = _MODULES[name]
    except KeyError:
        raise AttributeError(f"module 'rmqstore' has no attribute {name!r}") from None
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
