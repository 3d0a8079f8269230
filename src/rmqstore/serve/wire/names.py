"""Names in requests: checked to be safe in paths and as keys of offsets.

The real broker does not check names of groups, and an invalid one in a path stops it for good.
Topics with names from old brokers, such as ``a.b``, are accepted, but not to put to or to create.

Source: ``common/topic/TopicValidator.java validateTopic``, ``client/Validators.java checkGroup``.
"""

from __future__ import annotations

from functools import lru_cache

from rmqstore.files import paths
from rmqstore.serve.wire.codes import ResponseCode
from rmqstore.serve.wire.fields import refused, text
from rmqstore.serve.wire.frames import Refusal, Request

__all__ = ["checked_group", "checked_topic", "group_of", "new_topic", "topic_of"]

_ALLOWED = "^[%|a-zA-Z0-9_-]+$"
_KEPT = 4096  # recent names; each request has some, and a long name is not kept

_is_topic = lru_cache(_KEPT)(paths.is_topic_name)
_is_group = lru_cache(_KEPT)(paths.is_group_name)


def topic_of(request: Request) -> str:
    """Return the valid topic of a request that reads, commits or removes."""
    return checked_topic(text(request, "topic"))


def checked_topic(name: str) -> str:
    """Return a valid name of a topic to read, commit or remove."""
    if paths.is_stored_topic_name(name):
        return name
    raise refused("topic must be a name, and no path", name)


def new_topic(name: str) -> str:
    """Return a valid name of a topic to put to, or to create."""
    if len(name) <= paths.TOPIC_MAX_LENGTH and _is_topic(name):
        return name
    raise Refusal(ResponseCode.SYSTEM_ERROR, _why("topic", name, paths.TOPIC_MAX_LENGTH))


def group_of(request: Request, field: str = "consumerGroup") -> str:
    """Return the valid group of a request."""
    return checked_group(text(request, field))


def checked_group(name: str) -> str:
    """Return a valid name of a group, whose retry topic has to be a topic name."""
    most = paths.TOPIC_MAX_LENGTH - len(paths.retry_topic(""))
    if len(name) <= most and _is_group(name):
        return name
    raise Refusal(ResponseCode.SYSTEM_ERROR, _why("group", name, most))


def _why(kind: str, name: str, most: int) -> str:
    if not name.strip():
        return f"The specified {kind} is blank."
    if len(name) > most and paths.is_topic_name(name[:most]):
        return f"The specified {kind} is longer than {kind} max length."
    return f"The specified {kind} contains illegal characters, allowing only {_ALLOWED}"
