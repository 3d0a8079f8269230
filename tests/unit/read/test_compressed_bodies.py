"""Bodies that a client compressed: every kind, within a limit, never more memory than that."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore.bodies import inflate
from support import oracle

lz4 = pytest.importorskip("lz4.frame")
zstandard = pytest.importorskip("zstandard")


def zstd_stream(body: bytes) -> bytes:
    """As RocketMQ's ZstdOutputStream, which does not know the length before."""
    stream = zstandard.ZstdCompressor(level=5).compressobj()
    return stream.compress(body) + stream.flush()


LZ4, ZSTD, ZLIB, OLD = 0x101, 0x201, 0x301, 1
KINDS: list[tuple[str, int, Callable[[bytes], bytes]]] = [
    ("lz4", LZ4, lz4.compress),
    ("zstd", ZSTD, zstd_stream),
    ("zstd with its length", ZSTD, zstandard.ZstdCompressor().compress),
    ("zlib", ZLIB, zlib.compress),
    ("zlib of 4.9.3", OLD, zlib.compress),
]
FRAMES = KINDS[:3]
BODIES = [
    b"",
    b"x",
    b"hello " * 1000,
    random.Random(5).randbytes(300_000),
    bytes(2_000_000),
]
each_kind = pytest.mark.parametrize(
    ("flag", "compress"), [k[1:] for k in KINDS], ids=[k[0] for k in KINDS]
)
each_frame = pytest.mark.parametrize(
    ("flag", "compress"), [k[1:] for k in FRAMES], ids=[k[0] for k in FRAMES]
)


@each_kind
@pytest.mark.parametrize("body", BODIES, ids=len)
def test_inflated_up_to_its_very_length(flag, compress, body):
    stored = compress(body)
    assert inflate(stored, flag, len(body)) == body
    assert inflate(stored, flag, 1 << 40) == body
    if body:
        with pytest.raises(
            rmqstore.StoreCorruptError, match=f"max_body_size, {len(body) - 1}: raise it"
        ):
            inflate(stored, flag, len(body) - 1)


@each_kind
@pytest.mark.parametrize("body", BODIES[1:], ids=len)
def test_a_stream_that_is_cut_or_none(flag, compress, body):
    stored = compress(body)
    for cut in (stored[:-1], stored[: len(stored) // 2], stored[:3], b"no stream"):
        with pytest.raises(rmqstore.StoreCorruptError, match="cannot be inflated"):
            inflate(cut, flag, len(body) + 100)


@each_frame
def test_frames_one_after_the_other(flag, compress):
    """Java's streams of both kinds go on with the next frame."""
    stored = compress(b"one ") + compress(b"") + compress(b"two")
    assert inflate(stored, flag, 7) == b"one two"
    with pytest.raises(rmqstore.StoreCorruptError, match="max_body_size"):
        inflate(stored, flag, 6)
    with pytest.raises(rmqstore.StoreCorruptError):
        inflate(stored + b"no frame", flag, 100)


@each_kind
def test_an_empty_body_is_no_stream(flag, compress):
    assert inflate(b"", flag, 0) == b""


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
def test_an_unknown_kind(kind):
    with pytest.raises(rmqstore.StoreError, match=f"unknown way {kind}"):
        inflate(b"x", 1 | kind << 8, 100)


def test_damaged_streams_are_refused_or_inflate():
    """Any byte changed: the error is ours, and no more than the limit comes out."""
    chance = random.Random(7)
    body = b"hello, hello " * 40
    for _, flag, compress in KINDS:
        stored = compress(body)
        for _ in range(300):
            data = bytearray(stored)
            data[chance.randrange(len(data))] = chance.randrange(256)
            with contextlib.suppress(rmqstore.StoreCorruptError):
                assert len(inflate(bytes(data), flag, 1000)) <= 1000


BOMB = """
import resource, sys
from rmqstore.bodies import inflate
import {package}
stored = open(sys.argv[1], "rb").read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    inflate(stored, {flag}, 1 << 20)
except Exception as error:
    print(error, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(
    ("flag", "package", "compress"),
    [
        (LZ4, "lz4.frame", lz4.compress),
        (ZSTD, "zstandard", zstd_stream),
        (ZLIB, "zlib", zlib.compress),
    ],
    ids=["lz4", "zstd", "zlib"],
)
def test_a_bomb_is_refused_before_it_takes_memory(tmp_path, flag, package, compress):
    """128 MiB of zeros, of which a body may have 1 MiB."""
    bomb = tmp_path / "bomb"
    bomb.write_bytes(compress(bytes(128 << 20)))
    code = BOMB.format(package=package, flag=flag)
    done = subprocess.run(
        [sys.executable, "-c", code, str(bomb)], capture_output=True, text=True, check=True
    )
    message, _, kib = done.stdout.strip().rpartition(" ")
    assert "max_body_size" in message
    assert int(kib) < 32 << 10


def store_with(root: Path, records: list[bytes]) -> Path:
    with rmqstore.CommitLog(root / "commitlog", file_size=1 << 20, mode="a") as log:
        log.append(records)
    return root


def test_every_way_to_read_them(tmp_path):
    pa = pytest.importorskip("pyarrow")
    bodies = [b"%d " % n * 500 for n in range(len(KINDS))]
    root = store_with(
        tmp_path / "store",
        [
            oracle.encode_record(
                "orders",
                compress(body),
                sys_flag=flag,
                queue_offset=n,
                store_timestamp=1 << 40,
                properties=b"KEYS\x01k",
            )
            for n, (body, (_, flag, compress)) in enumerate(zip(bodies, KINDS, strict=True))
        ],
    )
    with rmqstore.open(root) as store:
        assert [message.body for message in store["orders"][0]] == bodies
        assert [message.body for message in store.query("orders", "k")] == bodies[::-1]
        table = pa.table(store.scan(columns=["body", "raw_body", "sys_flag"]))
        assert table.column("body").to_pylist() == bodies
    other = tmp_path / "other"
    with rmqstore.open(root) as store, rmqstore.open(other, "a") as to:
        to.put_table(store.scan(columns=["topic", "queue_id", "body", "raw_body", "sys_flag"]))
        found = [(m.body, m.sys_flag) for m in to["orders"][0]]
    assert found == [(b, k[1]) for b, k in zip(bodies, KINDS, strict=True)]
