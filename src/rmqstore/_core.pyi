from collections.abc import Iterable, Mapping, Sequence
from typing import (
    Any,
    ClassVar,
    Final,
    Never,
    Protocol,
    Self,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    final,
    overload,
)

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer, disjoint_base

from rmqstore.config import StoreConfig
from rmqstore.errors import PutError, StoreError
from rmqstore.times import TimeLike
from rmqstore.types import GetResult, PutStatus

_T_co = TypeVar("_T_co", covariant=True)

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]: ...

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...

# The buffer protocol; a name of its own at run time from Python 3.12 on.
class _Exporter:
    def __buffer__(self, flags: int, /) -> memoryview: ...

# One value a row. NumPy and Arrow carry their types at run time: the call checks them.
_Column: TypeAlias = Sequence[_T_co] | NDArray[Any] | _ArrowArray | _ArrowStream
_Keys: TypeAlias = str | Iterable[str]
_QueueKey: TypeAlias = str | SupportsIndex | Buffer

FAULTS: Final[bool]  # kill points and failure injection are built in

# ---- messages and results

@final
class Message(_Exporter):
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    __hash__: ClassVar[Any]
    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def physical_offset(self) -> int: ...
    @property
    def store_size(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def raw_body(self) -> memoryview: ...
    @property
    def tags(self) -> str | None: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def properties(self) -> dict[str, str]: ...
    @property
    def flag(self) -> int: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def born_timestamp(self) -> int: ...
    @property
    def store_timestamp(self) -> int: ...
    @property
    def born_host(self) -> str: ...
    @property
    def store_host(self) -> str: ...
    @property
    def reconsume_times(self) -> int: ...
    @property
    def prepared_transaction_offset(self) -> int: ...
    @property
    def body_crc(self) -> int: ...
    @property
    def msg_id(self) -> str: ...
    @property
    def uniq_key(self) -> str | None: ...
    def detach(self) -> Message: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class PutResult:
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def physical_offset(self) -> int: ...
    @property
    def store_timestamp(self) -> int: ...
    @property
    def msg_id(self) -> str: ...
    @property
    def uniq_key(self) -> str | None: ...
    @property
    def count(self) -> int: ...
    @property
    def status(self) -> PutStatus: ...

@final
class PutManyResult:
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def physical_offset(self) -> NDArray[np.int64]: ...
    @property
    def queue_id(self) -> NDArray[np.int32]: ...
    @property
    def queue_offset(self) -> NDArray[np.int64]: ...
    def __len__(self) -> int: ...

@final
class Memory(_Exporter):
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    def __len__(self) -> int: ...

# ---- the engine: what MessageStore inherits

@disjoint_base
class Engine:
    mode: Final[str]
    _config: Final[StoreConfig]
    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    @property
    def path(self) -> str: ...
    @property
    def config(self) -> StoreConfig: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def stats(self) -> dict[str, int]: ...
    def _open(
        self,
        path: str,
        mode: str,
        config: StoreConfig,
        told: bool,
        fill: bool,
        full: bool,
        timeout: float,
        deleted: dict[str, int],
    ) -> None: ...
    def _recovery(self) -> dict[str, Any]: ...
    def _sizes(self) -> tuple[int, int, int, int]: ...
    def _set_topic(self, topic: str, write_queue_nums: int) -> None: ...
    def _make_topic(self, topic: str) -> None: ...
    def _check_writable(self) -> None: ...
    def _delete_queues(self, topic: str) -> int: ...
    def _queue_files(self) -> dict[str, list[int]]: ...

class WritingEngine(Engine):
    # Of queue_id and queue_key one at most.
    @overload
    def put(
        self,
        topic: str,
        body: Buffer,
        *,
        queue_id: SupportsIndex | None = None,
        queue_key: None = None,
        tags: str | None = None,
        keys: _Keys | None = None,
        properties: Mapping[str, str] | None = None,
        flag: SupportsIndex = 0,
        delay_level: SupportsIndex = 0,
        born_timestamp: TimeLike | None = None,
        born_host: str | None = None,
        uniq_key: bool | str = True,
        wait: bool = True,
    ) -> PutResult: ...
    @overload
    def put(
        self,
        topic: str,
        body: Buffer,
        *,
        queue_id: None = None,
        queue_key: _QueueKey,
        tags: str | None = None,
        keys: _Keys | None = None,
        properties: Mapping[str, str] | None = None,
        flag: SupportsIndex = 0,
        delay_level: SupportsIndex = 0,
        born_timestamp: TimeLike | None = None,
        born_host: str | None = None,
        uniq_key: bool | str = True,
        wait: bool = True,
    ) -> PutResult: ...
    @overload
    def put_batch(
        self,
        topic: str,
        bodies: _Column[Buffer],
        *,
        queue_id: SupportsIndex | None = None,
        queue_key: None = None,
        tags: str | _Column[str | None] | None = None,
        keys: str | _Column[_Keys | None] | None = None,
        properties: Mapping[str, str] | Sequence[Mapping[str, str] | None] | None = None,
        uniq_key: bool | str | _Column[str | None] = True,
        wait: bool = True,
    ) -> PutResult: ...
    @overload
    def put_batch(
        self,
        topic: str,
        bodies: _Column[Buffer],
        *,
        queue_id: None = None,
        queue_key: _QueueKey,
        tags: str | _Column[str | None] | None = None,
        keys: str | _Column[_Keys | None] | None = None,
        properties: Mapping[str, str] | Sequence[Mapping[str, str] | None] | None = None,
        uniq_key: bool | str | _Column[str | None] = True,
        wait: bool = True,
    ) -> PutResult: ...
    @overload
    def put_many(
        self,
        topic: str | _Column[str],
        bodies: Buffer | _Column[Buffer],
        *,
        queue_id: SupportsIndex | _Column[SupportsIndex] | None = None,
        queue_key: None = None,
        tags: str | _Column[str | None] | None = None,
        keys: str | _Column[_Keys | None] | None = None,
        properties: Mapping[str, str] | Sequence[Mapping[str, str] | None] | None = None,
        uniq_key: bool | str | _Column[str | None] = True,
        wait: bool = True,
    ) -> PutManyResult: ...
    @overload
    def put_many(
        self,
        topic: str | _Column[str],
        bodies: Buffer | _Column[Buffer],
        *,
        queue_id: None = None,
        queue_key: _QueueKey | _Column[str] | _Column[SupportsIndex] | _Column[Buffer],
        tags: str | _Column[str | None] | None = None,
        keys: str | _Column[_Keys | None] | None = None,
        properties: Mapping[str, str] | Sequence[Mapping[str, str] | None] | None = None,
        uniq_key: bool | str | _Column[str | None] = True,
        wait: bool = True,
    ) -> PutManyResult: ...
    def put_table(self, table: _ArrowStream, *, wait: bool = True) -> PutManyResult: ...
    def flush(self) -> None: ...
    def wait_durable(
        self, physical_offset: SupportsIndex | None = None, timeout: float | None = None
    ) -> bool: ...
    def _knows_topic(self, topic: str) -> bool: ...
    def _log_wakeup(self) -> LogWakeup: ...

@final
class LogWakeup:
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    def fileno(self) -> int: ...
    def ours(self) -> bool: ...
    def drain(self) -> None: ...
    def reached(self, wanted: int) -> int: ...
    def error(self) -> StoreError: ...
    def timed_out(self, result: PutResult) -> PutError: ...
    def close(self) -> None: ...

class ReadingEngine(WritingEngine):
    def get(
        self,
        topic: str,
        queue_id: SupportsIndex,
        offset: SupportsIndex,
        max_messages: SupportsIndex = 32,
        *,
        max_bytes: SupportsIndex | None = None,
        tags: str | None = None,
    ) -> GetResult: ...
    def at(self, physical_offset: SupportsIndex) -> Message: ...
    def query(
        self,
        topic: str,
        key: str,
        *,
        max_num: SupportsIndex | None = None,
        begin: TimeLike | None = None,
        end: TimeLike | None = None,
        index_only: bool = False,
    ) -> list[Message]: ...
    def index_coverage(self) -> list[tuple[int, int]]: ...
    def _locate(
        self,
        topic: str,
        keys: object,
        max_num: SupportsIndex | None,
        begin: TimeLike | None,
        end: TimeLike | None,
        index_only: bool,
    ) -> tuple[Memory, int, Memory]: ...
    def _query_many(
        self,
        topic: str,
        keys: object,
        max_num: SupportsIndex | None,
        begin: TimeLike | None,
        end: TimeLike | None,
        index_only: bool,
    ) -> list[list[Message]]: ...
    def _bounds(self, topic: str, queue_id: SupportsIndex) -> tuple[int, int] | None: ...
    def _units(self, topic: str, queue_id: SupportsIndex, start: int, stop: int) -> Memory: ...
    def _store_time(self, topic: str, queue_id: SupportsIndex, queue_offset: int) -> int: ...

# ---- scans

COLUMN_NAMES: Final[tuple[str, ...]]

@final
class ScanPass:
    def __new__(
        cls,
        engine: ReadingEngine,
        columns: tuple[int, ...],
        topics: tuple[str, ...],
        queue_id: int,
        start: int,
        stop: int,
        since: int,
        until: int,
        tags: str | None,
        keys: tuple[str, ...],
        batch_rows: int,
        batch_bytes: int,
        on_corruption: str,
        on_removed: str,
        messages: bool,
    ) -> Self: ...
    def next_batch(self) -> ColumnBatch | None: ...
    def next_messages(self) -> list[Message] | None: ...
    def count(self) -> int: ...
    def extent(self) -> tuple[int, int, int]: ...
    def schema(self) -> Any: ...
    def stream(self) -> Any: ...

@final
class ColumnBatch:
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    def __len__(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]: ...

# ---- the parts

@final
class IndexPart:
    def __init__(self, path: Any, slots: int, entries: int, mode: str, told: bool) -> None: ...
    @property
    def closed(self) -> bool: ...
    def put(self, key: str, physical_offset: int, store_timestamp: int) -> bool: ...
    def put_many(
        self,
        keys: str | _Column[str],
        physical_offsets: SupportsIndex | _Column[SupportsIndex],
        store_timestamps: SupportsIndex | _Column[SupportsIndex],
    ) -> int: ...
    def select(self, key: str, max_num: int, begin: int, end: int) -> list[int]: ...
    def select_many(self, keys: str | _Column[str], max_num: int) -> tuple[Memory, int, Memory]: ...
    def header(self) -> tuple[int, int, int, int, int, int]: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...

@final
class QueuePart:
    def __init__(self, directory: Any, file_size: int, mode: str, told: bool) -> None: ...
    @property
    def closed(self) -> bool: ...
    def put(self, physical_offset: int, size: int, tags_code: int, queue_offset: int) -> bool: ...
    def bounds(self) -> tuple[int, int]: ...
    def units(self, start: int, stop: int) -> Memory: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...

@final
class LogPart:
    def __init__(self, directory: Any, file_size: int, mode: str, told: bool) -> None: ...
    @property
    def closed(self) -> bool: ...
    def append(self, data: Buffer) -> int: ...
    def next(self, at: int, stop: int) -> tuple[int, int] | None: ...
    def bounds(self) -> tuple[int, int, int]: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...

# ---- the codec

def crc32(data: Buffer, value: int = 0) -> int: ...
def string_hash(text: str) -> int: ...
def encode_record(
    topic: str,
    body: Buffer,
    *,
    queue_id: SupportsIndex = 0,
    queue_offset: SupportsIndex = 0,
    physical_offset: SupportsIndex = 0,
    flag: SupportsIndex = 0,
    sys_flag: SupportsIndex = 0,
    born_timestamp: TimeLike = 0,
    born_host: str = "127.0.0.1:0",
    store_timestamp: TimeLike = 0,
    store_host: str = "127.0.0.1:0",
    reconsume_times: SupportsIndex = 0,
    prepared_transaction_offset: SupportsIndex = 0,
    properties: bytes | bytearray | memoryview | Mapping[str, str] = b"",
) -> bytes: ...
def decode_record(buffer: Buffer, at: SupportsIndex = 0, *, check_crc: bool = True) -> Message: ...
def message_from_bytes(data: bytes, max_body: int) -> Message: ...
def _crc32_kernels() -> list[str]: ...
def _crc32_with(kernel: str, data: Buffer, value: int = 0) -> int: ...

# ---- inside only

@final
class ArrowOwner: ...

@final
class ColumnInput: ...

@final
class RowInput: ...

@final
class TableInput: ...
