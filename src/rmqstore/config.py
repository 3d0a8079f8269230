"""The configuration of a store: RocketMQ's names in snake_case, its defaults, and a few of ours.

Source: ``store/config/MessageStoreConfig.java`` (77 fields, in its order).
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from dataclasses import dataclass
from typing import Any

from rmqstore.config_fields import (
    INT_MAX,
    LONG_MAX,
    UNIT_BYTES,
    boolean,
    check_value,
    choice,
    describe,
    integer,
    parse_value,
    specs_of,
    text,
)

__all__ = ["RmqStoreWarning", "StoreConfig"]

_HOURS = r"\s*([01]?\d|2[0-3])\s*(;\s*([01]?\d|2[0-3])\s*)*;?"
_LEVELS = r"[0-9]{1,9}[smhd]( [0-9]{1,9}[smhd])*"
_INDEX_HEADER_BYTES = 40
_SLOT_BYTES = 4
_ENTRY_BYTES = 20


class RmqStoreWarning(UserWarning):
    """Something that is very likely a mistake, but that can be worked with."""


@dataclass(frozen=True)
class StoreConfig:
    """Sizes, intervals and limits of a store.

    Beside each field stand its type, default, unit and range; below it
    RocketMQ's name of it, which is its key in ``broker.conf``.

    Attributes
    ----------
    {fields}

    Other Attributes
    ----------------
    Accepted, and without effect in this version:

    {others}

    Raises
    ------
    TypeError
        A field has a value of another type.
    ValueError
        A field is out of range; the message names it, its value and its
        range.

    Notes
    -----
    ``mapped_file_size_consume_queue`` is rounded up to a multiple of 20, as
    in Java.  ``None`` as a path is what is opened: both paths are ``None`` by
    default, where 4.9.3 has ``$HOME/store`` and ``$HOME/store/commitlog``.
    """

    # Paths and file sizes
    store_path_root_dir: str | None = text("storePathRootDir", None)
    store_path_commit_log: str | None = text("storePathCommitLog", None)
    read_only_commit_log_store_paths: str | None = text("readOnlyCommitLogStorePaths", None)
    mapped_file_size_commit_log: int = integer(
        "mappedFileSizeCommitLog", 1 << 30, 1024, acts=True, unit="bytes"
    )
    mapped_file_size_consume_queue: int = integer(
        "mappedFileSizeConsumeQueue",
        6_000_000,
        UNIT_BYTES,
        INT_MAX - INT_MAX % 20,
        acts=True,
        unit="bytes",
    )
    enable_consume_queue_ext: bool = boolean("enableConsumeQueueExt", False)
    mapped_file_size_consume_queue_ext: int = integer(
        "mappedFileSizeConsumeQueueExt", 48 << 20, 24, unit="bytes"
    )
    bit_map_length_consume_queue_ext: int = integer(
        "bitMapLengthConsumeQueueExt", 64, 0, unit="bits"
    )

    # Intervals of the activities
    flush_interval_commit_log: int = integer("flushIntervalCommitLog", 500, 1, acts=True, unit="ms")
    commit_interval_commit_log: int = integer("commitIntervalCommitLog", 200, 1, unit="ms")
    use_reentrant_lock_when_put_message: bool = boolean("useReentrantLockWhenPutMessage", True)
    flush_commit_log_timed: bool = boolean("flushCommitLogTimed", True)
    flush_interval_consume_queue: int = integer(
        "flushIntervalConsumeQueue", 1000, 1, acts=True, unit="ms"
    )
    clean_resource_interval: int = integer("cleanResourceInterval", 10_000, 1, unit="ms")
    delete_commit_log_files_interval: int = integer(
        "deleteCommitLogFilesInterval", 100, 0, unit="ms"
    )
    delete_consume_queue_files_interval: int = integer(
        "deleteConsumeQueueFilesInterval", 100, 0, unit="ms"
    )
    destroy_maped_file_interval_forcibly: int = integer(
        "destroyMapedFileIntervalForcibly", 120_000, 0, unit="ms"
    )
    redelete_hanged_file_interval: int = integer(
        "redeleteHangedFileInterval", 120_000, 0, unit="ms"
    )

    # Retention
    delete_when: str = text(
        "deleteWhen", "04", _HOURS, "hours of the day, 00 to 23, separated by ';'"
    )
    disk_max_used_space_ratio: int = integer("diskMaxUsedSpaceRatio", 75, 10, 95, unit="percent")
    file_reserved_time: int = integer("fileReservedTime", 72, 0, unit="hours")
    put_msg_index_hight_water: int = integer("putMsgIndexHightWater", 600_000, 0, unit="entries")

    # Limits, flushing
    max_message_size: int = integer(
        "maxMessageSize", 4 << 20, 1, acts=True, unit="bytes of a record"
    )
    check_crc_on_recover: bool = boolean("checkCRCOnRecover", True, acts=True)
    flush_commit_log_least_pages: int = integer(
        "flushCommitLogLeastPages", 4, 0, acts=True, unit="pages of 4 KiB"
    )
    commit_commit_log_least_pages: int = integer(
        "commitCommitLogLeastPages", 4, 0, unit="pages of 4 KiB"
    )
    flush_least_pages_when_warm_maped_file: int = integer(
        "flushLeastPagesWhenWarmMapedFile", 4096, 1, unit="pages of 4 KiB"
    )
    flush_consume_queue_least_pages: int = integer(
        "flushConsumeQueueLeastPages", 2, 0, acts=True, unit="pages of 4 KiB"
    )
    flush_commit_log_thorough_interval: int = integer(
        "flushCommitLogThoroughInterval", 10_000, 1, acts=True, unit="ms"
    )
    commit_commit_log_thorough_interval: int = integer(
        "commitCommitLogThoroughInterval", 200, 1, unit="ms"
    )
    flush_consume_queue_thorough_interval: int = integer(
        "flushConsumeQueueThoroughInterval", 60_000, 1, acts=True, unit="ms"
    )

    # Reading
    max_transfer_bytes_on_message_in_memory: int = integer(
        "maxTransferBytesOnMessageInMemory", 256 << 10, 1, unit="bytes"
    )
    max_transfer_count_on_message_in_memory: int = integer(
        "maxTransferCountOnMessageInMemory", 32, 1, unit="messages"
    )
    max_transfer_bytes_on_message_in_disk: int = integer(
        "maxTransferBytesOnMessageInDisk", 64 << 10, 1, unit="bytes"
    )
    max_transfer_count_on_message_in_disk: int = integer(
        "maxTransferCountOnMessageInDisk", 8, 1, unit="messages"
    )
    access_message_in_memory_max_ratio: int = integer(
        "accessMessageInMemoryMaxRatio", 40, 0, 100, unit="percent"
    )

    # Index
    message_index_enable: bool = boolean("messageIndexEnable", True, acts=True)
    max_hash_slot_num: int = integer("maxHashSlotNum", 5_000_000, 1, acts=True, unit="slots")
    max_index_num: int = integer("maxIndexNum", 20_000_000, 2, acts=True, unit="entries")
    max_msgs_num_batch: int = integer("maxMsgsNumBatch", 64, 1, unit="messages")
    message_index_safe: bool = boolean("messageIndexSafe", False)

    # Replication
    ha_listen_port: int = integer("haListenPort", 10912, 0, 65535)
    ha_send_heartbeat_interval: int = integer("haSendHeartbeatInterval", 5000, 1, unit="ms")
    ha_housekeeping_interval: int = integer("haHousekeepingInterval", 20_000, 1, unit="ms")
    ha_transfer_batch_size: int = integer("haTransferBatchSize", 32 << 10, 1, unit="bytes")
    ha_master_address: str | None = text("haMasterAddress", None)
    ha_slave_fallbehind_max: int = integer("haSlaveFallbehindMax", 256 << 20, 0, unit="bytes")
    broker_role: str = choice("brokerRole", "ASYNC_MASTER", "SYNC_MASTER", "SLAVE")

    # Durability
    flush_disk_type: str = choice("flushDiskType", "ASYNC_FLUSH", "SYNC_FLUSH", acts=True)
    sync_flush_timeout: int = integer("syncFlushTimeout", 5000, 1, acts=True, unit="ms")
    slave_timeout: int = integer("slaveTimeout", 3000, 1, unit="ms")

    # Delays and the rest
    message_delay_level: str = text(
        "messageDelayLevel",
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        _LEVELS,
        "delays such as '1s 5m 2h 1d', separated by one space",
        acts=True,
    )
    flush_delay_offset_interval: int = integer(
        "flushDelayOffsetInterval", 10_000, 1, LONG_MAX, unit="ms"
    )
    clean_file_forcibly_enable: bool = boolean("cleanFileForciblyEnable", True)
    warm_maped_file_enable: bool = boolean("warmMapedFileEnable", False)
    offset_check_in_slave: bool = boolean("offsetCheckInSlave", False)
    debug_lock_enable: bool = boolean("debugLockEnable", False)
    duplication_enable: bool = boolean("duplicationEnable", False)
    disk_fall_recorded: bool = boolean("diskFallRecorded", True)
    os_page_cache_busy_time_out_mills: int = integer(
        "osPageCacheBusyTimeOutMills", 1000, 0, LONG_MAX, unit="ms"
    )
    default_query_max_num: int = integer("defaultQueryMaxNum", 32, 1, unit="messages")
    transient_store_pool_enable: bool = boolean("transientStorePoolEnable", False)
    transient_store_pool_size: int = integer("transientStorePoolSize", 5, 1, unit="buffers")
    fast_fail_if_no_buffer_in_store_pool: bool = boolean("fastFailIfNoBufferInStorePool", False)
    enable_dleger_commit_log: bool = boolean("enableDLegerCommitLog", False)
    dleger_group: str | None = text("dLegerGroup", None)
    dleger_peers: str | None = text("dLegerPeers", None)
    dleger_self_id: str | None = text("dLegerSelfId", None)
    preferred_leader_id: str | None = text("preferredLeaderId", None)
    is_enable_batch_push: bool = boolean("enableBatchPush", False)  # the setter has no "is"
    enable_schedule_message_stats: bool = boolean("enableScheduleMessageStats", True)
    enable_lmq: bool = boolean("enableLmq", False)
    enable_multi_dispatch: bool = boolean("enableMultiDispatch", False)
    max_lmq_consume_queue_num: int = integer("maxLmqConsumeQueueNum", 20_000, 0, unit="queues")
    enable_schedule_async_deliver: bool = boolean("enableScheduleAsyncDeliver", False)
    schedule_async_deliver_max_pending_limit: int = integer(
        "scheduleAsyncDeliverMaxPendingLimit", 2000, 1, unit="messages"
    )
    schedule_async_deliver_max_resend_num2_blocked: int = integer(
        "scheduleAsyncDeliverMaxResendNum2Blocked", 3, 0, unit="times"
    )

    # Ours
    store_host: str = text(
        "storeHost", "127.0.0.1:10911", "host", "'ip:port' or '[v6]:port'", acts=True, ours=True
    )
    default_topic_queue_nums: int = integer(
        "defaultTopicQueueNums", 4, 1, 65536, acts=True, ours=True, unit="queues"
    )
    max_body_size: int = integer(
        "maxBodySize", 64 << 20, 1, LONG_MAX, acts=True, ours=True, unit="bytes inflated"
    )
    record_checksum: bool = boolean("recordChecksum", False, acts=True, ours=True)
    retention_clock: str = choice("retentionClock", "message", "mtime", ours=True)

    def __post_init__(self) -> None:
        """Check every field, then combinations of fields."""
        for name, spec in _SPECS.items():
            check_value(name, getattr(self, name), spec)
        size = self.mapped_file_size_consume_queue
        object.__setattr__(self, "mapped_file_size_consume_queue", size + -size % UNIT_BYTES)
        if self.index_file_bytes > INT_MAX:
            raise ValueError(
                f"max_hash_slot_num is {self.max_hash_slot_num} and max_index_num is "
                f"{self.max_index_num}, which makes index files of {self.index_file_bytes} bytes, "
                f"must be at most {INT_MAX}"
            )

    @property
    def index_file_bytes(self) -> int:
        """Bytes of one index file."""
        return (
            _INDEX_HEADER_BYTES
            + _SLOT_BYTES * self.max_hash_slot_num
            + _ENTRY_BYTES * self.max_index_num
        )

    @classmethod
    def small(cls, **changes: Any) -> StoreConfig:
        """Return a configuration for tests and small machines.

        Parameters
        ----------
        **changes
            Values of these fields, or of any other.

        Returns
        -------
        StoreConfig
            Log files of 16 MiB, queue files of 120,000 bytes, index files of
            50,000 slots and 200,000 entries.
        """
        fields: dict[str, Any] = {
            "mapped_file_size_commit_log": 16 << 20,
            "mapped_file_size_consume_queue": 120_000,
            "max_hash_slot_num": 50_000,
            "max_index_num": 200_000,
        }
        return cls(**(fields | changes))

    def replace(self, **changes: Any) -> StoreConfig:
        """Return a copy with some fields changed; it is checked as a new one is."""
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> StoreConfig:
        """Read a broker's own ``broker.conf``.

        Keys of other parts of a broker are ignored silently, except for
        ``defaultTopicQueueNums``.  A key that no part of 4.9.3 knows draws an
        :class:`RmqStoreWarning` that names the nearest valid one: the broker
        itself ignores it.

        Parameters
        ----------
        path : str or os.PathLike
            A file in Java's properties format.

        Returns
        -------
        StoreConfig
            Fields that are not in the file have their defaults.

        Raises
        ------
        OSError
            The file cannot be read.
        ValueError
            A value is out of range, or the file is not in this format; the
            message names path and line.
        """
        from rmqstore.brokerfiles.brokerconf import OTHER_KEYS, nearest, read_properties

        by_key = {spec.java: name for name, spec in _SPECS.items()}
        fields: dict[str, Any] = {}
        shown = os.fspath(path)
        for entry in read_properties(path):
            where = f"{shown}, line {entry.line}"
            name = by_key.get(entry.key)
            if name is None:
                if entry.key not in OTHER_KEYS:
                    hint = nearest(entry.key, by_key)
                    warnings.warn(f"{where}: {hint}", RmqStoreWarning, stacklevel=2)
                continue
            value = entry.value.strip()
            if value != entry.value and _SPECS[name].kind is not str:
                message = f"{where}: {entry.key} has a space behind its value: a broker ignores it"
                warnings.warn(message, RmqStoreWarning, stacklevel=2)
            try:
                fields[name] = parse_value(entry.key, value, _SPECS[name])
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
        try:
            return cls(**fields)
        except ValueError as error:
            raise ValueError(f"{shown}: {error}") from None

    def unsupported(self) -> list[str]:
        """Return the fields that were changed without effect.

        Returns
        -------
        list of str
            Names of fields that differ from their default and that this version
            does not act on.
        """
        default = {one.name: one.default for one in dataclasses.fields(self)}
        return [
            name
            for name, spec in _SPECS.items()
            if not spec.acts and getattr(self, name) != default[name]
        ]


_SPECS = specs_of(StoreConfig)
describe(StoreConfig, _SPECS)
