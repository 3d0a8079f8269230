"""Admin requests about the broker: runtime info, settings, rates.

Source: ``broker/processor/AdminBrokerProcessor.java prepareRuntimeInfo, getBrokerConfig,
ViewBrokerStatsData``, ``store/StoreStatsService.java getRuntimeInfo``.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from rmqstore.base.layout import INT32_MAX
from rmqstore.directory.layout import log_directories
from rmqstore.serve.admin.brokersettings import broker_settings
from rmqstore.serve.wire.codes import VERSION, RequestCode, ResponseCode
from rmqstore.serve.wire.fields import text
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.serve.wire.objecttext import dumps
from rmqstore.services.figures import disk_used_ratio

if TYPE_CHECKING:
    from rmqstore.serve.figures.rates import Rates
    from rmqstore.serve.network.answers import AnswerSteps, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.topics.topictable import ServedTopics
    from rmqstore.store import MessageStore

__all__ = ["BrokerAdmin"]

_VERSION_NAME = "V4_9_3"
_RATES = ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferedTps")
_RATE_SPANS = 3
_AS_THEY_ARE = (
    "bootTimestamp", "runtime", "putMessageEntireTimeMax", "putMessageTimesTotal",
    "putMessageFailedTimes", "putMessageSizeTotal", "putMessageAverageSize", "dispatchMaxBuffer",
    "getMessageEntireTimeMax", "commitLogDiskRatio", "consumeQueueDiskRatio", "commitLogMinOffset",
    "commitLogMaxOffset", "earliestMessageTimeStamp",
)  # fmt: skip
# Queues between threads; a single loop has none, so they are always empty.
_QUEUES = {"send": 10_000, "pull": 100_000, "query": 20_000}
_END_TRANSACTION_CAPACITY = 100_000
_KIB = 1024
_UNITS = "KMGTPE"


class BrokerAdmin:
    """Requests about the broker."""

    def __init__(
        self, store: MessageStore, settings: Settings, topics: ServedTopics, rates: Rates
    ) -> None:
        self._store = store
        self._settings = settings
        self._topics = topics
        self._rates = rates

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime,
            RequestCode.GET_BROKER_CONFIG: self._broker_settings,
            RequestCode.GET_BROKER_HA_STATUS: self._no_replicas,
            RequestCode.VIEW_BROKER_STATS_DATA: self._rate,
        }

    def _runtime(self, connection: Connection, request: Request) -> Answer:
        return Answer(body=dumps({"table": self._runtime_info()}))

    def _runtime_info(self) -> dict[str, str]:
        """Return the runtime info by name, values as text."""
        store, rates = self._store, self._rates
        figures = store.stats()
        table = {name: str(figures[name]) for name in _AS_THEY_ARE}
        # At least 1, as in 4.9.3, where it is a divisor.
        table["putMessageTimesTotal"] = str(max(1, figures["putMessageTimesTotal"]))
        table["putMessageDistributeTime"] = "".join(
            f"{name}:{count} " for name, count in figures["putMessageDistributeTime"].items()
        )
        for name in _RATES:
            values = [repr(float(value)) for value in figures[name]] or ["0.0"]
            table[name] = " ".join(values + [""] * (_RATE_SPANS - len(values)))
        table["getTransferredTps"] = table["getTransferedTps"]  # 5.x's spelling
        for directory in log_directories(store.path, store.config):
            table[f"commitLogDiskRatio_{os.fspath(directory)}"] = str(disk_used_ratio(directory))
        for level, (offset, stop) in self._topics.delay_offsets().items():
            table[f"scheduleMessageOffset_{level}"] = f"{offset},{stop}"
        table.update(
            brokerVersion=str(VERSION),
            brokerVersionDesc=_VERSION_NAME,
            msgPutTotalYesterdayMorning=str(rates.put_morning[0]),
            msgPutTotalTodayMorning=str(rates.put_morning[1]),
            msgPutTotalTodayNow=str(rates.put_total),
            msgGetTotalYesterdayMorning=str(rates.got_morning[0]),
            msgGetTotalTodayMorning=str(rates.got_morning[1]),
            msgGetTotalTodayNow=str(rates.got_total),
            EndTransactionQueueSize="0",
            EndTransactionThreadPoolQueueCapacity=str(_END_TRANSACTION_CAPACITY),
            dispatchBehindBytes=str(figures["dispatch_behind_bytes"]),
            pageCacheLockTimeMills="0",
            startAcceptSendRequestTimeStamp="0",
            remainTransientStoreBufferNumbs=str(INT32_MAX),
            remainHowManyDataToFlush=_bytes_text(figures["remainHowManyDataToFlush"]),
        )
        for name, capacity in _QUEUES.items():
            table[f"{name}ThreadPoolQueueSize"] = "0"
            table[f"{name}ThreadPoolQueueCapacity"] = str(capacity)
            table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        total, free = map(figures["commitLogDirCapacity"].get, ("total", "free"))
        table["commitLogDirCapacity"] = f"Total : {_bytes_text(total)}, Free : {_bytes_text(free)}."
        return table

    def _no_replicas(self, connection: Connection, request: Request) -> Answer:
        """Answer GET_BROKER_HA_STATUS of 5.x: a master without slaves."""
        never = dict.fromkeys(
            ("lastReadTimestamp", "lastWriteTimestamp", "masterFlushOffset", "maxOffset",
             "transferredByteInSecond"), 0,
        )  # fmt: skip
        body = {
            "haClientRuntimeInfo": {"activated": False, **never},
            "haConnectionInfo": [],
            "inSyncSlaveNums": 0,
            "master": True,
            "masterCommitLogMaxOffset": self._store.stats()["commitLogMaxOffset"],
        }
        return Answer(body=dumps(body))

    def _broker_settings(self, connection: Connection, request: Request) -> Answer:
        """Answer GET_BROKER_CONFIG; the settings are read-only."""
        host, port = connection.address
        values = broker_settings(self._store, self._settings, self._topics, host, port)
        version = json.dumps({"counter": 0, "timestamp": self._store.core.figures()["opened_at"]})
        body = "".join(f"{name}={value}\n" for name, value in values.items())
        return Answer(fields={"version": version}, body=body.encode())

    def _rate(self, connection: Connection, request: Request) -> AnswerSteps:
        name, key = text(request, "statsName"), text(request, "statsKey")
        yield from self._rates.read()
        spans = self._rates.spans(name, key)
        if spans is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        minute, hour, day = spans
        body: dict[str, Any] = {
            "statsDay": day._asdict(), "statsHour": hour._asdict(), "statsMinute": minute._asdict(),
        }  # fmt: skip
        return Answer(body=dumps(body))


def _bytes_text(count: int) -> str:
    """Return a human-readable number of bytes, as ``MixAll.humanReadableByteCount`` does."""
    if count < _KIB:
        return f"{count} B"
    power, value = 0, float(count)
    while value >= _KIB and power < len(_UNITS):
        value /= _KIB
        power += 1
    return f"{value:.1f} {_UNITS[power - 1]}iB"
