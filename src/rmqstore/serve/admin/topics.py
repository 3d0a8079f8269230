"""Admin requests about topics: create, delete, list.

Source: ``broker/processor/AdminBrokerProcessor.java``, ``broker/topic/TopicConfigManager.java``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.errors import TopicNotFoundError
from rmqstore.serve.topics.topictable import is_system_topic, system_topics
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.fields import number, optional_number
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.serve.wire.names import new_topic, topic_of
from rmqstore.serve.wire.objecttext import Entries, dumps, dumps_in_steps

if TYPE_CHECKING:
    from rmqstore.serve.figures.rates import Rates
    from rmqstore.serve.network.answers import AnswerSteps, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.ownerpool import Pools
    from rmqstore.serve.network.work import Work
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.topics.nameserver import NameServer
    from rmqstore.serve.topics.producedtopics import ProducedTopics
    from rmqstore.serve.topics.topictable import ServedTopics
    from rmqstore.store import MessageStore

__all__ = ["UNSET", "TopicAdmin", "check_queues", "entry_of"]

_MAX_TOPICS = 100_000
_MAX_QUEUES = 65_536
_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
UNSET = "not set any response code"  # remark in these answers of 4.9.3


class TopicAdmin:
    """Requests about topics."""

    def __init__(
        self,
        store: MessageStore,
        settings: Settings,
        work: Work,
        pools: Pools,
        topics: ServedTopics,
        *,
        names: NameServer,
        produced: ProducedTopics,
        asked: ProducedTopics,
        rates: Rates,
    ) -> None:
        self._store = store
        self._settings = settings
        self._work = work
        self._pools = pools
        self._topics = topics
        self._names = names
        self._produced = produced
        self._asked = asked
        self._rates = rates

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._update,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete,
            RequestCode.CLEAN_UNUSED_TOPIC: self._clean_unused,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._clean_unused,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all_configs,
            RequestCode.GET_TOPIC_CONFIG: self._one_config,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system_list,
        }

    async def _update(self, connection: Connection, request: Request) -> Answer:
        name = new_topic(self._changeable(request))
        read = number(request, "readQueueNums", least=0, most=_MAX_QUEUES)
        write = number(request, "writeQueueNums", least=0, most=_MAX_QUEUES)
        perm = number(request, "perm", least=0, most=15)
        flag = optional_number(request, "topicSysFlag", least=0) or 0
        kind = request.fields.get("topicFilterType", _FILTER_TYPES[0])
        if kind not in _FILTER_TYPES:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"topicFilterType = [{kind[:64]}] value invalid"
            )

        def entered(there: TopicConfig | None) -> TopicConfig:
            has = max(there.read_queue_nums, there.write_queue_nums) if there is not None else 0
            check_queues(self._settings.most_queues, name, max(read, write), has)
            if there is None and len(self._store.registry) >= _MAX_TOPICS:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"the topic {name} is not made: there are {_MAX_TOPICS} already",
                )
            return TopicConfig(
                topic_name=name,
                read_queue_nums=read,
                write_queue_nums=write,
                perm=perm,
                topic_filter_type=kind,
                topic_sys_flag=flag,
                order=self._names.order(name) is not None,
            )

        def change() -> None:
            store = self._store
            store.core.check_writable()
            store.registry.change({name: entered})

        asked, owner = self._asked, connection.owner
        if self._store.registry.get(name) is None and not asked.take(name, owner):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"the topic {name} is not made: {asked.of(owner)} were already, by requests of "
                f"{owner}",
            )
        with asked.begun(name):
            await self._pools.change(connection, request, change)
        return Answer(remark=UNSET)

    async def _delete(self, connection: Connection, request: Request) -> Answer:
        """Answer DELETE_TOPIC_IN_BROKER; a missing topic counts as deleted."""
        name = self._changeable(request)

        def change() -> bool:
            try:
                self._store.delete_topic(name)
            except TopicNotFoundError:
                return False
            return True

        if await self._pools.remove(connection, request, change):
            await self._work.turns.run(self._rates.forget_topic(name))
        for made in (self._produced, self._asked):
            made.count(name)
        return Answer()

    async def _clean_unused(self, connection: Connection, request: Request) -> Answer:
        """Answer CLEAN_UNUSED_TOPIC and CLEAN_EXPIRED_CONSUMEQUEUE, as retention does."""
        unused = await self._pools.remove(connection, request, self._store.clean_unused_topics)
        if unused:
            self._work.log.info(
                "%s had unused topics removed: %s", connection.peer, ", ".join(unused)
            )
        return Answer()

    # Lists

    def _all_configs(self, connection: Connection, request: Request) -> AnswerSteps:
        table = Entries((entry.topic_name, entry.to_json()) for entry in self._topics.all())
        body = Entries(self._store.registry.json_of(table).items())
        return Answer(fields={}, body=(yield from dumps_in_steps(body)))

    def _one_config(self, connection: Connection, request: Request) -> Answer:
        """Answer GET_TOPIC_CONFIG of 5.x: an entry, with no attributes, as 4.9.3 has none."""
        topic = topic_of(request)
        entry = self._topics.config(topic)
        if entry is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return Answer(body=dumps({"attributes": {}} | entry.to_json()))

    def _system_list(self, connection: Connection, request: Request) -> Answer:
        return Answer(body=dumps({"topicList": system_topics(self._settings)}))

    def _changeable(self, request: Request) -> str:
        """Return the topic to change; ``Refusal`` if it is built in."""
        topic = topic_of(request)
        if is_system_topic(self._settings, topic):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic."
            )
        return topic


def entry_of(topics: ServedTopics, topic: str) -> TopicConfig:
    """Return a topic's entry; ``Refusal`` if there is none."""
    entry = topics.config(topic)
    if entry is None:
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    return entry


def check_queues(most: int, name: str, queues: int, has: int) -> None:
    """Refuse more queues than clients may ask for, unless the topic already has them."""
    if queues > max(most, has):
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"{name} is not given {queues} queues: clients may ask for {most}, or for what "
            "defaultTopicQueueNums of the broker.conf has if that is more",
        )
