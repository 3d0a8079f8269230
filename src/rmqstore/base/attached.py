"""Methods of a part, attached to its owner's class."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

__all__ = ["method_of"]

P = ParamSpec("P")
R = TypeVar("R")


def method_of(
    part: str, method: Callable[Concatenate[Any, P], R]
) -> Callable[Concatenate[Any, P], R]:
    """Return a method that calls ``method`` on the object's attribute ``part``."""

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **named: P.kwargs) -> R:
        return method(getattr(self, part), *arguments, **named)

    return call
