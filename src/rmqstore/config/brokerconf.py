"""Reader of ``broker.conf``: Java's properties format, and the keys known to a broker.

Source: ``java.util.Properties.load``; the setters of ``common/BrokerConfig.java``,
``remoting/netty/NettyServerConfig.java`` and ``NettyClientConfig.java``, which read the same file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rmqstore.base.arguments import shown

__all__ = [
    "MAX_BYTES",
    "OTHER_KEYS",
    "Setting",
    "nearest",
    "nearest_key",
    "parse_properties",
    "read_entries",
    "read_properties",
]

MAX_BYTES = 16 << 20

# Keys of other parts of the broker.
_BROKER_KEYS = """
    aclEnable adminBrokerThreadPoolNums autoCreateSubscriptionGroup autoCreateTopicEnable
    autoDeleteUnusedStats brokerClusterName brokerFastFailureEnable brokerIP1 brokerIP2 brokerId
    brokerName brokerPermission brokerTopicEnable channelNotActiveInterval clientAsyncSemaphoreValue
    clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout
    clientManageThreadPoolNums clientManagerThreadPoolQueueCapacity clientOnewaySemaphoreValue
    clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
    clientWorkerThreads clusterTopicEnable commercialBaseCount commercialBigCount commercialEnable
    commercialTimerCount commercialTransCount compressedRegister connectTimeoutMillis
    consumerFallbehindThreshold consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity
    disableConsumeIfConsumerReadSlowly enableDetailStat enablePropertyFilter
    endTransactionPoolQueueCapacity endTransactionThreadPoolNums
    fetchNamesrvAddrByAddressServer filterDataCleanTimeSpan filterServerNums filterSupportRetry
    flushConsumerOffsetHistoryInterval flushConsumerOffsetInterval forceRegister
    heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity highSpeedMode isolateLogEnable
    listenPort longPollingEnable maxDelayTime messageStorePlugIn
    msgTraceTopicName namesrvAddr notifyConsumerIdsChangedEnable processReplyMessageThreadPoolNums
    pullMessageThreadPoolNums pullThreadPoolQueueCapacity putMessageFutureThreadPoolNums
    putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity regionId
    registerBrokerTimeoutMills registerNameServerPeriod rejectTransactionMessage
    replyThreadPoolQueueCapacity rocketmqHome sendMessageThreadPoolNums sendThreadPoolQueueCapacity
    serverAsyncSemaphoreValue serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds
    serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads
    serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
    shortPollingTimeMills slaveReadEnable startAcceptSendRequestTimeStamp storeReplyMessageEnable
    traceOn traceTopicEnable transactionCheckInterval transactionCheckMax transactionTimeOut
    transferMsgByHeap useEpollNativeSelector useTLS waitTimeMillsInHeartbeatQueue
    waitTimeMillsInPullQueue waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue
    writeBufferHighWaterMark writeBufferLowWaterMark
"""
OTHER_KEYS = frozenset(_BROKER_KEYS.split())

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Setting(NamedTuple):
    """A key of the file, its value and its first line, from 1."""

    key: str
    value: str
    line: int


def read_properties(path: str | os.PathLike[str]) -> list[Setting]:
    """Return :func:`read_entries`, of duplicate keys only the last, as in Java."""
    return list({entry.key: entry for entry in read_entries(path)}.values())


def read_entries(path: str | os.PathLike[str]) -> list[Setting]:
    """Return the entries of a file in order.

    A file that is too large, or has an invalid escape, is a ``ValueError`` with path and line.
    """
    file = Path(path)
    with file.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{file}: more than {MAX_BYTES} bytes, no broker.conf")
    try:
        # Java reads Latin-1; people write UTF-8, and keys and numbers are the same in both.
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    try:
        return list(parse_properties(text.removeprefix("\ufeff")))
    except ValueError as error:
        raise ValueError(f"{file}, {error}") from None


def parse_properties(text: str) -> Iterator[Setting]:
    r"""Iterate over the entries of a text in Java's properties format.

    Comments begin with ``#`` or ``!``; a line that ends in an odd number of backslashes continues
    in the next; key and value are separated by ``=``, ``:`` or whitespace. An invalid escape is
    a ``ValueError`` with the line.
    """
    for line, logical in _logical_lines(text):
        end = _key_end(logical)
        rest = logical[end:].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        yield Setting(_unescape(logical[:end], line), _unescape(rest, line), line)


def nearest(key: str, known: Iterable[str]) -> str:
    """Return the warning about a key that a broker does not know."""
    found = nearest_key(key, [*known, *OTHER_KEYS])
    hint = f", perhaps {found} is meant" if found else ""
    return f"{key!r} is no key that a broker knows{hint}; it does nothing"


def nearest_key(key: str, known: Iterable[str]) -> str | None:
    """Return the known key that is nearest to an unknown one, ``None`` if none is near."""
    import difflib

    folded = {one.lower(): one for one in known}
    found = difflib.get_close_matches(key.lower(), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Iterate over logical lines: continuations joined, no comments, no empty lines."""
    parts: list[str] = []
    begin = 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not parts:
            if not line or line[0] in "#!":
                continue
            begin = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            parts.append(line[:-1])
            continue
        yield begin, "".join([*parts, line])
        parts = []
    if parts:
        yield begin, "".join(parts)


def _key_end(line: str) -> int:
    """Return the end of the key: the first unescaped whitespace, ``=`` or ``:``."""
    at = 0
    while at < len(line):
        if line[at] == "\\":
            at += 2
            continue
        if line[at] in "=: \t\f":
            return at
        at += 1
    return len(line)


def _unescape(text: str, line: int) -> str:
    def meaning(escape: re.Match[str]) -> str:
        code = escape[1]
        if code == "u":
            raise ValueError(f"line {line}: \\u without four hexadecimal digits in {shown(text)}")
        if len(code) > 1:
            return chr(int(code[1:], 16))
        return _LETTERS.get(code, code)

    return _ESCAPE.sub(meaning, text) if "\\" in text else text
