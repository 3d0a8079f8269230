"""``store.consumer``: messages of a topic for a group, from its committed offsets on.

Source: ``client/consumer/DefaultMQPushConsumer.java``, ``DefaultLitePullConsumer.java``.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from rmqstore.base.arguments import one_of, shown, wrong_type, wrong_value
from rmqstore.base.layout import INT32_MAX
from rmqstore.base.times import to_millis
from rmqstore.brokerfiles.offsets import check_names
from rmqstore.consume.groups import group_name
from rmqstore.consume.state import ConsumerState
from rmqstore.errors import ConsumeDisabledError, StoreCorruptError
from rmqstore.files import paths
from rmqstore.services.topics import TopicCatalog

if TYPE_CHECKING:
    from rmqstore.base.times import TimeLike
    from rmqstore.consume.consumer import Consumer

__all__ = ["Consumers"]


class Consumers:
    """Consumers of a store."""

    def __init__(self, state: ConsumerState, topics: TopicCatalog) -> None:
        self._state = state
        self._topics = topics

    def consumer(
        self,
        topic: str,
        *,
        group: str,
        tags: str | None = None,
        sql: str | None = None,
        start: Literal["group", "first", "last"] | TimeLike = "group",
        queues: Iterable[int] | None = None,
        orderly: bool = False,
        on_removed: Literal["skip", "raise"] = "skip",
        on_corruption: Literal["raise", "skip"] = "raise",
    ) -> Consumer:
        """Open a consumer of a topic for a group, from the group's committed offsets on.

        Consumers of one group on one topic, in this store object, share its queues evenly; these
        are divided anew when one joins or leaves. A queue that moves to another consumer continues
        at its committed offset: messages that the first one took but did not commit come again.

        Parameters
        ----------
        topic : str
        group : str
            1 to 120 of ``[%|a-zA-Z0-9_-]``; created if missing, as a broker does.
        tags : str, optional
            ``"TagA || TagB"``. Retries come regardless of their tags.
        sql : str, optional
            SQL92 filter over the properties.
        start : str, int or datetime, optional
            ``"group"``: at the committed offset; a new group begins at the first message.
            ``"first"``: at the first message; ``"last"``: behind the last one. A point in time: at
            the first message stored then. Retries always begin at the committed offset.
        queues : iterable of int, optional
            Read these queues, whoever else joins; by default its share of the queues.
        orderly : bool, optional
            A queue with messages taken but not committed is read by no other consumer or thread
            until they are committed, or the consumer is closed.
        on_removed : str, optional
            If retention has removed unread messages: ``"skip"`` continues at the first
            remaining one, with a warning in the log; ``"raise"`` raises ``MessagesRemovedError``
            from the iteration, and the next one continues there.
        on_corruption : {"raise", "skip"}, optional
            At an invalid record of the topic: raise an error, or go on behind it, with a warning in
            the log; the next commit passes it. An invalid retry is passed in any case, and stays.

        Returns
        -------
        Consumer
            Close it, preferably with ``with``.

        Raises
        ------
        TopicNotFoundError
            Neither the log nor ``topics.json`` knows the topic; also a ``KeyError``.
        ConsumeDisabledError
            The group may not consume, by its entry in ``subscriptionGroup.json``.
        FilterError
            ``tags`` or ``sql`` is not a valid expression.
        TypeError, ValueError
            An argument has a wrong type or value, or a queue is pinned by another consumer; the
            topic's name contains ``@``, so that no offset of it can be written.
        StoreCorruptError
            In mode ``"r"``: a file of the groups and its ``.bak`` are torn.
        StoreClosedError, ForkedStoreError
            The store is not open here.

        Notes
        -----
        In mode ``"r"`` messages are read, and ``commit`` raises ``ReadOnlyStoreError``.
        Source: ``client/impl/consumer/RebalanceImpl.java``.

        Examples
        --------
        >>> with store.consumer("orders", group="billing") as orders:
        ...     for message in orders:
        ...         handle(message)
        ...         orders.commit()
        """
        from rmqstore.consume.consumer import Consumer

        state, core = self._state, self._state.core
        core.check_open()
        if not isinstance(topic, str):
            raise wrong_type("topic", "str", topic)
        group_name(group)
        begin = _beginning(start)
        one_of("on_removed", on_removed, ("skip", "raise"))
        one_of("on_corruption", on_corruption, ("raise", "skip"))
        if queues is not None and not isinstance(queues, Iterable):
            raise wrong_type("queues", "ids of queues", queues)
        pinned = None if queues is None else frozenset(map(_queue_id, queues))
        if pinned is not None and not pinned:
            raise wrong_value("queues", "at least one queue id", [])
        if not self._topics.has(topic):
            raise self._topics.not_found(topic)
        if core.mode != "r":
            check_names(topic, group)  # refused now, not with the first commit
        given: dict[str, Any] = {"tags": tags, "sql": sql}
        filters = {name: text for name, text in given.items() if text is not None}
        if filters:  # refused now, not with the first message
            with suppress(StoreCorruptError):
                core.get(topic, 0, 0, 1, **filters)
        if not state.enter_group(group).consume_enable:
            raise ConsumeDisabledError(
                f"{core.path}: the group {shown(group)} may not consume: consumeEnable is false in "
                f"{paths.CONFIG}/{paths.SUBSCRIPTION_GROUP_JSON}"
            )
        return Consumer(
            state,
            topic,
            group,
            filters=filters,
            start=begin,
            pinned=pinned,
            orderly=bool(orderly),
            raises=on_removed == "raise",
            skips_damaged=on_corruption == "skip",
        )


def _beginning(start: TimeLike) -> str | int:
    """Return one of the three words, or a time in milliseconds."""
    if isinstance(start, str):
        if start in ("group", "first", "last"):
            return start
        if not any(character.isdigit() for character in start):
            raise wrong_value("start", "'group', 'first', 'last' or a point in time", start)
    return to_millis(start, name="start")


def _queue_id(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type("queues", "ids of queues", value)
    if not 0 <= value <= INT32_MAX:
        raise wrong_value("queues", f"0 to {INT32_MAX} each", value)
    return value
