"""Damage after whose repair ``verify`` finds nothing, and ``repair`` nothing more to do."""

import json
import shutil

import pytest

import rmqstore
from rmqstore.toolbox import rebuild, repair, undo, verify
from support import oracle_store, repairs
from support.repairs import mended, patch_record

QUEUE = "orders", 0


def flip(path, at, mask=1):
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


# The last byte of each field, and one with which it is out of all bounds.
@pytest.mark.parametrize("at", [7, 15, 23, 31, 35, 39, 1, 8, 18, 24, 32, 37])
@pytest.mark.parametrize("last", [False, True])
def test_a_flipped_bit_in_the_header_of_an_index_file(root, at, last):
    flip(sorted((root / "index").iterdir())[-1 if last else 0], at, 16)
    mended(root, actions={"rebuild-index", "close"})


def test_an_index_file_of_no_use_is_named(root):
    _, last = sorted((root / "index").iterdir())
    flip(last, 14, 16)  # its end time, which no other file shows
    found = {one.file for one in verify(root, full=True, jobs=1).problems}
    assert found == {f"index/{last.name}"}


@pytest.mark.parametrize("number", [30, 90])
@pytest.mark.parametrize("later", [False, True])
def test_either_of_two_records_for_a_queue_offset_has_it(root, number, later):
    """Dispatch enters the first; a recovery that cut the queue in between, the second."""
    patch_record(root, number, 20, (number - 20).to_bytes(8, "big"))
    if later:
        path = root / repairs.queue_file(0)
        units = path.read_bytes()
        unit = units[20 * number : 20 * number + 20]
        if not any(unit):  # in the next file
            unit = (root / repairs.queue_file(1)).read_bytes()[20 * number - 2000 :][:20]
        repairs.patch(repairs.queue_file(0), 20 * (number - 20), unit)(root)
    found = {one.file for one in verify(root, full=True, jobs=1).problems}
    place = repairs.place_of(root, number)
    assert found == {repairs.queue_file(0) if later else repairs.log(place // repairs.LOG)}
    mended(root, actions={"rebuild-queue" if later else "mend-record", "close"})


def remove_topic(root, name, *, queues=True):
    for path in (root / "config").glob("topics.json*"):
        table = json.loads(path.read_text())
        table["topicConfigTable"].pop(name, None)
        path.write_text(json.dumps(table))
    if queues:
        shutil.rmtree(root / "consumequeue" / name)


def test_a_topic_that_a_broker_deleted_is_no_problem(root):
    remove_topic(root, "bills")
    report = verify(root, full=True, jobs=1)
    assert (report.problems, report.fix) == ((), None)
    assert repair(root).actions == ()
    assert all(one.same for one in rebuild(root))


def test_after_a_kill_a_topic_without_entry_and_queue_comes_back(root):
    """A broker enters it again as it starts."""
    records = [one for one in oracle_store.walk_log(root / "commitlog") if one.topic == "bills"]
    remove_topic(root, "bills")
    (root / "abort").touch()
    mended(root, actions={"rebuild-queue", "rebuild-json", "close"})
    repair(root, apply=True)
    found = [place for place in repairs.queued(root) if place[0] == "bills"]
    assert len(found) == len(records)


def test_a_checkpoint_of_a_longer_log(root, tmp_path):
    repairs.make(tmp_path / "longer", count=repairs.COUNT + 100)
    shutil.copy(tmp_path / "longer/checkpoint", root / "checkpoint")
    assert [one.action for one in repair(root).actions] == ["close"]
    mended(root, actions={"close"})


@pytest.mark.parametrize("at", [40, 1000, 2047, 2200, 4095])
def test_a_byte_of_a_checkpoint_that_nobody_writes(root, at):
    flip(root / "checkpoint", at, 16)
    assert [one.kind for one in verify(root, full=True, jobs=1).problems] == ["checkpoint"]
    mended(root, actions={"close"})


@pytest.mark.parametrize("at", range(20))
def test_a_byte_behind_the_last_unit_of_a_queue(root, at):
    units = (root / repairs.queue_file(1)).read_bytes().rstrip(b"\0")
    flip(root / repairs.queue_file(1), (len(units) // 20 + 3) * 20 + at, 4)
    assert not verify(root, full=True, jobs=1).clean
    mended(root, actions={"rebuild-queue", "close"})


def test_a_log_file_on_a_disk_that_is_not_mounted(root, tmp_path):
    file = repairs.log(1)
    (root / file).rename(tmp_path / "elsewhere")
    (root / file).symlink_to(tmp_path / "nowhere")
    before = repairs.tree(root / "consumequeue")
    for apply in (False, True):  # without its records the queues cannot be compared
        [one] = [one for one in repair(root, apply=apply).actions if one.file == file]
        assert one.action == "none"
        assert "mount its disk" in one.message
    assert repairs.tree(root / "consumequeue") == before
    (tmp_path / "elsewhere").rename(tmp_path / "nowhere")
    assert repair(root).actions == ()


@pytest.mark.parametrize("length", [repairs.LOG + 8, 2 * repairs.LOG, 4096])
def test_most_files_of_a_log_with_another_length(root, length):
    files = [repairs.truncate(repairs.log(number), length) for number in (1, 2)]
    repairs.several(*files)(root)
    done = [one.action for one in repair(root).actions if one.file.startswith("commitlog")]
    assert done[:2] == ["extend-file" if length < repairs.LOG else "cut-file"] * 2
    assert repair(root, apply=True).left == 0
    assert len(list((root / "commitlog").iterdir())) == 3
    assert verify(root, full=True, jobs=1).clean


def test_a_log_all_of_whose_files_are_longer(root):
    for path in (root / "commitlog").iterdir():
        repairs.truncate(path.relative_to(root), repairs.LOG + 8)(root)
    before = repairs.readable(root)
    assert len(before) == repairs.COUNT
    repair(root, apply=True)
    assert repairs.readable(root) == before


@pytest.mark.parametrize("numbers", [[1], [90], [160], [90, 100]])
def test_a_blank_before_the_end_of_a_file(root, numbers):
    """The records behind it are readable by their queues, and stay so."""
    whole = repairs.queued(root)
    offset = repairs.place_of(root, numbers[0])
    file = repairs.log(offset // repairs.LOG)
    for number in reversed(numbers):
        repairs.early_blank(number)(root)
    [found] = [one for one in verify(root).problems if one.file == file]
    assert (found.kind, found.offset) == ("bad-record", offset)
    repair(root, apply=True)
    assert repairs.queued(root) == whole
    assert len(repairs.readable(root)) == repairs.COUNT  # with a dummy
    assert verify(root).clean


def test_behind_a_blank_may_be_what_a_recovery_has_cut(root):
    """No queue names it."""
    before = repairs.queued(root)
    path = root / repairs.log(0)
    last = max(at for at in before.values() if at < repairs.LOG)
    data = path.read_bytes()
    blank = last + int.from_bytes(data[last : last + 4], "big")
    size = int.from_bytes(data[:4], "big")
    stale = bytearray(data[:size])
    stale[28:36] = (blank + 8).to_bytes(8, "big")  # its place in the log
    assert blank + 8 + size < repairs.LOG
    repairs.patch(repairs.log(0), blank + 8, stale)(root)
    assert (verify(root).clean, repair(root).actions) == (True, ())


@pytest.mark.parametrize("number", [0, 50, 160])
@pytest.mark.parametrize("far", [200, 1 << 40])
def test_a_rebuild_passes_over_a_queue_offset_too_far(root, number, far):
    patch_record(root, number, 20, (number + far).to_bytes(8, "big"))
    repairs.gone("consumequeue", "index")(root)
    rebuild(root, apply=True)
    assert all(one.same for one in rebuild(root))
    assert repair(root).actions == ()
    assert len(repairs.queued(root)) >= repairs.COUNT - 1


# Without them of its own, a record that two of three damaged alike surround is passed over.
@pytest.mark.parametrize("bit", [3, 7, 40])
@pytest.mark.parametrize(
    ("numbers", "alone"),
    [((0, 1), None), ((0, 2), None), ((0, 1, 3), 2), ((0, 2, 3), 1), ((0, 2, 4), None),
     ((1, 2, 3), None), ((2, 4, 5), None), ((5, 7, 9), None)],
)  # fmt: skip
def test_the_same_bit_flipped_in_the_queue_offsets_of_several_records(root, numbers, alone, bit):
    for number in numbers:
        patch_record(root, number, 20, (number ^ 1 << bit).to_bytes(8, "big"))
    repairs.gone("consumequeue")(root)
    rebuild(root, apply=True)
    assert all(one.same for one in rebuild(root))
    assert repair(root).actions == ()
    assert verify(root, full=True, jobs=1).clean
    there = {at for topic, queue_id, at in repairs.queued(root) if (topic, queue_id) == QUEUE}
    assert set(range(repairs.COUNT // 6)) - {*numbers, alone} <= there


def test_a_tags_code_that_looks_like_an_ext_address(root):
    repairs.patch(repairs.queue_file(0), 12, b"\x80")(root)
    assert not verify(root, full=True, jobs=1).clean
    mended(root, actions={"rebuild-queue", "close"})


@pytest.mark.parametrize("count", [900, 1300])
def test_a_log_file_of_another_store(root, tmp_path, count):
    """Its records lie between those of a queue, and leave their room to the later ones."""
    other = tmp_path / "other"
    with rmqstore.open(other, "a", config=repairs.CONFIG) as store:
        for number in range(count):
            body = b"o%05d" % number + bytes(number % 150) + b"z" * 400
            topic = ("orders", "news", "bills")[number % 3]
            store.put(topic, body, keys=[f"o{number}"], tags="c", queue_id=number % 4)
    shutil.copyfile(other / repairs.log(1), root / repairs.log(1))
    assert not verify(root, full=True, jobs=1).clean
    mended(root, actions={"rebuild-queue", "rebuild-index", "close"})


def test_a_topics_json_of_lists_alone_is_torn(root):
    path = root / "config/topics.json"
    shutil.copy(path, root / "config/topics.json.bak")
    whole = path.read_bytes()
    path.write_text("[" * 100_000)
    assert "restore-json" in [one.action for one in repair(root, apply=True).actions]
    assert path.read_bytes() == whole


@pytest.mark.parametrize("name", ["consumequeue", "consumequeue_ext", "index", "config"])
def test_a_file_in_the_place_of_a_directory(root, whole, name):
    if (root / name).exists():
        shutil.rmtree(root / name)
    (root / name).write_bytes(b"x")
    damaged = repairs.tree(root)
    [found] = [one for one in repair(root).actions if one.file == name]
    assert (found.action, found.bytes) == ("move-foreign", 1)
    done = repair(root, apply=True)
    assert done.left == 0
    assert repairs.queued(root) == repairs.queued(whole)
    assert verify(root).clean
    assert repair(root).actions == ()
    undo(root, done.journal)
    assert repairs.tree(root) == damaged


def test_a_directory_in_the_place_of_a_log_file(root):
    (root / repairs.log(1)).unlink()
    (root / repairs.log(1)).mkdir()
    assert "move-foreign" in [one.action for one in repair(root).actions]
    assert repair(root, apply=True).left == 0
    assert verify(root).clean


@pytest.mark.parametrize("renamed", [False, True])
def test_a_queue_file_whose_name_is_no_multiple_of_its_length(root, renamed):
    path = root / repairs.queue_file(1)
    stray = path.with_name(f"{repairs.UNITS + 20:020d}")
    path.rename(stray) if renamed else shutil.copy(path, stray)
    actions = {"move-foreign", "close", *(["rebuild-queue"] * renamed)}
    mended(root, actions=actions)


@pytest.mark.parametrize("at", [8, 12, 19])
def test_a_byte_in_the_free_units_of_a_queue(root, at):
    last = sorted((root / "consumequeue/orders/0").iterdir())[-1]
    assert not any(last.read_bytes()[-20:])
    flip(last, repairs.UNITS - 20 + at)
    assert not verify(root).clean
    mended(root, actions={"rebuild-queue", "close"})


def test_a_closed_store_without_checkpoint(root):
    (root / "checkpoint").unlink()
    mended(root, actions={"close"})


@pytest.mark.parametrize("number", [20, 60])
def test_a_dummy_takes_no_queue_offset_that_a_record_has(root, number):
    """Also where the files of two queues were exchanged."""
    whole = repairs.readable(root)
    repairs.flip(root, number)  # of orders/0
    for name in ("0", "1"):
        (root / "consumequeue/orders" / name).rename(root / f"aside-{name}")
    (root / "aside-0").rename(root / "consumequeue/orders/1")
    (root / "aside-1").rename(root / "consumequeue/orders/0")
    assert repair(root, apply=True).left == 0
    places = [place for *place, _ in repairs.readable(root).values()]
    assert len(places) == len({tuple(place) for place in places})
    whole = {tuple(place): at for at, (*place, _) in whole.items()}
    assert repairs.queued(root).items() <= whole.items()
    assert len(repairs.queued(root)) >= repairs.COUNT - 1
    assert verify(root).clean


LIGHT = repairs.CONFIG.replace(enable_multi_dispatch=True, enable_lmq=True)


@pytest.mark.parametrize(
    "topic", ["RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "%LMQ%light"]
)
@pytest.mark.parametrize("listed", [False, True])
def test_a_lost_queue_that_brokers_make_without_an_entry(tmp_path, topic, listed):
    """Without an entry in topics.json another topic was deleted."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=LIGHT) as store:
        for number in range(20):
            store.put("orders", b"x", lite_topics=["light"])
            store.begin("orders", b"%d" % number).rollback()
    if not listed:
        remove_topic(root, topic, queues=False)
    whole = repairs.queued(root)
    shutil.rmtree(root / "consumequeue" / topic)
    assert not verify(root).clean
    mended(root, actions={"rebuild-queue", "close"})
    repair(root, apply=True)
    assert repairs.queued(root) == whole


def test_lost_ext_units_of_delayed_messages(tmp_path):
    root = tmp_path / "store"
    with rmqstore.open(
        root, "a", config=repairs.CONFIG.replace(enable_consume_queue_ext=True)
    ) as store:
        for _ in range(20):
            store.put("orders", b"x", delay_level=18)
    (root / "config/delayOffset.json").write_text('{"offsetTable":{18:0}}')
    assert (verify(root).clean, repair(root).actions) == (True, ())
    shutil.rmtree(root / "consumequeue_ext/SCHEDULE_TOPIC_XXXX/17")
    assert not verify(root).clean
    mended(root, actions={"rebuild-queue", "close"})


def test_a_topics_json_in_latin_1(root):
    """Names that are no UTF-8 stay as they are."""
    with rmqstore.open(root, "a", config=repairs.CONFIG) as store:
        store.create_topic("umlaut")
    path = root / "config/topics.json"
    path.write_bytes(path.read_bytes().replace(b"umlaut", b"uml\xe4ut").replace(b"orders", b"or"))
    mended(root, actions={"rebuild-json", "close"})
    repair(root, apply=True)
    assert b"uml\xe4ut" in path.read_bytes()


def test_offsets_without_their_table(root):
    """A broker reads none, and says nothing."""
    path = root / "config/consumerOffset.json"
    whole = path.read_bytes()
    path.with_name(f"{path.name}.bak").write_bytes(whole)
    path.write_bytes(whole.replace(b"offsetTable", b"\xf6ffsetTable"))
    [found] = [one for one in verify(root).problems if one.file == f"config/{path.name}"]
    assert (found.severity, found.kind) == ("lost", "json")
    mended(root, actions={"restore-json", "close"})
    path.write_bytes(whole.replace(b"offsetTable", b"Offset_table"))  # fastjson takes it for it
    assert repair(root).actions == ()


def test_a_store_that_is_ahead_of_the_clock(tmp_path):
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=repairs.CONFIG) as store:
        store.clock.advance(86_400)
        for number in range(600):  # two index files
            store.put("orders", b"x", keys=[f"k{number}", f"l{number}", f"m{number}", f"n{number}"])
    report = verify(root)
    assert "clock" in {one.kind for one in report.problems}
    assert (report.clean, report.fix) == (True, None)


@pytest.mark.parametrize("value", [b"1.5", b"null", b'"x"', b"[]"])
@pytest.mark.parametrize("name", ["consumerOffset.json", "lmqConsumerOffset.json"])
def test_an_offset_that_is_no_number(root, name, value):
    """Opening refuses it, and nothing tells which one is meant."""
    path = root / "config" / name
    (root / "config/consumerOffset.json").unlink()
    path.write_bytes(b'{"offsetTable":{"orders@billing":{0:%s}}}' % value)
    config = LIGHT if name.startswith("lmq") else None
    with pytest.raises(rmqstore.StoreCorruptError):
        rmqstore.open(root, "r+", config=config)
    report = verify(root)
    [found] = [one for one in report.problems if one.file == f"config/{name}"]
    assert (found.kind, report.clean) == ("json", False)
    [left] = repair(root, apply=True).actions
    assert (left.action, left.file) == ("none", f"config/{name}")
    assert "put a copy back" in left.message


def test_a_blank_over_a_half_message(tmp_path):
    """No dummy takes the queue offset of a record behind it."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=repairs.CONFIG) as store:
        for number in range(300):
            store.put("orders", b"x" * 900, queue_id=number % 3)
            if number % 10 == 0:
                store.begin("orders", bytes(900)).rollback()
    whole = repairs.queued(root)
    at = whole["RMQ_SYS_TRANS_HALF_TOPIC", 0, 5]
    blank = (repairs.LOG - at % repairs.LOG).to_bytes(4, "big") + b"\xcb\xd4\x31\x94"
    repairs.patch(repairs.log(at // repairs.LOG), at % repairs.LOG, blank)(root)
    assert "bad-record" in {one.kind for one in verify(root).problems}
    assert "zero-blank" in [one.action for one in repair(root, apply=True).actions]
    del whole["RMQ_SYS_TRANS_HALF_TOPIC", 0, 5]
    assert whole.items() <= repairs.queued(root).items()
    assert verify(root).clean


def test_what_is_no_directory_among_ext_queues(root):
    ext = root / "consumequeue_ext"
    (ext / "orders").mkdir(parents=True)
    (ext / ".DS_Store").write_bytes(b"x")
    (ext / "orders" / "notes.txt").write_bytes(b"y")
    assert not verify(root).clean
    mended(root, actions={"move-foreign", "close"})
