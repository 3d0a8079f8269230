"""Configuration of a store: RocketMQ's names in snake_case, its defaults, and a few of ours.

Source: ``store/config/MessageStoreConfig.java`` (40 of its 77 fields, in its order).
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqstore.base import layout
from rmqstore.config.fields import (
    Described,
    boolean,
    broker_effect,
    check_value,
    choice,
    file_size,
    function,
    integer,
    parse_value,
    specs_of,
    text,
)

if TYPE_CHECKING:
    from rmqstore.services.transaction import InDoubt

__all__ = ["RmqStoreWarning", "StoreConfig", "read_as_broker"]

_HOURS = r"\s*([01]?\d|2[0-3])\s*(;\s*([01]?\d|2[0-3])\s*)*;?"
_LEVELS = r"[0-9]{1,9}[smhd]( [0-9]{1,9}[smhd])*"
# Defaults of a broker that are opt-in for an embedded store.
_BROKER_DEFAULTS = {"file_reserved_time": 72}


class RmqStoreWarning(UserWarning):
    """A very likely mistake that does not prevent operation."""


@dataclass(frozen=True)
class StoreConfig:  # noqa: PLW1641 - the dataclass has __hash__
    """Sizes, intervals and limits of a store.

    Next to each field are its type, default, unit and range; below it
    is RocketMQ's name, its key in ``broker.conf``.

    Attributes
    ----------
    {fields}

    Raises
    ------
    TypeError
        A field has a value of another type.
    ValueError
        A field is out of range; the message names it, its value and its range.

    Notes
    -----
    ``mapped_file_size_consume_queue`` is rounded up to a multiple of 20, as
    in Java.  ``None`` as a path is the opened store: both paths are ``None``
    by default, where 4.9.3 has ``$HOME/store`` and ``$HOME/store/commitlog``.

    An unset file size gives way to that of a store's files: it is
    ``DefaultSize(...)``, which reads as the number, but compares unequal in
    a configuration.  ``max_hash_slot_num`` and ``max_index_num`` go together.

    Nothing is deleted by default: ``file_reserved_time`` is ``None``, which
    means forever, and ``clean_file_forcibly_enable``, which deletes younger
    messages, is off; 4.9.3 has 72 hours and on.  :meth:`from_file` has the 72
    hours of 4.9.3.

    Messages are refused while more than ``disk_space_warning_level_ratio``
    of the disk of the log or of the queues is used, 90 in 4.9.3.  ``None``,
    the default, is 90 too, but only of the log's, and only where less than
    64 MiB are left.
    """

    # Paths and file sizes
    store_path_root_dir: str | None = text("storePathRootDir", None)
    store_path_commit_log: str | None = text("storePathCommitLog", None)
    read_only_commit_log_store_paths: str | None = text("readOnlyCommitLogStorePaths", None)
    mapped_file_size_commit_log: int = file_size(
        "mappedFileSizeCommitLog", 1 << 30, layout.LOG_FILE_LEAST, unit="bytes"
    )
    mapped_file_size_consume_queue: int = file_size(
        "mappedFileSizeConsumeQueue",
        6_000_000,
        layout.UNIT_BYTES,
        layout.INT32_MAX - layout.INT32_MAX % layout.UNIT_BYTES,
        unit="bytes",
    )
    enable_consume_queue_ext: bool = boolean("enableConsumeQueueExt", False)
    mapped_file_size_consume_queue_ext: int = file_size(
        "mappedFileSizeConsumeQueueExt", 48 << 20, layout.EXT_FILE_LEAST, unit="bytes"
    )
    bit_map_length_consume_queue_ext: int = integer(
        "bitMapLengthConsumeQueueExt", 64, 0, unit="bits"
    )

    # Intervals of the activities
    flush_interval_commit_log: int = integer("flushIntervalCommitLog", 500, 1, unit="ms")
    flush_commit_log_timed: bool = boolean("flushCommitLogTimed", True)
    flush_interval_consume_queue: int = integer("flushIntervalConsumeQueue", 1000, 1, unit="ms")
    clean_resource_interval: int = integer("cleanResourceInterval", 10_000, 1, unit="ms")
    delete_commit_log_files_interval: int = integer(
        "deleteCommitLogFilesInterval", 100, 0, unit="ms"
    )

    # Retention
    delete_when: str = text(
        "deleteWhen", "04", _HOURS, "hours of the day, 00 to 23, separated by ';'"
    )
    disk_max_used_space_ratio: int = integer("diskMaxUsedSpaceRatio", 75, 10, 95, unit="percent")
    file_reserved_time: int | None = integer(
        "fileReservedTime", None, 0, unit="hours", optional=True
    )

    # Limits, flushing
    max_message_size: int = integer("maxMessageSize", 4 << 20, 1, unit="bytes of a record")
    check_crc_on_recover: bool = boolean("checkCRCOnRecover", True)
    flush_commit_log_least_pages: int = integer(
        "flushCommitLogLeastPages", 4, 0, unit="pages of 4 KiB"
    )
    flush_least_pages_when_warm_maped_file: int = integer(
        "flushLeastPagesWhenWarmMapedFile", 4096, 1, unit="pages of 4 KiB"
    )
    flush_consume_queue_least_pages: int = integer(
        "flushConsumeQueueLeastPages", 2, 0, unit="pages of 4 KiB"
    )
    flush_commit_log_thorough_interval: int = integer(
        "flushCommitLogThoroughInterval", 10_000, 1, unit="ms"
    )
    flush_consume_queue_thorough_interval: int = integer(
        "flushConsumeQueueThoroughInterval", 60_000, 1, unit="ms"
    )

    # Limits of a pull from `rmqstore serve`
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
    message_index_enable: bool = boolean("messageIndexEnable", True)
    max_hash_slot_num: int = file_size("maxHashSlotNum", 5_000_000, 1, unit="slots")
    max_index_num: int = file_size("maxIndexNum", 20_000_000, 2, unit="entries")

    # Durability
    flush_disk_type: str = choice("flushDiskType", "ASYNC_FLUSH", "SYNC_FLUSH")
    sync_flush_timeout: int = integer("syncFlushTimeout", 5000, 1, unit="ms")

    # Delays and the rest
    message_delay_level: str = text(
        "messageDelayLevel",
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        _LEVELS,
        "delays such as '1s 5m 2h 1d', separated by one space",
    )
    flush_delay_offset_interval: int = integer(
        "flushDelayOffsetInterval", 10_000, 1, layout.INT64_MAX, unit="ms"
    )
    clean_file_forcibly_enable: bool = boolean("cleanFileForciblyEnable", False)
    warm_maped_file_enable: bool = boolean("warmMapedFileEnable", False)
    enable_lmq: bool = boolean("enableLmq", False)
    enable_multi_dispatch: bool = boolean("enableMultiDispatch", False)
    max_lmq_consume_queue_num: int = integer("maxLmqConsumeQueueNum", 20_000, 0, unit="queues")

    # Ours
    store_host: str = text(
        "storeHost", "127.0.0.1:10911", "host", "'ip:port' or '[v6]:port'", ours=True
    )
    default_topic_queue_nums: int = integer(
        "defaultTopicQueueNums", 4, 1, 65536, ours=True, unit="queues"
    )
    max_body_size: int = integer(
        "maxBodySize", 64 << 20, 1, layout.INT64_MAX, ours=True, unit="bytes inflated"
    )
    compress_above: int | None = integer(
        "compressAbove", None, 1, ours=True, unit="bytes of a body"
    )
    record_checksum: bool = boolean("recordChecksum", False, ours=True)
    transaction_check: Callable[[InDoubt], str | None] | None = function(  # noqa: RUF009
        "asked for the end of a transaction in doubt, returns 'commit', 'rollback' or None"
    )
    transaction_check_interval: int = integer(
        "transactionCheckInterval", 60_000, 1, layout.INT64_MAX, ours=True, unit="ms"
    )
    transaction_timeout: int = integer(
        "transactionTimeOut", 6000, 0, layout.INT64_MAX, ours=True, unit="ms"
    )
    transaction_check_max: int = integer("transactionCheckMax", 15, 1, ours=True, unit="times")
    enable_calc_filter_bit_map: bool = boolean("enableCalcFilterBitMap", False, ours=True)
    expect_consumer_num_use_filter: int = integer(
        "expectConsumerNumUseFilter", 32, 1, 1 << 20, ours=True, unit="subscriptions"
    )
    max_error_rate_of_bloom_filter: int = integer(
        "maxErrorRateOfBloomFilter", 20, 1, 99, ours=True, unit="percent"
    )
    retention_clock: str = choice("retentionClock", "message", "mtime", ours=True)
    disk_space_warning_level_ratio: int | None = integer(
        "diskSpaceWarningLevelRatio",
        None,
        1,
        100,
        ours=True,
        unit="percent",
        optional=True,
    )
    disk_space_clean_forcibly_ratio: int = integer(
        "diskSpaceCleanForciblyRatio", 85, 1, 100, ours=True, unit="percent"
    )

    def __post_init__(self) -> None:
        """Check every field, then combinations of fields."""
        for name, spec in _SPECS.items():
            check_value(name, getattr(self, name), spec, _DEFAULTS[name])
        size = self.mapped_file_size_consume_queue
        if rest := -size % layout.UNIT_BYTES:
            object.__setattr__(self, "mapped_file_size_consume_queue", size + rest)
        if self.index_file_bytes > layout.INT32_MAX:
            raise ValueError(
                f"max_hash_slot_num is {self.max_hash_slot_num} and max_index_num is "
                f"{self.max_index_num}, which makes index files of {self.index_file_bytes} bytes, "
                f"must be at most {layout.INT32_MAX}"
            )

    def __eq__(self, other: object) -> bool:
        """Whether a store opens the same way with either."""
        if type(other) is not type(self):
            return NotImplemented
        mine, its = vars(self), vars(other)
        return mine == its and [*map(type, mine.values())] == [*map(type, its.values())]

    @property
    def index_file_bytes(self) -> int:
        """Bytes of an index file."""
        return layout.index_file_bytes(self.max_hash_slot_num, self.max_index_num)

    @classmethod
    def small(cls, **changes: Any) -> StoreConfig:
        """Return a configuration for tests and small machines.

        Parameters
        ----------
        **changes
            Values for these fields, or any other.

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
        """Return a copy with some fields changed, checked like a new one."""
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> StoreConfig:
        """Read a broker's own ``broker.conf``.

        Of other parts of a broker, ``defaultTopicQueueNums`` and the settings of
        transactions are read; the rest is ignored.  An :class:`RmqStoreWarning`
        has the reason why a setting of 4.9.3's store has no meaning here, unless
        it is the default, and the nearest known key for one unknown to 4.9.3,
        which a broker ignores.

        Parameters
        ----------
        path : str or os.PathLike
            A file in Java's properties format.

        Returns
        -------
        StoreConfig
            Fields not in the file have their defaults, except ``file_reserved_time``,
            which has 4.9.3's 72.

        Raises
        ------
        OSError
            The file cannot be read.
        ValueError
            A value is out of range, the log is DLedger's, or the format is invalid;
            the message has path and line.
        """
        return cls._read(path, as_broker=False)

    @classmethod
    def _read(cls, path: str | os.PathLike[str], *, as_broker: bool) -> StoreConfig:
        """Read a ``broker.conf``; ``as_broker``: warn of values that a broker passes over."""
        from rmqstore.config.brokerconf import read_properties

        by_key = {spec.java: name for name, spec in _SPECS.items() if spec.java}
        fields: dict[str, Any] = dict(_BROKER_DEFAULTS)
        for entry in read_properties(path):
            where = f"{os.fspath(path)}, line {entry.line}"
            name = by_key.get(entry.key)
            value = entry.value.strip()
            if name is None:
                if (hint := _hint(entry.key, value, where, by_key)) is not None:
                    warnings.warn(f"{where}: {hint}", RmqStoreWarning, stacklevel=3)
                continue
            if value != entry.value and _SPECS[name].kind is not str:
                hint = f"{entry.key} has a space behind its value: a broker ignores it"
                warnings.warn(f"{where}: {hint}", RmqStoreWarning, stacklevel=3)
            try:
                fields[name] = parse_value(entry.key, value, _SPECS[name], _DEFAULTS[name])
            except ValueError as error:
                effect = broker_effect(_SPECS[name], value)
                if not as_broker or not effect:
                    raise ValueError(f"{where}: {error}") from None
                hint = f"{error}: a 4.9.3 broker {effect}"
                warnings.warn(f"{where}: {hint}", RmqStoreWarning, stacklevel=3)
                if _SPECS[name].kind is bool:
                    fields[name] = False
        try:
            return cls(**fields)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from None


def read_as_broker(path: str | os.PathLike[str]) -> StoreConfig:
    """Read a ``broker.conf`` as a broker does; warn of values that it passes over."""
    return StoreConfig._read(path, as_broker=True)


def _hint(key: str, value: str, where: str, by_key: Mapping[str, str]) -> str | None:
    """Return the warning about a key that is no field; ``ValueError`` if it must not be ignored."""
    from rmqstore.config.brokerconf import OTHER_KEYS, nearest
    from rmqstore.config.reasons import MEANINGLESS, REFUSED

    default, reason = REFUSED.get(key) or MEANINGLESS.get(key) or ("", "")
    if reason:
        if _is_default(value, default):
            return None
        if key in REFUSED:
            raise ValueError(f"{where}: {key} is {value!r}, must be {default!r}: {reason}")
        return f"{key} has no meaning here: {reason}"
    return None if key in OTHER_KEYS else nearest(key, (*by_key, *MEANINGLESS, *REFUSED))


def _is_default(value: str, default: str) -> bool:
    """Whether a broker reads the default: any flag but ``true`` is false, empty is no value."""
    if default in ("true", "false"):
        return (value.lower() == "true") == (default == "true")
    if default.isdecimal() and value.removeprefix("+").isdecimal():
        return int(value) == int(default)
    return value in ("", default)


_SPECS = specs_of(StoreConfig)
_DEFAULTS = {one.name: one.default for one in dataclasses.fields(StoreConfig)}
if StoreConfig.__doc__:  # python -OO has none
    StoreConfig.__doc__ = Described(StoreConfig.__doc__)  # type: ignore[assignment]
