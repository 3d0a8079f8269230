"""Messages by id and by key.

Source: ``store/DefaultMessageStore.java queryMessage``, ``common/message/MessageDecoder.java``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, SupportsIndex

from rmqstore import _core
from rmqstore.base import arrays
from rmqstore.base.arguments import wrong_type
from rmqstore.base.lookups import key_column, offset_of
from rmqstore.errors import MessageNotFoundError, StoreCorruptError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqstore.base.times import TimeLike

__all__ = ["Lookups"]


class Lookups:
    """Lookups by id and by key; ``topics`` returns the names of all topics."""

    def __init__(self, core: _core.Core, topics: Callable[[], Iterable[str]]) -> None:
        self._core = core
        self._topics = topics

    def message(self, id: str) -> _core.Message:
        """Return a message by the store's id, or by its unique key.

        Parameters
        ----------
        id : str
            A store message id, whose address is ignored. Any other text, and an id whose offset
            has no record, is looked up as a unique key: the oldest record that has it.

        Returns
        -------
        Message

        Raises
        ------
        MessageNotFoundError
            Neither was found; also a ``LookupError``.
        TypeError
            ``id`` is no str.
        StoreClosedError, ForkedStoreError
            The store is not open here.

        Notes
        -----
        Source: ``common/message/MessageDecoder.java decodeMessageId``.
        """
        if not isinstance(id, str):
            raise wrong_type("id", "str", id)
        offset = offset_of(id)
        damage: StoreCorruptError | None = None
        if offset is not None:
            try:
                return self._core.at(offset)
            except MessageNotFoundError:
                pass
            except StoreCorruptError as error:  # or it is not a store message id
                damage = error
        topics = self._topics()
        found = [m for topic in topics for m in self._core.query(topic, id) if m.uniq_key == id]
        if not found:
            why = f"; {damage}" if damage is not None else ""
            raise MessageNotFoundError(f"{self._core.path}: no message {id!r}{why}") from damage
        return min(found, key=lambda message: message.physical_offset)

    def query_many(
        self,
        topic: str,
        keys: Iterable[str],
        *,
        max_num: SupportsIndex | None = None,
        begin: TimeLike | None = None,
        end: TimeLike | None = None,
        index_only: bool = False,
    ) -> list[list[_core.Message]]:
        """Find the messages of many keys, each as :meth:`query` does.

        Parameters
        ----------
        topic : str
        keys : iterable of str
            Compared exactly, with KEYS and UNIQ_KEY.
        max_num : int, optional
            Maximum number of messages per key; all by default.
        begin, end : int, datetime or str, optional
            Store times, both inclusive.
        index_only : bool, optional
            Do not search the parts of the log that no index file covers.

        Returns
        -------
        list of list of Message
            In the order of ``keys``; newest first for each.

        Raises
        ------
        StoreCorruptError, TypeError, ValueError, StoreClosedError, ForkedStoreError
            As :meth:`query`.

        Notes
        -----
        Source: ``store/DefaultMessageStore.java queryMessage``.
        """
        return self._core.query_many(topic, key_column(keys), max_num, begin, end, index_only)

    def locate_many(
        self,
        topic: str,
        keys: Iterable[str],
        *,
        max_num: SupportsIndex | None = None,
        begin: TimeLike | None = None,
        end: TimeLike | None = None,
        index_only: bool = False,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find the physical offsets of the messages of many keys.

        The result is arrays: the first call imports NumPy if the process has not, which takes some
        0.1 s.  :meth:`query_many` does without.

        Parameters
        ----------
        topic : str
        keys : iterable of str
            Compared exactly, with KEYS and UNIQ_KEY.
        max_num : int, optional
            Maximum number per key; all by default.
        begin, end : int, datetime or str, optional
            Store times, both inclusive.
        index_only : bool, optional
            Do not search the parts of the log that no index file covers.

        Returns
        -------
        physical_offsets, starts : numpy.ndarray
            int64; the hits of key ``i`` are ``physical_offsets[starts[i]:starts[i + 1]]``,
            newest first.

        Raises
        ------
        StoreCorruptError, TypeError, ValueError, StoreClosedError, ForkedStoreError
            As :meth:`query`.

        Notes
        -----
        Source: ``store/index/IndexService.java queryOffset``.
        """
        hits, count, starts = self._core.locate(
            topic, key_column(keys), max_num, begin, end, index_only
        )
        return arrays.int64_array(hits, count), arrays.int64_array(starts, len(starts) // 8)
