"""Messages that a consumer gives back: retried later, or dead letters.

Source: ``broker/processor/SendMessageProcessor.java asyncConsumerSendMsgBack``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqstore import paths
from rmqstore.arguments import shown
from rmqstore.asyncwait import put_at_once, put_durable
from rmqstore.brokerfiles.groups import GroupConfig
from rmqstore.consume.retry import is_dead_letter, send_back
from rmqstore.errors import PutError
from rmqstore.serve.producing.stored_records import message_at
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.fields import LONG_MAX, number, optional_number, text, truth
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.services.stored import SCHEDULE_TOPIC
from rmqstore.types import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqstore._core import PutResult
    from rmqstore.serve.gateway import Gateway, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.store import MessageStore

__all__ = ["HANDLERS"]

_V3_4_9 = 121  # MQVersion: from it on the request's maxReconsumeTimes counts
_WRITE = 2  # PermName.PERM_WRITE
_UNIT_SUB = 2  # TopicSysFlag: hasUnitSub


async def give_back(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer CONSUMER_SEND_MSG_BACK."""
    offset = number(request, "offset", least=-LONG_MAX - 1, most=LONG_MAX)
    name = text(request, "group")
    delay_level = number(request, "delayLevel")
    retry_max = optional_number(request, "maxReconsumeTimes")
    if not paths.is_group_name(name):
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"group must be 1 to 120 of [%|a-zA-Z0-9_-], got {shown(name)}",
        )
    store = gateway.store
    group = store._groups.get(name)
    if group is None and not gateway.settings.auto_create_groups:
        raise Refusal(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group not exist, {name} ",
            faq=True,
        )
    if group is not None and group.retry_queue_nums <= 0:
        return Answer()  # nobody tries it again, as with a broker
    retry_topic = paths.retry_topic(name)
    entry = store._registry.get(retry_topic)
    if entry is not None and not entry.perm & _WRITE:
        raise Refusal(
            ResponseCode.NO_PERMISSION, f"the topic[{retry_topic}] sending message is forbidden"
        )
    message = message_at(store, offset) if offset >= 0 else None
    if message is None:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
    if group is None:
        gateway.new_groups.check_room(name, connection.owner)
    if request.version < _V3_4_9:
        retry_max = None
    try:
        await _store(
            store,
            name,
            dead=is_dead_letter(message, group or GroupConfig(name), delay_level, retry_max),
            back=lambda: send_back(
                store,
                message,
                store._enter_group(name),
                delay_level,
                retry_max=retry_max,
                topic_sys_flag=_UNIT_SUB if truth(request, "unitMode") else 0,
                wait=False,
            ),
        )
    except PutError as error:
        status = error.status if error.status is not None else PutStatus.UNKNOWN_ERROR
        raise Refusal(ResponseCode.SYSTEM_ERROR, status.name) from error
    gateway.rates.sent_back(name, message.properties.get("RETRY_TOPIC", message.topic))
    return Answer()


async def _store(
    store: MessageStore, name: str, *, dead: bool, back: Callable[[], PutResult]
) -> None:
    """Store a message again; group and topics are made in another thread."""
    names = (paths.retry_topic(name), paths.dead_letter_topic(name) if dead else SCHEDULE_TOPIC)
    missing = [topic for topic in names if not store._knows_topic(topic)]
    topic = missing[0] if missing else names[1]
    if store._config.flush_disk_type == "SYNC_FLUSH":
        await put_durable(store, topic, back)
    else:
        await put_at_once(store, topic, back)


HANDLERS: dict[int, Handler] = {RequestCode.CONSUMER_SEND_MSG_BACK: give_back}
