"""``store.consumer``: messages of a topic for a group, from its committed offsets on.

Source: ``client/consumer/DefaultMQPushConsumer.java``, ``DefaultLitePullConsumer.java``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from rmqstore.base.arguments import one_of, shown, wrong_type, wrong_value
from rmqstore.base.layout import INT32_MAX
from rmqstore.base.times import to_millis
from rmqstore.brokerfiles.offsets import check_names
from rmqstore.consume.groups import group_name
from rmqstore.consume.state import ConsumerState
from rmqstore.errors import ConsumeDisabledError
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
    ) -> Consumer:
        """Return a consumer: the messages of a topic for a group, from where it has come.

        Consumers of one group on one topic share its queues, as far as they are of this store
        object: evenly, and again when one comes or goes. A queue that goes to another goes on from
        its committed offset, so that what the first one has taken and not committed comes again.

        Parameters
        ----------
        topic : str
        group : str
            1 to 120 of ``[%|a-zA-Z0-9_-]``; made if there is none, as a broker does.
        tags : str, optional
            ``"TagA || TagB"``. Retried messages come whatever their tags.
        sql : str, optional
            A filter over the properties.
        start : str, int or datetime, optional
            ``"group"``: where the group has come to; a new one begins at the first message. Or
            ``"first"``, ``"last"``: behind the last message, or a point in time: from the first
            message stored then. Retried messages always come from where the group has come to.
        queues : iterable of int, optional
            Read these queues, whoever else comes; by default the share of them.
        orderly : bool, optional
            Messages of a queue that was taken go to nobody else, nor to another thread, until
            they are committed, or the consumer is closed.
        on_removed : str, optional
            Where retention has removed messages that were yet to come: ``"skip"`` goes on at the
            first one that exists, with a warning in the log; ``"raise"`` raises
            ``MessagesRemovedError`` from the iteration, and the next one goes on there.

        Returns
        -------
        Consumer
            To be closed, best by ``with``.

        Raises
        ------
        TopicNotFoundError
            Neither the log nor ``topics.json`` knows the topic; also a ``KeyError``.
        ConsumeDisabledError
            The group may not consume, by its entry in ``subscriptionGroup.json``.
        FilterError
            ``tags`` or ``sql`` is no such expression.
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
        >>> with store.consumer("orders", group="billing") as orders:  # doctest: +SKIP
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
        if filters:
            core.get(topic, 0, 0, 1, **filters)  # refused now, not with the first message
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
        )


def _beginning(start: TimeLike) -> str | int:
    """Return one of the three words, or a point in time in ms."""
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
