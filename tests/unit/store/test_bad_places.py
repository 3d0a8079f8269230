"""Second openers, directories that cannot be written, full disks and scarce descriptors."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import struct
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import rmqstore
from crash.checks import contents, environment
from rmqstore import StoreLockedError
from support import oracle_store
from support.mounts import mount, mounted

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=50,
    max_index_num=200,
)
PATIENCE = 120


@pytest.fixture
def root(tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        for number in range(50):
            store.put("Topic1", b"%d" % number, queue_id=0, keys=f"k{number}")
    return tmp_path / "store"


def run(code, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env=environment(),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        **options,
    )


# S32: a second opener


def test_s32_a_second_opener_in_this_process(root):
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        before = contents(root)
        for mode in ["r+", "a"]:
            began = time.monotonic()
            with pytest.raises(StoreLockedError, match=r"lock: .* in this process already"):
                rmqstore.open(root, mode, config=CONFIG)
            with pytest.raises(StoreLockedError):
                rmqstore.open(root, mode, config=CONFIG, timeout=0.2)
            assert 0.2 <= time.monotonic() - began < PATIENCE
        assert contents(root) == before
        (root / "lock").read_bytes()  # a descriptor of it that is closed gives no lock away
        with pytest.raises(StoreLockedError):
            rmqstore.open(root, "r+")
        with rmqstore.open(root, "r") as reader:  # needs none
            put = store.put("Topic1", b"x", queue_id=0)
            until = time.monotonic() + PATIENCE
            while not (found := reader.get("Topic1", 0, put.queue_offset).messages):
                assert time.monotonic() < until
            assert found[0].body == b"x"
    rmqstore.open(root, "r+").close()


OTHER = """
    import sys, rmqstore
    try:
        rmqstore.open(sys.argv[1], "r+")
    except rmqstore.StoreLockedError as error:
        print(error)
"""
JAVA = """
    import fcntl, os, struct, sys
    fd = os.open(sys.argv[1] + "/lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0))
    except OSError as error:
        print("refused", error.errno)
    else:
        print("locked")
        sys.stdout.flush()
        sys.stdin.readline()
"""


def test_s32_another_process_is_refused(root):
    with rmqstore.open(root, "r+", config=CONFIG):
        before = contents(root)
        assert b"the store is open elsewhere" in run(OTHER, root).stdout
        assert run(JAVA, root).stdout.split() in (
            [b"refused", b"%d" % errno.EAGAIN],
            [b"refused", b"%d" % errno.EACCES],
        )
        assert contents(root) == before
    assert run(JAVA, root, input=b"").stdout == b"locked\n"


def test_s32_a_broker_has_it(root):
    """Java's lock: fcntl with F_SETLK on the first byte.  It is looked at before all else."""
    command = [sys.executable, "-c", textwrap.dedent(JAVA), str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout.readline() == b"locked\n"
        before = oracle_store.snapshot(root)
        with pytest.raises(StoreLockedError, match=str(broker.pid)):
            rmqstore.open(root, "r+", config=CONFIG)
        assert oracle_store.snapshot(root) == before
        with rmqstore.open(root, "r") as store:
            assert store["Topic1"][0].max_offset == 50
        timer = threading.Timer(0.3, broker.communicate, [b"go\n"])
        timer.start()
        with rmqstore.open(root, "r+", config=CONFIG, timeout=PATIENCE) as store:
            assert store["Topic1"][0].max_offset == 50
        timer.join()


def test_s32_the_lock_is_java_s(root):
    """Also to a descriptor of this very process, as an open-file-description lock is."""
    with rmqstore.open(root, "r+", config=CONFIG), (root / "lock").open("r+b") as file:
        assert file.read() == b"lock"
        wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0)
        with pytest.raises(OSError, match=r"temporarily|denied"):
            fcntl.fcntl(file, 37, wanted)  # F_OFD_SETLK


# S42: read-only, and too few descriptors or too little memory


def test_s42_a_read_only_mount(root, tmp_path):
    with mount(tmp_path / "ro", "--bind", root):
        mounted("-o", "remount,ro,bind", tmp_path / "ro")
        for mode in ["r+", "a"]:
            with pytest.raises(OSError, match="ead-only") as raised:
                rmqstore.open(tmp_path / "ro", mode, config=CONFIG)
            assert raised.value.errno == errno.EROFS
        with rmqstore.open(tmp_path / "ro", "r") as store:
            assert len(list(store["Topic1"][0])) == 50
            assert len(store.query("Topic1", "k7")) == 1


def test_s42_a_directory_without_permission(root):
    """As another user: what may be read is read, nothing else happens."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    code = """
        import os, sys, rmqstore
        rmqstore.open(sys.argv[1], "r").close()
        os.setgid(65534), os.setuid(65534)
        for mode in ["r+", "a"]:
            try:
                rmqstore.open(sys.argv[1], mode)
            except PermissionError as error:
                print(error.errno)
        with rmqstore.open(sys.argv[1], "r") as store:
            print(len(list(store["Topic1"][0])))
    """
    for path in [*root.rglob("*"), *root.parents, root]:
        if os.fspath(path).startswith("/tmp/"):
            path.chmod(path.stat().st_mode | 0o555 if path.is_dir() else 0o644)
    before = oracle_store.snapshot(root)
    assert run(code, root).stdout.split() == [b"13", b"13", b"50"]
    assert oracle_store.snapshot(root) == before


def test_s42_a_killed_store_whose_directory_may_not_be_changed(tmp_path):
    """There is no checkpoint yet, and none can be made: the error says why."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    code = """
        import logging, os, sys, rmqstore
        root = sys.argv[1]
        config = rmqstore.StoreConfig.small()
        child = os.fork()
        if child == 0:
            store = rmqstore.open(root, "a", config=config)
            store.put("Topic1", b"x", queue_id=0)
            store.get("Topic1", 0, 0)  # its queue is there
            os._exit(0)
        os.waitpid(child, 0)
        assert os.path.exists(root + "/abort") and not os.path.exists(root + "/checkpoint")
        rmqstore.open(root, "r").close()  # so that all modules are there
        os.system(f"chown -R 65534 {root}; chmod 0555 {root}")
        os.setgid(65534), os.setuid(65534)
        store = rmqstore.open(root, "r+", config=config)
        try:
            store.flush()
        except rmqstore.StoreFailedError as error:
            cause = error.__cause__
            print(type(cause).__name__, cause.filename == root + "/checkpoint")
            print("Permission denied" in str(error))
        print(len(store["Topic1"][0]))
    """
    for path in tmp_path.parents:
        if os.fspath(path).startswith("/tmp/"):
            path.chmod(path.stat().st_mode | 0o555)
    tmp_path.chmod(0o755)
    done = run(code, tmp_path / "store")
    assert done.stdout.split() == [b"PermissionError", b"True", b"True", b"1"], done.stderr


def test_s42_few_descriptors(tmp_path):
    """Many more queues than there may be open files."""
    code = """
        import sys, rmqstore
        config = rmqstore.StoreConfig(mapped_file_size_commit_log=1 << 20,
            mapped_file_size_consume_queue=400, max_hash_slot_num=50, max_index_num=200)
        with rmqstore.open(sys.argv[1], "a", config=config) as store:
            for number in range(3000):
                store.put("Topic1", b"%d" % number, queue_id=number % 1000)
        with rmqstore.open(sys.argv[1], "r") as store:
            print(sum(len(queue) for queue in store["Topic1"].values()))
        with rmqstore.open(sys.argv[1], "r+", config=config) as store:
            print(sum(len(list(queue)) for queue in store["Topic1"].values()))
    """
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))  # noqa: E731
    done = run(code, tmp_path / "store", preexec_fn=limit)
    assert done.stdout.split() == [b"3000", b"3000"], done.stderr.decode()


@pytest.mark.parametrize(("flush", "end"), [("ASYNC_FLUSH", "exit"), ("SYNC_FLUSH", "close")])
def test_s42_more_log_files_than_descriptors(tmp_path, flush, end):
    """Written, closed or killed, recovered, scanned and read in both modes."""
    code = """
        import os, sys, rmqstore
        path, flush, end = sys.argv[1:]
        config = rmqstore.StoreConfig(mapped_file_size_commit_log=4096, flush_disk_type=flush,
            mapped_file_size_consume_queue=4000, max_hash_slot_num=50, max_index_num=20000)

        def read(store):
            queue = store["Topic1"][0]
            assert [message.body[:4] for message in queue] == [b"%04d" % n for n in range(2000)]
            assert store.scan().count() == store.scan("Topic1").count() == 2000
            assert len(store.query("Topic1", "key")) == 2000
            print(len(os.listdir(path + "/commitlog")) > 400, len(os.listdir("/proc/self/fd")))

        with rmqstore.open(path, "a", config=config) as store:
            for number in range(2000):
                store.put("Topic1", b"%04d" % number * 200, queue_id=0, keys="key",
                          wait=number % 100 == 0)
            read(store)
            if end == "exit":
                sys.stdout.flush()
                os._exit(0)
    """
    again = """
        with rmqstore.open(path, "r") as store:
            read(store)
        for verify in ["tail", "full"]:
            with rmqstore.open(path, "r+", config=config, verify=verify) as store:
                read(store)
                store.create_topic(verify)
    """
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))  # noqa: E731
    root = tmp_path / "store"
    writes, _, _ = code.partition("        with rmqstore")
    for program in [code, writes + again[1:]]:
        done = run(program, root, flush, end, preexec_fn=limit)
        assert done.returncode == 0, done.stderr.decode()
        *many, used = done.stdout.split()[-2:]
        assert many == [b"True"]
        assert int(used) < 60, "descriptors of log files are kept"


@pytest.mark.long
@pytest.mark.parametrize("end", ["exit", "close"])
def test_s42_more_queue_files_than_mappings(tmp_path, end):
    """Full ones are let go of once they are on the disk, also by who recovers and reads them."""
    code = """
        import os, sys, rmqstore
        path, end = sys.argv[1:]
        config = rmqstore.StoreConfig(mapped_file_size_commit_log=1 << 20,
            mapped_file_size_consume_queue=20, max_hash_slot_num=50, max_index_num=20000,
            flush_interval_consume_queue=3_600_000, flush_consume_queue_thorough_interval=3_600_000)

        def mappings():
            with open("/proc/self/maps") as maps:
                return sum("consumequeue" in line for line in maps)

        def write(store, count):
            store.put_many("Topic1", [b"%d" % n for n in range(count)], queue_id=0, uniq_key=False)
            store.get("Topic1", 0, store["Topic1"][0].max_offset - 1)  # waits until it is there
            store.flush()
            return mappings()

        with rmqstore.open(path, "a", config=config) as store:
            print(write(store, 5000), write(store, 1500))
            assert len(os.listdir(path + "/consumequeue/Topic1/0")) == 6500
            if end == "exit":
                sys.stdout.flush()
                os._exit(0)
    """
    again = """
        with rmqstore.open(path, "r+", config=config) as store:
            print(mappings())
            assert sum(1 for _ in store["Topic1"][0]) == 6500
            print(mappings(), write(store, 100))
    """
    writes, _, _ = code.partition("        with rmqstore")
    for program in [code, writes + again[1:]]:
        done = run(program, tmp_path / "store", end)
        assert done.returncode == 0, done.stderr.decode()
        counts = [int(word) for word in done.stdout.split()]
        assert max(counts) < 4200, counts


@pytest.mark.parametrize("files", [6, 8, 10, 12, 16])
def test_s42_no_descriptors_at_all(root, files):
    """An OSError, and afterwards everything is as it was."""
    code = """
        import resource, sys, rmqstore
        rmqstore.open(sys.argv[1], "r").close()
        limit = int(sys.argv[2])
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        for mode in ["r", "r+"]:
            try:
                with rmqstore.open(sys.argv[1], mode) as store:
                    print(sum(len(list(q)) for q in store["Topic1"].values()))
            except (OSError, rmqstore.StoreError) as error:
                print(type(error).__name__, getattr(error, "errno", None))
    """
    done = run(code, root, files)
    assert done.returncode == 0, done.stderr.decode()
    for line in done.stdout.splitlines():
        assert line in {b"50", b"OSError 24"} or line.startswith((b"Store", b"Put")), line
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert len(list(store["Topic1"][0])) == 50


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="its shadow needs more")
@pytest.mark.parametrize("megabytes", [60, 100, 200, 400])
def test_s42_little_memory(root, megabytes):
    code = """
        import resource, sys, rmqstore
        limit = int(sys.argv[2]) << 20
        rmqstore.open(sys.argv[1], "r").close()
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            with rmqstore.open(sys.argv[1], "r+") as store:
                print(len(list(store["Topic1"][0])))
        except (OSError, MemoryError, rmqstore.StoreError) as error:
            print(type(error).__name__)
    """
    done = run(code, root, megabytes)
    assert done.returncode == 0, done.stderr.decode()
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert len(list(store["Topic1"][0])) == 50


# S43, S46: sparse giants


def test_s43_huge_sparse_files(tmp_path):
    """Files of a gigabyte that are holes cost neither time nor memory."""
    root = tmp_path / "store"
    config = rmqstore.StoreConfig()  # 1 GiB, 6 MB, 5 million slots
    with rmqstore.open(root, "a", config=config) as store:
        store.put("Topic1", b"x", queue_id=0, keys="k")
    shutil.rmtree(root / "rmqstore-quarantine", ignore_errors=True)
    (root / "abort").touch()
    # AddressSanitizer's shadow and what it keeps from being used again count as well.
    most = 400 if "asan" in os.environ.get("LD_PRELOAD", "") else 200
    code = """
        import re, sys, rmqstore
        with rmqstore.open(sys.argv[1], sys.argv[2]) as store:
            print(len(list(store["Topic1"][0])), len(store.query("Topic1", "k")))
        # Not ru_maxrss, which begins with what the process that started this one has.
        most = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())
        print(int(most[1]) < int(sys.argv[3]) << 10)
    """
    for mode in ["r", "r+"]:
        done = run(code, root, mode, most)
        assert done.stdout.split() == [b"1", b"1", b"True"], (done.stdout, done.stderr.decode())
