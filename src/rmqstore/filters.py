"""Filters of messages: tag expressions, and RocketMQ's SQL92 over properties.

``get``, ``scan`` and their users take both, as ``tags`` and ``sql``; a message has to pass both.
This module checks them, and applies them to one message.

Source: ``common/filter/FilterAPI.java``, ``broker/filter/ExpressionMessageFilter.java``.
"""

from __future__ import annotations

from rmqstore import _core

__all__ = ["check_filter", "message_passes"]


def check_filter(*, tags: str | None = None, sql: str | None = None) -> None:
    """Raise the error that any use of these expressions would.

    Parameters
    ----------
    tags : str, optional
        ``"TagA || TagB"``; ``"*"`` and an empty one match all.
    sql : str, optional
        An SQL92 filter, as ``"amount > 5 AND region IN ('eu', 'us')"``.

    Raises
    ------
    FilterError
        One of them does not parse.
    TypeError, ValueError
        One of them is not a str, or has a lone surrogate.
    """
    _core._check_filter(tags, sql)


def message_passes(
    message: _core.Message, *, tags: str | None = None, sql: str | None = None
) -> bool:
    """Return whether a message passes.

    Parameters
    ----------
    message : Message
    tags, sql : str, optional
        As :func:`check_filter` takes them.

    Raises
    ------
    FilterError, TypeError, ValueError
        As :func:`check_filter`.
    OSError
        The message's file was truncated.
    """
    return _core._message_passes(message, tags, sql)
