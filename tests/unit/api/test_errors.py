"""The exceptions: what they are, say and carry, also across processes."""

import io
import pickle
from pathlib import Path

import pytest

import rmqstore
from rmqstore import errors
from rmqstore.types import GetResult, GetStatus, PutStatus, Recovery

pytestmark = pytest.mark.pure

EVERY = [
    errors.StoreError("plain"),
    errors.StoreNotFoundError("no store at /nowhere"),
    errors.StoreLockedError("locked by process 7"),
    errors.StoreCorruptError("/store/commitlog/0", 84, "body of 7 bytes, room for 5"),
    errors.IncompatibleStoreError("file of 5 bytes, 6 are configured"),
    errors.StoreFailedError("sync failed"),
    errors.StoreClosedError("the store is closed"),
    errors.ReadOnlyStoreError("opened with 'r'"),
    errors.ForkedStoreError("opened by process 7"),
    errors.PutError("full", status=PutStatus.DISK_FULL, result=(1, 2), stored=3, errno=28),
    errors.MessageIllegalError("too long", status=PutStatus.MESSAGE_ILLEGAL),
    errors.FilterError("found ')'", 12),
    errors.TopicNotFoundError("no topic 'x'"),
    errors.GroupNotFoundError("no group 'x'"),
    errors.ConsumeDisabledError("the group 'x' may not consume"),
    errors.MessageNotFoundError("no message 'x'"),
    errors.MessagesRemovedError("orders", 2, 10, 300),
]


def test_all_are_listed() -> None:
    assert {type(one).__name__ for one in EVERY} == set(errors.__all__)


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_whole(error: errors.StoreError, protocol: int) -> None:
    back = pickle.loads(pickle.dumps(error, protocol))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.args == error.args
    assert vars(back) == vars(error)


@pytest.mark.parametrize(
    ("kind", "also"),
    [
        (errors.StoreNotFoundError, FileNotFoundError),
        (errors.ReadOnlyStoreError, io.UnsupportedOperation),
        (errors.MessageIllegalError, errors.PutError),
        (errors.MessageIllegalError, ValueError),
        (errors.FilterError, ValueError),
        (errors.TopicNotFoundError, KeyError),
        (errors.GroupNotFoundError, KeyError),
        (errors.MessageNotFoundError, LookupError),
    ],
)
def test_is_also(kind: type[Exception], also: type[Exception]) -> None:
    assert issubclass(kind, errors.StoreError)
    assert issubclass(kind, also)


def test_corrupt_says_path_offset_and_reason() -> None:
    error = errors.StoreCorruptError(b"/store/f", 1048576, "size 0")
    assert (error.path, error.offset, error.reason) == ("/store/f", 1048576, "size 0")
    assert str(error) == "/store/f, offset 1048576: size 0"


def test_topic_not_found_is_no_repr() -> None:
    assert str(errors.TopicNotFoundError("no topic 'x'")) == "no topic 'x'"


def test_topic_not_found_names_the_nearest(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        for topic in ("orders", "borders", "payments"):
            store.create_topic(topic)
        said = f"{tmp_path}: no topic 'ordrs'; did you mean 'orders' or 'borders'?"
        for look in (
            lambda: store["ordrs"],
            lambda: store.delete_topic("ordrs"),
            lambda: store.consumer("ordrs", group="billing"),
        ):
            with pytest.raises(errors.TopicNotFoundError) as caught:
                look()
            assert str(caught.value) == said
        with pytest.raises(errors.TopicNotFoundError, match=r"no topic 'x'$"):
            store["x"]
        with pytest.raises(KeyError, match=r"no topic 7$"):
            store[7]  # type: ignore[index]
        assert repr(store["orders"]) == "<rmqstore.Topic 'orders' 4 queues>"
        assert repr(store.create_topic("one", 1) or store["one"]).endswith(" 1 queue>")


def test_put_error_without_extras() -> None:
    error = errors.PutError("no")
    assert (error.status, error.result, error.stored, error.errno) == (None, None, 0, None)


def test_removed_names_both_offsets() -> None:
    assert str(errors.MessagesRemovedError("orders", 2, 10, 300)) == (
        "orders/2: offset 10 has been removed, the queue begins at 300 now; go on from there"
    )


def test_statuses_have_java_s_order() -> None:
    assert [one.name for one in GetStatus] == [
        "FOUND",
        "NO_MATCHED_MESSAGE",
        "MESSAGE_WAS_REMOVING",
        "OFFSET_FOUND_NULL",
        "OFFSET_OVERFLOW_BADLY",
        "OFFSET_OVERFLOW_ONE",
        "OFFSET_TOO_SMALL",
        "NO_MATCHED_LOGIC_QUEUE",
        "NO_MESSAGE_IN_QUEUE",
    ]
    assert [one.value for one in GetStatus] == list(range(9))
    assert PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED == 10
    assert PutStatus.DISK_FULL == 11


def test_get_result_is_a_sequence_of_its_messages() -> None:
    messages: list[object] = ["a", "b"]
    result = GetResult(GetStatus.FOUND, messages, 2, 0, 9)  # type: ignore[arg-type]
    assert list(result) == messages
    assert (len(result), result[1]) == (2, "b")
    with pytest.raises(AttributeError):
        result.status = GetStatus.NO_MATCHED_MESSAGE  # type: ignore[misc]


def test_recovery_has_defaults() -> None:
    found = Recovery(clean=True, mode="r")
    assert (found.bytes_cut, found.saved_to, found.notes) == (0, (), ())
