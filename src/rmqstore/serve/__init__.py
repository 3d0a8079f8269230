"""The gateway: name server and broker for unchanged RocketMQ clients, over an embedded store.

One loop owns all state: clients, subscriptions, held pulls.  None has a lock, as no other thread
touches it; the store is used from any thread.

The package is callable: ``rmqstore.serve(...)`` is :func:`rmqstore.serve.serve`, even after one of
its modules was imported.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqstore.serve.server import Server
    from rmqstore.serve.serving import AsyncServer, aserve, serve

__all__ = ["AsyncServer", "Server", "aserve", "serve"]

_MODULES = {
    "AsyncServer": "rmqstore.serve.serving",
    "Server": "rmqstore.serve.server",
    "aserve": "rmqstore.serve.serving",
    "serve": "rmqstore.serve.serving",
    "__wrapped__": "rmqstore.serve.serving",  # for inspect: signature and docstring
}


class _Serve(ModuleType):
    """A callable package: calls go to its function of the same name; pickled by name."""

    def __call__(self, *arguments: Any, **options: Any) -> Server:
        from rmqstore.serve.serving import serve

        return serve(*arguments, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, (self.__name__,)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), "serve" if name == "__wrapped__" else name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})


sys.modules[__name__].__class__ = _Serve
