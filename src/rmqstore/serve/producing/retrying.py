"""Messages given back by a consumer: retried later, or dead letters.

A missing group is made as for its consumers, and missing topics as for a producer's sends.

Source: ``broker/processor/SendMessageProcessor.java asyncConsumerSendMsgBack``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rmqstore.aio.wait import put_at_once, put_durable
from rmqstore.base.arguments import shown
from rmqstore.base.layout import INT64_MAX, INT64_MIN
from rmqstore.consume.retry import is_dead_letter, missing_topics, send_back
from rmqstore.errors import PutError
from rmqstore.files import paths
from rmqstore.serve.stored_records import message_at
from rmqstore.serve.topics.newtopics import TopicAwaited
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.fields import number, optional_number, text, truth
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.services.stored import SCHEDULE_TOPIC
from rmqstore.types import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqstore._core import Message, PutResult
    from rmqstore.serve.consuming.newgroups import NewGroups
    from rmqstore.serve.network.answers import Handled, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.work import Work
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.topics.newtopics import NewTopics
    from rmqstore.store import MessageStore

__all__ = ["GiveBack"]

_V3_4_9 = 121  # MQVersion: the first whose maxReconsumeTimes counts
_WRITE = 2  # PermName.PERM_WRITE
_UNIT_SUB = 2  # TopicSysFlag: hasUnitSub


class GiveBack:
    """Messages given back by consumers."""

    def __init__(
        self,
        store: MessageStore,
        settings: Settings,
        work: Work,
        new_topics: NewTopics,
        new_groups: NewGroups,
        *,
        sent_back: Callable[[str, str], object],
    ) -> None:
        self._store = store
        self._settings = settings
        self._log = work.log
        self._new_topics = new_topics
        self._new_groups = new_groups
        self._sent_back = sent_back  # counts a message by group and topic

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.give_back}

    def give_back(self, connection: Connection, request: Request) -> Handled:
        """Answer CONSUMER_SEND_MSG_BACK."""
        offset = number(request, "offset", least=INT64_MIN, most=INT64_MAX)
        name = text(request, "group")
        delay_level = number(request, "delayLevel")
        retry_max = optional_number(request, "maxReconsumeTimes")
        if not paths.is_group_name(name):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"group must be 1 to 120 of [%|a-zA-Z0-9_-], got {shown(name)}",
            )
        store = self._store
        group = store.group_entries.get(name)
        if group is None and not self._settings.auto_create_groups:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {name} ",
                faq=True,
            )
        if group is not None and group.retry_queue_nums <= 0:
            return Answer()  # not retried, as with a broker
        retry_topic = paths.retry_topic(name)
        entry = store.registry.get(retry_topic)
        if entry is not None and not entry.perm & _WRITE:
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"the topic[{retry_topic}] sending message is forbidden"
            )
        message = message_at(store, offset) if offset >= 0 else None
        if message is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
        if request.version < _V3_4_9:
            retry_max = None
        group = group or self._new_groups.config(name, connection.owner)
        assert group is not None  # refused above
        flag = _UNIT_SUB if truth(request, "unitMode") else 0
        dead = is_dead_letter(message, group, delay_level, retry_max)
        try:
            for missing in missing_topics(store.registry, group, dead=dead, topic_sys_flag=flag):
                self._new_topics.check(missing.topic_name)
                raise TopicAwaited(missing)
        except PutError as error:
            raise self._refusal(error) from error
        more: dict[str, Any] = {"retry_max": retry_max, "topic_sys_flag": flag, "wait": False}
        back = partial(send_back, store.core, store.registry, message, group, delay_level, **more)
        topic = paths.dead_letter_topic(name) if dead else SCHEDULE_TOPIC
        return self._put(name, message, topic, back)

    async def _put(
        self, group: str, message: Message, topic: str, back: Callable[[], PutResult]
    ) -> Answer:
        """Store a message again, with synchronous flush on the disk; return the answer."""
        store = self._store
        wait = store.core.config.flush_disk_type == "SYNC_FLUSH"
        try:
            await (put_durable if wait else put_at_once)(store.core, topic, back)
        except PutError as error:
            raise self._refusal(error) from error
        self._sent_back(group, message.properties.get("RETRY_TOPIC", message.topic))
        return Answer()

    def _refusal(self, error: PutError) -> Refusal:
        """Return the refusal of a message that is not stored: the status' name, as a broker's."""
        status = error.status if error.status is not None else PutStatus.UNKNOWN_ERROR
        if status is PutStatus.UNKNOWN_ERROR:
            self._log.warning("a message that was given back is not stored: %s", error)
        return Refusal(ResponseCode.SYSTEM_ERROR, status.name)
