"""Subscriptions: the topics of a consumer, and its filters.

Source: ``common/protocol/heartbeat/SubscriptionData.java``, ``common/filter/FilterAPI.java``,
``filter/FilterFactory.java``.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqstore._core import PullFilter, string_hash
from rmqstore.errors import FilterError

if TYPE_CHECKING:
    from rmqstore.serve.settings import Settings

__all__ = ["ALL", "SQL92", "TAG", "PullFilters", "Subscription", "size_of", "unsupported"]

_BYTES = 256  # of a subscription or a parsed expression, besides its texts
_TAG_BYTES = 160  # of a tag in a parsed expression
_KEPT_BYTES = 16 << 20  # of parsed expressions
_EMPTY = sys.getsizeof("")
_NO_NAME = [" "]  # matches no message: a client trims its tags

ALL = "*"  # SubscriptionData.SUB_ALL
TAG = "TAG"
SQL92 = "SQL92"


@dataclass(slots=True)
class Subscription:
    """Group's subscription to a topic."""

    topic: str
    expression: str = ALL  # tags with ``||`` between them, ``*`` for all, or SQL92
    kind: str = TAG  # ``TAG``, ``SQL92``, or a client's own name
    version: int = 0  # ``subVersion``: the highest of a topic counts
    class_filter: bool = False

    @property
    def is_tags(self) -> bool:
        """Whether it is a tag expression."""
        return self.kind in ("", TAG)

    @property
    def wants_all(self) -> bool:
        """Whether it matches every message."""
        return self.is_tags and self.expression in ("", ALL)

    @property
    def tags(self) -> list[str]:
        """The wanted tags; empty where all match, or the expression is of another kind."""
        if not self.is_tags or self.wants_all:
            return []
        return list(dict.fromkeys(filter(None, map(str.strip, self.expression.split("||")))))

    @property
    def filter(self) -> PullFilter | None:
        """Filter for pulls, parsed each time; ``None`` for all, ``FilterError`` if invalid."""
        if self.wants_all:
            return None
        if self.is_tags:
            return PullFilter(names=self._names())
        if self.kind != SQL92:
            raise FilterError(f"there is no filter of type {self.kind}", 0)
        if not self.expression:
            raise FilterError(f"Expression can't be null! {self.kind}", 0)
        # The core caches compiled SQL, within bounds that all share.
        return PullFilter(None, self.expression)

    def _names(self) -> list[str]:
        names = self.tags
        if not names and not self.expression.replace("||", ""):
            raise FilterError("subString split error", 0)
        return names or _NO_NAME  # blanks between the bars are no error, but match nothing

    def to_json(self) -> dict[str, Any]:
        """Return its form in admin answers."""
        names = self.tags
        return {
            "classFilterMode": self.class_filter,
            "codeSet": [string_hash(name) for name in names],
            "expressionType": self.kind or TAG,
            "subString": self.expression or ALL,
            "subVersion": self.version,
            "tagsSet": names,
            "topic": self.topic,
        }


class PullFilters:
    """Cache of parsed tag filters, within one bound for all clients.

    A parsed expression takes up to forty times the memory of its text.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[PullFilter | None, int]] = OrderedDict()
        self._size = 0

    def of(self, expression: str, kind: str) -> PullFilter | None:
        """Return the ``filter`` of a subscription."""
        is_tags = kind in ("", TAG)
        kept = self._kept.get(expression) if is_tags else None
        if kept is not None:
            return kept[0]
        made = Subscription("", expression, kind).filter
        if not is_tags:
            return made
        size = _BYTES + _width(expression) + _TAG_BYTES * (1 + expression.count("||"))
        self._size += size
        self._kept[expression] = made, size
        while self._size > _KEPT_BYTES:  # the oldest ones make room
            self._size -= self._kept.popitem(last=False)[1][1]
        return made


def size_of(subscriptions: Iterable[Subscription]) -> int:
    """Return the charge of subscriptions: about their memory, up to four bytes a character."""
    return sum(_BYTES + _width(one.topic) + _width(one.expression) for one in subscriptions)


def _width(text: str) -> int:
    return sys.getsizeof(text) - _EMPTY


def unsupported(settings: Settings, kind: str) -> str | None:
    """Return why expressions of a kind are refused, ``None`` if they are not."""
    if settings.property_filter or kind in ("", TAG):
        return None
    return f"The broker does not support consumer to filter message by {kind}"
