"""Pseudonyms for what identifies people or machines in messages that are handed to others."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rmqstore._core import crc32
from rmqstore.base.arguments import one_of, wrong_type
from rmqstore.base.layout import INT32_MAX

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqstore._core import Message

__all__ = ["REDACTIONS", "Redaction", "redactions_of"]

REDACTIONS = ("body", "keys", "hosts")

# Properties that are keys, or repeat one; and those with a host in their first digits.
_KEYS = frozenset(("UNIQ_KEY", "__transactionId__", "CORRELATION_ID", "__SHARDINGKEY", "INDEX"))
_IDS = frozenset(("UNIQ_KEY", "__transactionId__", "ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_MESSAGE_ID"))
_CHECKSUM = "__CRC32#"  # of the record as it was
_PART_LEAST = 4  # characters of a key that is replaced within other values
_V4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.]*\d)")
_V6 = re.compile(r"\[[0-9A-Fa-f:.]{2,45}\]|(?<![\w:.])[0-9A-Fa-f:.]{2,45}(?![\w:.])")
_HEX = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
_V4_DIGITS, _V6_DIGITS = 8, 32
_REMEMBERED = 1 << 12

_COLUMNS = {
    "body": ("body", "body_crc", "properties"),
    "keys": ("uniq_key", "keys", "properties"),
    "hosts": ("uniq_key", "tags", "keys", "msg_id", "born_host", "store_host", "properties"),
}


def redactions_of(chosen: Iterable[str]) -> tuple[str, ...]:
    """Return the names of redactions, checked."""
    if isinstance(chosen, str):
        raise wrong_type("redact", "an iterable of " + ", ".join(REDACTIONS), chosen)
    return tuple(dict.fromkeys(one_of("redact", name, REDACTIONS) for name in chosen))


class Redaction:
    """Pseudonyms of one export: equal values have equal ones, by a key that is forgotten.

    A body keeps its length, a host its port. Redacted keys and hosts are replaced in the values of
    other properties too; bodies only as a whole.
    """

    def __init__(self, chosen: Iterable[str]) -> None:
        self._chosen = redactions_of(chosen)
        self._secret = os.urandom(32)
        self.columns = tuple(dict.fromkeys(c for one in self._chosen for c in _COLUMNS[one]))
        self._key = lru_cache(_REMEMBERED)(self._new_key)
        self._address = lru_cache(_REMEMBERED)(self._new_address)

    def message(self, message: Message) -> Any:
        """Return an object with a message's fields, redacted."""
        from rmqstore.lines import FIELDS

        values = {name: getattr(message, name) for name in FIELDS}
        values["properties"] = list(message.properties.items())
        self._redact(values)
        values["properties"] = dict(values["properties"])
        return SimpleNamespace(**values)

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of a scan's columns, redacted."""
        import pyarrow as pa

        schema = batch.schema
        values = {name: batch.column(name).to_pylist() for name in self.columns}
        for row in range(batch.num_rows):
            one = {name: column[row] for name, column in values.items()}
            self._redact(one)
            for name, column in values.items():
                column[row] = one[name]
        arrays = [
            pa.array(values[name], schema.field(name).type) if name in values else batch.column(at)
            for at, name in enumerate(schema.names)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _redact(self, values: dict[str, Any]) -> None:
        """Redact the fields of a message in place; ``properties`` are pairs."""
        if "body" in self._chosen:
            body = self._digits(b"body" + values["body"], len(values["body"])).encode()
            values["body"], values["body_crc"] = body, crc32(body) & INT32_MAX
        if "keys" in self._chosen:
            old = [*values["keys"], *_known(values["uniq_key"])]
            new = {key: self._key(key) for key in old}
            values["properties"] = list(self._with_keys(values["properties"], new))
            values["keys"] = [new[key] for key in values["keys"]]
            values["uniq_key"] = new.get(values["uniq_key"])
        if "hosts" in self._chosen:
            values["properties"] = [
                (name, self._id(value) if name in _IDS else self._without_hosts(value))
                for name, value in values["properties"]
            ]
            for name in ("born_host", "store_host"):
                values[name] = self._host(values[name])
            values["msg_id"] = self._id(values["msg_id"])
            values["uniq_key"] = values["uniq_key"] and self._id(values["uniq_key"])
            values["tags"] = values["tags"] and self._without_hosts(values["tags"])
            values["keys"] = [self._without_hosts(key) for key in values["keys"]]
        values["properties"] = [one for one in values["properties"] if one[0] != _CHECKSUM]

    def _with_keys(
        self, pairs: Iterable[tuple[str, str]], new: dict[str, str]
    ) -> Iterator[tuple[str, str]]:
        """Yield properties with pseudonyms of the keys, wherever a value has one."""
        parts = sorted((key for key in new if len(key) >= _PART_LEAST), key=len, reverse=True)
        for name, value in pairs:
            if name == "KEYS":
                yield name, " ".join([new.get(key) or self._key(key) for key in value.split(" ")])
            elif name in _KEYS or value in new:
                yield name, new.get(value) or self._key(value)
            elif any(part in value for part in parts):
                found = "|".join(map(re.escape, parts))
                yield name, re.sub(found, lambda match: new[match[0]], value)
            else:
                yield name, value

    def _new_key(self, key: str) -> str:
        """Return the pseudonym of a key, as long as that of any other."""
        return (
            self._digits(b"key" + key.encode("utf-8", "surrogatepass"), 32).upper() if key else ""
        )

    def _new_address(self, address: bytes) -> bytes:
        """Return the pseudonym of an IP address."""
        return bytes.fromhex(self._digits(b"host" + address, 2 * len(address)))

    def _host(self, host: str) -> str:
        """Return ``ip:port`` or ``[ipv6]:port`` with another address."""
        address, _, port = host.rpartition(":")
        try:
            packed = ipaddress.ip_address(address.strip("[]").partition("%")[0]).packed
        except ValueError:
            return self._digits(b"host" + host.encode("utf-8", "surrogatepass"), 16)
        return f"{self._text(packed)}:{port}"

    def _text(self, packed: bytes) -> str:
        """Return the text of an address' pseudonym."""
        made = ipaddress.ip_address(self._address(packed))
        return f"[{made}]" if made.version == 6 else str(made)

    def _id(self, value: str) -> str:
        """Return a message id or a unique key with another address in its first digits."""
        if _HEX.fullmatch(value) is None:
            return self._without_hosts(value)
        digits = _V4_DIGITS if len(value) == 32 else _V6_DIGITS
        made = self._address(bytes.fromhex(value[:digits])).hex()
        return (made.upper() if value.isupper() or value.isdigit() else made) + value[digits:]

    def _without_hosts(self, value: str) -> str:
        """Return a value with other addresses for those in it."""

        def other(match: re.Match[str]) -> str:
            try:
                packed = ipaddress.ip_address(match[0].strip("[]")).packed
            except ValueError:
                return match[0]
            text = self._text(packed)
            return text if match[0].startswith("[") else text.strip("[]")

        def other_v6(match: re.Match[str]) -> str:
            return other(match) if ":" in match[0] else match[0]

        return _V6.sub(other_v6, _V4.sub(other, value))

    def _digits(self, value: bytes, count: int) -> str:
        """Return so many hexadecimal digits by a keyed hash."""
        import hashlib

        made = hashlib.blake2b(value, key=self._secret, digest_size=32).digest()
        return hashlib.shake_128(made).hexdigest((count + 1) // 2)[:count]


def _known(value: str | None) -> list[str]:
    return [] if value is None else [value]
