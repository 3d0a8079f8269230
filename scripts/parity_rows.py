"""Parity of each method and each setting of 4.9.3's store, with its tests.

A method either works, with its implementation and tests, or has no meaning, with the reason.
For a setting, StoreConfig itself shows which; here are the tests of settings in effect.
"""

from typing import NamedTuple

LIVE = "tests/interop/test_live.py::test_everything_a_consumer_gets"
METHODS = "tests/interop/test_methods.py::"
OURS = "tests/interop/test_ours_reads_real.py::"
REAL = "tests/interop/test_real_reads_ours.py::"
STORES = "tests/interop/test_real_stores.py::"
TURNS = "tests/interop/test_turns.py::test_turns"
PLACES = METHODS + "test_places_times_and_sums"
BOUNDS = METHODS + "test_bounds_of_the_log"
RECORDS = METHODS + "test_records_by_their_offset"
SETTINGS = "tests/unit/store/test_settings_act.py::"
LAYOUTS = "tests/unit/store/test_layouts.py::"
SYNCS = "tests/crash/test_sync_errors.py::"
RETENTION = "tests/unit/log/test_retention.py::"
POLICY = "tests/unit/log/test_retention_policy.py::"
FIGURES = "tests/unit/store/test_figures.py::"


class Method(NamedTuple):
    """A method of the interface: either ``does`` and ``tests``, or ``because``."""

    name: str
    arguments: str
    does: str
    tests: tuple[str, ...]
    because: str = ""


def works(name: str, arguments: str, does: str, *tests: str) -> Method:
    return Method(name, arguments, does, tests)


def nothing(name: str, arguments: str, because: str) -> Method:
    return Method(name, arguments, "", (), because)


_REPLICATION = "replication: a store of one program has no master and no slave"
_CACHE = "nothing is refused or cut short by what is in memory; a put's time is in `stats()`"

INTERFACE = (
    works("load", "", "`rmqstore.open`", OURS + "test_as_ours_recovers_it", TURNS),
    works("start", "", "`rmqstore.open`", OURS + "test_as_ours_recovers_it", TURNS),
    works("shutdown", "", "`close`", REAL + "test_every_unit_and_record", TURNS),
    nothing("destroy", "", "it unlinks the files of an open store: `shutil.rmtree` after `close`"),
    works("asyncPutMessage", "MessageExtBrokerInner", "`aput`", TURNS),
    works("asyncPutMessages", "MessageExtBatch", "`put_batch(wait=False)`", TURNS),
    works("putMessage", "MessageExtBrokerInner", "`put`", REAL + "test_every_unit_and_record"),
    works("putMessages", "MessageExtBatch", "`put_batch`", REAL + "test_every_unit_and_record"),
    works(
        "getMessage",
        "String,String,int,long,int,MessageFilter",
        "`get`",
        REAL + "test_get_as_ours",
        STORES + "test_get_and_time",
        LIVE,
    ),
    works("getMaxOffsetInQueue", "String,int", "`queue.max_offset`", PLACES),
    works("getMinOffsetInQueue", "String,int", "`queue.min_offset`", PLACES),
    works("getCommitLogOffsetInQueue", "String,int,long", "`queue.units`", PLACES),
    works(
        "getOffsetInQueueByTime",
        "String,int,long",
        '`queue.offset_at(time, "nearest")`, exact with `"lower"` and `"upper"`',
        REAL + "test_offsets_at_times",
        STORES + "test_get_and_time",
    ),
    works("lookMessageByOffset", "long", "`at`", RECORDS),
    works("selectOneMessageByOffset", "long", "`at`", RECORDS),
    works("selectOneMessageByOffset", "long,int", "`at`", RECORDS),
    works(
        "getRunningDataInfo", "", "`stats`, as numbers", FIGURES + "test_puts_and_gets_are_counted"
    ),
    works("getRuntimeInfo", "", "`stats`", BOUNDS),
    works("getMaxPhyOffset", "", '`stats()["commitLogMaxOffset"]`', BOUNDS),
    works("getMinPhyOffset", "", '`stats()["commitLogMinOffset"]`', BOUNDS),
    works(
        "getEarliestMessageTime", "String,int", "`queue[queue.min_offset].store_timestamp`", PLACES
    ),
    works("getEarliestMessageTime", "", '`stats()["earliestMessageTimeStamp"]`', BOUNDS),
    works("getMessageStoreTimeStamp", "String,int,long", "`queue[offset].store_timestamp`", PLACES),
    works("getMessageTotalInQueue", "String,int", "`len(queue)`", PLACES),
    nothing("getCommitLogData", "long", f"{_REPLICATION}; `scan` reads the log"),
    works(
        "appendToCommitLog",
        "long,byte[],int,int",
        "`CommitLog.append`",
        "tests/interop/test_bytes.py::test_theirs_makes_queues_and_index_of_our_log",
    ),
    works(
        "executeDeleteFilesManually",
        "",
        "`delete_expired`",
        "tests/interop/test_retention.py::test_ours_says_what_the_real_one_deletes",
    ),
    works(
        "queryMessage",
        "String,String,int,long,long",
        "`query`, compared exactly",
        REAL + "test_every_key",
        STORES + "test_keys_are_the_brokers",
    ),
    nothing("updateHaMasterAddress", "String", _REPLICATION),
    nothing("slaveFallBehindMuch", "", _REPLICATION),
    works(
        "now",
        "",
        "`store.clock.now`",
        "tests/unit/store/test_services.py::test_store_times_go_by_the_clock",
    ),
    works(
        "cleanUnusedTopic",
        "Set",
        "`clean_unused_topics`, once they have no message left; `delete_topic`, a topic at a time",
        "tests/unit/log/test_topic_deletion.py::test_deleted_while_a_message_is_put",
    ),
    works(
        "cleanExpiredConsumerQueue",
        "",
        "`delete_expired`, `clean_unused_topics`; a queue of a topic in use goes on counting",
        RETENTION + "test_unused_topics_go_with_their_last_message",
    ),
    nothing("checkInDiskByConsumeOffset", "String,int,long", _CACHE),
    works("dispatchBehindBytes", "", '`stats()["dispatch_behind_bytes"]`', BOUNDS),
    works("flush", "", "`flush`", TURNS),
    nothing("resetWriteOffset", "long", "it does nothing in 4.9.3 either: its loop ends at once"),
    nothing("getConfirmOffset", "", _REPLICATION),
    nothing("setConfirmOffset", "long", _REPLICATION),
    nothing("isOSPageCacheBusy", "", _CACHE),
    nothing("lockTimeMills", "", _CACHE),
    nothing("isTransientStorePoolDeficient", "", "there is no pool between a put and the log"),
    nothing("getDispatcherList", "", "dispatch is one part of the core, not a list of plug-ins"),
    works(
        "getConsumeQueue",
        "String,int",
        "`store[topic][queue_id]`",
        STORES + "test_dump_is_the_brokers",
    ),
    works(
        "getBrokerStatsManager",
        "",
        "`stats`, `rmqstore.metrics.collector`",
        FIGURES + "test_puts_and_gets_are_counted",
    ),
    works(
        "handleScheduleMessageService",
        "BrokerRole",
        "the schedule service runs in writing modes",
        "tests/unit/store/test_schedule.py::test_delivered_as_a_broker_stores_it",
    ),
    works(
        "cleanUnusedLmqTopic",
        "String",
        "`delete_topic`",
        "tests/unit/store/test_light_queues.py::test_a_light_topic_that_was_deleted_begins_anew",
    ),
)

EXT = "tests/unit/queue/"
# Tests of settings that act, where they are not in test_settings_act.py under the setting's name.
PULLS = ("tests/unit/serve/test_offsets.py::test_the_limits_of_a_pull_are_settings",)
FIELDS: dict[str, tuple[str, ...]] = {
    "max_transfer_bytes_on_message_in_memory": PULLS,
    "max_transfer_count_on_message_in_memory": PULLS,
    "max_transfer_bytes_on_message_in_disk": PULLS,
    "max_transfer_count_on_message_in_disk": PULLS,
    "access_message_in_memory_max_ratio": PULLS,
    "store_path_root_dir": (LAYOUTS + "test_a_copy_opens_with_the_configuration_of_the_original",),
    "store_path_commit_log": ("tests/interop/test_layouts.py::test_several_directories",),
    "read_only_commit_log_store_paths": (
        "tests/interop/test_layouts.py::test_read_only_directories",
    ),
    "warm_maped_file_enable": (LAYOUTS + "test_warm_files_have_all_their_pages",),
    "flush_least_pages_when_warm_maped_file": (LAYOUTS + "test_warm_files_have_all_their_pages",),
    "flush_commit_log_timed": (LAYOUTS + "test_flushing_after_each_put",),
    "flush_disk_type": ("tests/crash/test_sync_errors.py::test_a_sync_is_never_tried_again",),
    "sync_flush_timeout": (SYNCS + "test_a_log_that_cannot_be_opened_to_sync_it_does_not_hang",),
    "enable_consume_queue_ext": (
        "tests/interop/test_ext.py::test_the_real_store_reads_what_ours_wrote",
        "tests/interop/test_ext.py::test_ours_reads_what_the_real_store_wrote",
    ),
    "mapped_file_size_consume_queue_ext": (
        EXT + "test_queue_ext.py::test_bytes_of_a_unit_and_of_the_end_of_a_file",
    ),
    "bit_map_length_consume_queue_ext": (EXT + "test_ext_bitmaps.py::test_how_long_bit_maps_are",),
    "max_hash_slot_num": (SETTINGS + "test_max_hash_slot_num_and_max_index_num",),
    "clean_resource_interval": (POLICY + "test_by_time_at_the_hour",),
    "delete_commit_log_files_interval": (POLICY + "test_pause_between_files",),
    "delete_when": (POLICY + "test_by_time_at_the_hour",),
    "disk_max_used_space_ratio": (POLICY + "test_by_use_of_the_disk",),
    "file_reserved_time": (
        POLICY + "test_by_time_at_the_hour",
        POLICY + "test_nothing_goes_unless_told",
    ),
    "clean_file_forcibly_enable": (POLICY + "test_forced_only_if_asked_for",),
    "max_index_num": (SETTINGS + "test_max_hash_slot_num_and_max_index_num",),
}
