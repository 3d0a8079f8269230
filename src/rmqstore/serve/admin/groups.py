"""Admin requests about consumer groups: create, delete, list.

Source: ``broker/processor/AdminBrokerProcessor.java``,
``broker/subscription/SubscriptionGroupManager.java``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqstore.brokerfiles import fastjson
from rmqstore.brokerfiles.groups import GroupConfig
from rmqstore.consume.groups import SYSTEM_GROUPS
from rmqstore.files import paths
from rmqstore.serve.admin.topics import check_queues
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.fields import check_body, truth
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.serve.wire.names import checked_group, checked_topic, group_of
from rmqstore.serve.wire.objecttext import Entries, dumps, dumps_in_steps

if TYPE_CHECKING:
    from rmqstore.serve.consuming.newgroups import NewGroups
    from rmqstore.serve.figures.rates import Rates
    from rmqstore.serve.network.answers import AnswerSteps, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.ownerpool import Pools
    from rmqstore.serve.network.work import Work
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.topics.topictable import ServedTopics
    from rmqstore.store import MessageStore

__all__ = ["BUILT_IN_GROUPS", "GroupAdmin", "all_groups"]

# Built-in groups; written to the file only once changed.
BUILT_IN_GROUPS = {name: GroupConfig(name) for name in SYSTEM_GROUPS}
_MOST_BODY = 64 << 10
_MOST_VALUES = 1000  # in the body; an entry of 5.x has some twenty
_MAX_GROUPS = 100_000
# Fields of 5.x, with the only value that 4.9.3 supports.
_OF_FIVE = {
    "attributes": {}, "consumeMessageOrderly": False, "consumeTimeoutMinute": 15,
    "groupSysFlag": 0,
}  # fmt: skip
# Optional fields of an entry, written back unchanged.
_OTHER = {
    "brokerId": int,
    "consumeFromMinEnable": bool,
    "notifyConsumerIdsChangedEnable": bool,
    "whichBrokerWhenConsumeSlowly": int,
}


def all_groups(store: MessageStore) -> Iterator[tuple[str, GroupConfig]]:
    """Yield names and entries of all groups."""
    groups = store.group_entries
    for name, entry in BUILT_IN_GROUPS.items():
        yield name, groups.get(name) or entry
    for entry in groups:
        if entry.group_name not in BUILT_IN_GROUPS:
            yield entry.group_name, entry


class GroupAdmin:
    """Requests about consumer groups."""

    def __init__(
        self,
        store: MessageStore,
        settings: Settings,
        work: Work,
        pools: Pools,
        topics: ServedTopics,
        *,
        new_groups: NewGroups,
        rates: Rates,
    ) -> None:
        self._store = store
        self._settings = settings
        self._turns = work.turns
        self._pools = pools
        self._topics = topics
        self._new_groups = new_groups
        self._rates = rates

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._update,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all_configs,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._one_config,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self._set_request_mode,
        }

    async def _update(self, connection: Connection, request: Request) -> Answer:
        """Answer UPDATE_AND_CREATE_SUBSCRIPTIONGROUP; the body is an entry as in the file."""
        check_body(request, _MOST_BODY, _MOST_VALUES)
        entry = _entry_of(request.body)
        name = entry.group_name

        def changed(there: GroupConfig | None) -> GroupConfig:
            check_queues(
                self._settings.most_queues,
                paths.retry_topic(name),
                entry.retry_queue_nums,
                there.retry_queue_nums if there is not None else 0,
            )
            if len(self._store.group_entries) >= _MAX_GROUPS and there is None:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"the group {name} is not made: there are {_MAX_GROUPS} already",
                )
            return entry

        def change() -> None:
            self._store.core.check_writable()
            self._new_groups.change(name, changed)

        if self._store.group_entries.get(name) is None:
            self._new_groups.check_room(name, connection.owner)
        with self._new_groups.begun(name):
            await self._pools.change(connection, request, change)
        return Answer()

    async def _delete(self, connection: Connection, request: Request) -> Answer:
        """Answer DELETE_SUBSCRIPTIONGROUP; a missing group counts as deleted."""
        group = group_of(request, "groupName")
        offsets = truth(request, "removeOffset")

        def change() -> None:
            store = self._store
            store.core.check_writable()
            self._new_groups.change(group, lambda there: None)
            if offsets and store.progress.forget(group=group):
                store.progress.save()

        await self._pools.change(connection, request, change)
        self._new_groups.count(group)
        await self._turns.run(self._rates.forget_group(group))
        return Answer()

    def _all_configs(self, connection: Connection, request: Request) -> AnswerSteps:
        table = Entries((name, entry.to_json()) for name, entry in all_groups(self._store))
        body = Entries(self._store.group_entries.json_of(table).items())
        return Answer(body=(yield from dumps_in_steps(body)))

    def _one_config(self, connection: Connection, request: Request) -> Answer:
        """Answer GET_SUBSCRIPTIONGROUP_CONFIG of 5.x: an entry, or the default for a missing group.

        5.x creates the group here if consumers may create groups; this gateway only reads.
        """
        name = group_of(request, "group")
        entry = self._store.group_entries.get(name) or BUILT_IN_GROUPS.get(name)
        if entry is None and self._settings.auto_create_groups:
            entry = GroupConfig(name)
        if entry is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return Answer(body=dumps(_OF_FIVE | entry.to_json()))

    def _set_request_mode(self, connection: Connection, request: Request) -> Answer:
        """Answer SET_MESSAGE_REQUEST_MODE of 5.x: groups only pull, and never pop."""
        check_body(request, _MOST_BODY, _MOST_VALUES)
        try:
            data = fastjson.loads(request.body.decode())
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the mode cannot be read: {error}") from None
        asked = data if isinstance(data, dict) else {}
        topic = checked_topic(str(asked.get("topic") or ""))
        group = checked_group(str(asked.get("consumerGroup") or ""))
        if topic.startswith(paths.retry_topic("")):
            raise Refusal(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.config(topic) is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        there = self._store.group_entries.get(group) or BUILT_IN_GROUPS.get(group)
        if there is None and not self._settings.auto_create_groups:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist"
            )
        if asked.get("mode") not in ("PULL", None):
            raise Refusal(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                "pop consumers are not supported: the mode of a group is PULL",
            )
        return Answer()


def _entry_of(body: bytes) -> GroupConfig:
    """Return the entry in a body; unknown fields are left out."""
    try:
        data = fastjson.loads(body.decode())
        if not isinstance(data, dict):
            raise ValueError("the entry of a group is an object")
        name = data.get("groupName")
        if not isinstance(name, str):
            raise ValueError("groupName is no text")
        known = (*_OTHER, "consumeEnable", "consumeBroadcastEnable", "retryQueueNums",
                 "retryMaxTimes")  # fmt: skip
        for field, kind in _OTHER.items():
            if field in data and type(data[field]) is not kind:
                raise ValueError(f"{field} of {name!r} is {data[field]!r}")
        entry = GroupConfig.from_json(name, {key: data[key] for key in known if key in data})
    except ValueError as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"the group cannot be read: {error}") from None
    checked_group(name)
    return entry
