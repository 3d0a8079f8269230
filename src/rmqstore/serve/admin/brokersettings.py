"""Settings shown to admin tools: the store's, the gateway's, and keys that tools expect.

Source: ``common/Configuration.java getAllConfigsFormatString``, ``common/BrokerConfig.java``,
``remoting/netty/NettyServerConfig.java``, ``NettyClientConfig.java``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqstore.config.fields import specs_of
from rmqstore.config.reasons import MEANINGLESS, REFUSED
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve.network.sockets import address_text
from rmqstore.serve.topics.nameserver import NETWORK_DEFAULTS
from rmqstore.serve.topics.topictable import DEFAULT_TOPIC

if TYPE_CHECKING:
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.topics.topictable import ServedTopics
    from rmqstore.store import MessageStore

__all__ = ["broker_settings"]

# Defaults of 4.9.3 for threads, pools and services that do not exist here: tools look for the
# keys.
_DEFAULTS = """
    adminBrokerThreadPoolNums=16 autoDeleteUnusedStats=false brokerId=0 brokerPermission=6
    brokerTopicEnable=true channelNotActiveInterval=60000 clientAsyncSemaphoreValue=65535
    clientCallbackExecutorThreads=2 clientChannelMaxIdleTimeSeconds=120
    clientCloseSocketIfTimeout=true clientManageThreadPoolNums=32
    clientManagerThreadPoolQueueCapacity=1000000 clientOnewaySemaphoreValue=65535
    clientPooledByteBufAllocatorEnable=false clientSocketRcvBufSize=0 clientSocketSndBufSize=0
    clientWorkerThreads=4 clusterTopicEnable=true commercialBaseCount=1 commercialBigCount=1
    commercialEnable=true commercialTimerCount=1 commercialTransCount=1 compressedRegister=false
    connectTimeoutMillis=3000 consumerFallbehindThreshold=17179869184
    consumerManageThreadPoolNums=32 consumerManagerThreadPoolQueueCapacity=1000000
    disableConsumeIfConsumerReadSlowly=false enableDetailStat=true
    endTransactionPoolQueueCapacity=100000 endTransactionThreadPoolNums=12
    fetchNamesrvAddrByAddressServer=false filterDataCleanTimeSpan=86400000 filterServerNums=0
    filterSupportRetry=false flushConsumerOffsetHistoryInterval=60000
    flushConsumerOffsetInterval=5000 forceRegister=true heartbeatThreadPoolNums=2
    heartbeatThreadPoolQueueCapacity=50000 highSpeedMode=false isolateLogEnable=false
    longPollingEnable=true maxDelayTime=40 messageStorePlugIn=
    msgTraceTopicName=RMQ_SYS_TRACE_TOPIC notifyConsumerIdsChangedEnable=true
    processReplyMessageThreadPoolNums=20 pullMessageThreadPoolNums=20
    pullThreadPoolQueueCapacity=100000 putMessageFutureThreadPoolNums=2
    putThreadPoolQueueCapacity=10000 queryMessageThreadPoolNums=10
    queryThreadPoolQueueCapacity=20000 registerBrokerTimeoutMills=6000
    registerNameServerPeriod=30000 rejectTransactionMessage=false
    replyThreadPoolQueueCapacity=10000 sendMessageThreadPoolNums=2
    sendThreadPoolQueueCapacity=10000 shortPollingTimeMills=1000 slaveReadEnable=false
    startAcceptSendRequestTimeStamp=0 storeReplyMessageEnable=true traceOn=true
    transferMsgByHeap=true waitTimeMillsInHeartbeatQueue=31000 waitTimeMillsInPullQueue=5000
    waitTimeMillsInSendQueue=200 waitTimeMillsInTransactionQueue=3000
"""
# Settings of the broker that are fields of the store's configuration here.
_OF_BROKER = frozenset(
    (
        "defaultTopicQueueNums",
        "enableCalcFilterBitMap",
        "expectConsumerNumUseFilter",
        "maxErrorRateOfBloomFilter",
        "transactionCheckInterval",
        "transactionCheckMax",
        "transactionTimeOut",
    )
)
_BATCH_PUSH = "isEnableBatchPush"  # named by the field, not the setter
_FOREVER = "2147483647"  # hours


def broker_settings(
    store: MessageStore, settings: Settings, topics: ServedTopics, host: str, port: int
) -> dict[str, str]:
    """Return the settings by RocketMQ's names, sorted, for a client of an address."""
    found = NETWORK_DEFAULTS | dict(pair.split("=", 1) for pair in _DEFAULTS.split())
    found.update(_store_settings(store))
    default = topics.built_in.get(DEFAULT_TOPIC)
    if default is not None:
        found["defaultTopicQueueNums"] = str(default.write_queue_nums)
    found.update(
        aclEnable=_text(settings.acl is not None),
        autoCreateSubscriptionGroup=_text(settings.auto_create_groups),
        autoCreateTopicEnable=_text(settings.auto_create),
        brokerClusterName=settings.cluster,
        brokerFastFailureEnable="false",
        brokerIP1=host,
        brokerIP2=host,
        brokerName=settings.broker,
        enablePropertyFilter=_text(settings.property_filter),
        listenPort=str(settings.port),
        namesrvAddr=address_text(host, port),
        regionId=settings.region,
        serverChannelMaxIdleTimeSeconds=str(int(settings.limits.idle_seconds)),
        storePathRootDir=store.path,
        traceTopicEnable=_text(settings.trace_topic is not None),
        useTLS=_text(settings.tls is not None),
    )
    if settings.trace_topic is not None:
        found["msgTraceTopicName"] = settings.trace_topic
    return dict(sorted(found.items()))


def _store_settings(store: MessageStore) -> dict[str, str]:
    """Return the settings of RocketMQ's store; ours have no key there."""
    config = store.config
    # Settings without a meaning here have 4.9.3's defaults; empty ones are ``null`` there: no line.
    found = {key: default for key, (default, _) in (MEANINGLESS | REFUSED).items() if default}
    found[_BATCH_PUSH] = found.pop("enableBatchPush")
    for name, spec in specs_of(StoreConfig).items():
        value = getattr(config, name)
        if (spec.ours and spec.java not in _OF_BROKER) or not spec.java or value is None:
            continue
        found[spec.java] = _text(value)
    found.setdefault("fileReservedTime", _FOREVER)
    found.setdefault("storePathCommitLog", f"{store.path}/commitlog")
    return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
