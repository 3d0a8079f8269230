"""``aput``: ``put`` for asyncio.

asyncio itself is imported by the first call.

Source: ``store/DefaultMessageStore.java asyncPutMessage``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, SupportsIndex

from rmqstore import _core

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from rmqstore.base.times import TimeLike

__all__ = ["aput"]


async def aput(
    self: _core.Engine,
    topic: str,
    body: Buffer,
    *,
    queue_id: SupportsIndex | None = None,
    queue_key: str | SupportsIndex | Buffer | None = None,
    tags: str | None = None,
    keys: str | Iterable[str] | None = None,
    properties: Mapping[str, str] | None = None,
    flag: SupportsIndex = 0,
    delay_level: SupportsIndex | str = 0,
    born_timestamp: TimeLike | None = None,
    born_host: str | None = None,
    uniq_key: bool | str = True,
    lite_topics: Iterable[str] | None = None,
    wait: bool = True,
) -> _core.PutResult:
    """Store one message; waiting for the disk blocks neither the loop nor a thread.

    The message is in the log after the first step of the coroutine, so that messages of a topic
    are stored in the order in which their tasks begin. With synchronous flush it then waits
    for the disk; any number of tasks, threads and loops share a sync.

    Parameters
    ----------
    topic, body, queue_id, queue_key, tags, keys, properties, flag, delay_level
        As for :meth:`put`.
    born_timestamp, born_host, uniq_key, lite_topics
        As for :meth:`put`.
    wait : bool, optional
        With synchronous flush: return only once the message is on the disk.

    Returns
    -------
    PutResult

    Raises
    ------
    MessageIllegalError, TypeError, ValueError, PutError, StoreFailedError
        As for :meth:`put`.
    StoreClosedError
        The store was closed before the message was stored, or flushed.
    ReadOnlyStoreError, ForkedStoreError
        The store is not open for writing here.

    Notes
    -----
    A message whose ``aput`` was cancelled stays in the log, unless the task was cancelled
    before its first step. The loop is blocked only for the append: microseconds, sometimes
    also another writer's append or the next log file. A new topic is created in a thread of
    the loop's executor; later messages to it wait, those to other topics do not. A body of
    ``compress_above`` bytes or more is deflated there too, before the message is put: its order
    among other tasks' messages is then open.
    Source: ``store/DefaultMessageStore.java asyncPutMessage``.
    """
    from rmqstore.aio import wait as asyncwait

    if self.core.config.compress_above is not None:
        above, most = self.core.config.compress_above, self.core.config.max_body_size
        body = await asyncwait.deflated(above, most, body)
    put = partial(
        self.put,
        topic,
        body,
        queue_id=queue_id,
        queue_key=queue_key,
        tags=tags,
        keys=keys,
        properties=properties,
        flag=flag,
        delay_level=delay_level,
        born_timestamp=born_timestamp,
        born_host=born_host,
        uniq_key=uniq_key,
        lite_topics=lite_topics,
        wait=False,
    )
    if wait and self.core.config.flush_disk_type == "SYNC_FLUSH":
        return await asyncwait.put_durable(self.core, topic, put)
    return await asyncwait.put_at_once(self.core, topic, put)
