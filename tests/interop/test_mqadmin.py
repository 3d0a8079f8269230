"""mqadmin's commands against the gateway and against a real broker, over two copies of a store.

Each has to end well, and to print what the real broker leads to, but for addresses, times, rates,
the machine's figures and settings of a broker's own.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqstore
from interop.broker import Broker, deliver_nothing
from interop.driver import SMALL
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.network.answers import Handled
from rmqstore.serve.network.connection import Connection
from rmqstore.serve.settings import Settings
from rmqstore.serve.wire.frames import Request
from support import archives

pytestmark = pytest.mark.campaign

STORES = Path(__file__).resolve().parents[1] / "data" / "stores"
Outcome = tuple[str | None, str]

# Each command, its words; {broker} is the broker's address, {dir} a directory of its own.
READING = """
topicList
topicList -c
topicRoute -t orders
topicRoute -t nowhere
topicClusterList -t orders
topicStatus -t orders
topicStatus -t %RETRY%orders-group
topicStatus -t nowhere
allocateMQ -t orders -i 192.0.2.1,192.0.2.2
clusterList
clusterList -m
brokerStatus -b {broker}
brokerStatus -c DefaultCluster
getBrokerConfig -b {broker}
getBrokerConfig -c DefaultCluster
getNamesrvConfig
statsAll
statsAll -a
statsAll -t orders
exportMetadata -c DefaultCluster -f {dir}
exportMetadata -c DefaultCluster -t -f {dir}
exportMetadata -c DefaultCluster -g -f {dir}
consumerProgress
consumerProgress -g orders-group
consumerProgress -g sql-group
consumerProgress -g nobody
consumerStatus -g orders-group
consumerConnection -g orders-group
producerConnection -g nobody -t orders
brokerConsumeStats -b {broker}
brokerConsumeStats -b {broker} -o true
queryCq -t orders -q 0 -i 0 -c 3 -b {broker}
queryCq -t orders -q 1 -i 100 -c 2 -b {broker}
queryCq -t orders -q 1 -i 0 -c 1 -g orders-group -b {broker}
queryCq -t orders -q 9 -i 0 -c 1 -b {broker}
getConsumerConfig -g orders-group
"""

CHANGING = """
updateTopic -b {broker} -t made_b -r 5 -w 3 -p 6
updateTopic -c DefaultCluster -t made_c -r 4 -w 4
updateTopic -b {broker} -t TBW102
updateTopic -b {broker} -t made_o -o true
topicRoute -t made_o
updateTopicPerm -b {broker} -t made_b -p 4
topicRoute -t made_b
deleteTopic -c DefaultCluster -t made_c
topicRoute -t made_c
deleteTopic -c DefaultCluster -t never_there
updateSubGroup -b {broker} -g made-g -m true -r 3 -q 2
updateSubGroup -c DefaultCluster -g made-g -s false
getConsumerConfig -g made-g
deleteSubGroup -b {broker} -g made-g
deleteSubGroup -c DefaultCluster -g made-g -r true
updateOrderConf -t orders -m put -v broker-a:4
updateOrderConf -t orders -m get
topicRoute -t orders
updateOrderConf -t orders -m delete
updateKvConfig -s SPACE -k one -v two
deleteKvConfig -s SPACE -k one
wipeWritePerm -b broker-a
topicRoute -t orders
addWritePerm -b broker-a
topicRoute -t orders
cleanExpiredCQ -b {broker}
cleanUnusedTopic -b {broker}
cleanUnusedTopic -c DefaultCluster
"""

USING = """
queryMsgByKey -t orders -k order-3
queryMsgByKey -t orders -k no-such-key
queryMsgByUniqueKey -t orders -i {uniq}
queryMsgByUniqueKey -t orders -i 7F000001000000000000000000000000
queryMsgById -i {id}
queryMsgByOffset -t orders -b broker-a -i 0 -o 3
printMsg -t Topic1
printMsgByQueue -t orders -a broker-a -i 1 -p true -d false
consumeMessage -t Topic1 -b broker-a -i 2 -o 0 -c 1
sendMessage -t orders -p hello -k keyed -c tagged -b broker-a -i 0
cloneGroupOffset -s orders-group -d cloned -t orders -o true
consumerProgress -g cloned
resetOffsetByTime -g orders-group -t orders -s -1
resetOffsetByTime -g orders-group -t orders -s 0
consumerProgress -g orders-group
skipAccumulatedMessage -g orders-group -t orders
"""


LIVE = """
consumerProgress -g orders-group
consumerConnection -g orders-group
producerConnection -g live-producer -t orders
consumerStatus -g orders-group
consumerStatus -g orders-group -s
brokerConsumeStats -b {broker}
"""


class Sides:
    """A real broker and a gateway, each with a copy of the same store."""

    def __init__(self, home: Path, store: Path) -> None:
        self.home = home
        for name in ("theirs", "ours"):
            shutil.copytree(store, home / name)
        self.server: Server | None = None
        self.broker = Broker()
        try:
            started = self.broker.start(
                home / "theirs", SMALL, {"transactionCheckInterval": 3_600_000}
            )
            self.names = f"127.0.0.1:{started['names_port']}"
            self.address = started["store_host"]
            self.server = Server(
                home / "ours",
                Settings(),
                StoreConfig(
                    mapped_file_size_commit_log=SMALL["mappedFileSizeCommitLog"],
                    mapped_file_size_consume_queue=SMALL["mappedFileSizeConsumeQueue"],
                    max_hash_slot_num=SMALL["maxHashSlotNum"],
                    max_index_num=SMALL["maxIndexNum"],
                ),
            )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self.server is not None:
            self.server.close()
        self.broker.close()

    def theirs(self, commands: list[str], **more: str) -> list[Outcome]:
        given = dict(more, broker=self.address, dir=str(self.home / "their-export"))
        given["id"] = _id_at(self.address, more.get("id", ""))
        return self.broker.admin(self.names, _words(commands, given))

    def ours(self, commands: list[str], **more: str) -> list[Outcome]:
        assert self.server is not None
        address = self.server.address
        given = dict(more, broker=address, dir=str(self.home / "our-export"))
        given["id"] = _id_at(address, more.get("id", ""))
        return self.broker.admin(address, _words(commands, given))


def _id_at(address: str, msg_id: str) -> str:
    """Return a message's id with another address: its command asks there."""
    host, _, port = address.rpartition(":")
    return f"{ipaddress.ip_address(host).packed.hex()}{int(port):08X}{msg_id[16:]}"


def _words(commands: list[str], given: dict[str, str]) -> list[list[str]]:
    def filled(word: str) -> str:
        for name, value in given.items():
            word = word.replace("{" + name + "}", value)
        return word

    return [[filled(word) for word in line.split()] for line in commands]


def _compared(name: str, outcome: Outcome, address: str, home: Path) -> list[str]:
    """Return what of an outcome has to be equal on both sides; its lines have no order in Java."""
    thrown, printed = outcome
    text = f"{thrown or ''}\n{printed}"
    text = _ADDRESS.sub("ADDRESS", text)
    for side in ("theirs", "their-export", "ours", "our-export"):
        text = text.replace(str(home / side), "HOME")
    lines = sorted(line.rstrip() for line in text.splitlines())
    return [line for line in map(_MASKS.get(name, str), lines) if line]


def _same_keys(line: str) -> str:
    """Keep the key of a setting or figure, and the value where it is the same on any machine."""
    key, mark, value = line.partition("=" if "  =" in line else ":")
    if _key_of(key) == "getTransferredTps":  # 5.3.3's spelling: 4.9.3 has getTransferedTps alone
        return ""
    return f"{key.strip()} {mark} {'' if _key_of(key) in _VOLATILE else value.strip()}"


def _key_of(text: str) -> str:
    return text.rsplit(maxsplit=1)[-1] if text.split() else ""


def _cluster(line: str) -> str:
    """Keep the names; rates and the age of the first message follow."""
    return " ".join(line.split()[:4]) if line.startswith("DefaultCluster") else line


def _totals(line: str) -> str:
    return " ".join(line.split()[:2]) if line.startswith("DefaultCluster") else line


def _route(line: str) -> str:
    """A name server tells of orderly topics only where its settings say so; ours always does."""
    return "" if "orderTopicConf" in line else line


def _sent(line: str) -> str:
    """Keep what is not of this one message; ids have another process and time."""
    return _ID.sub("ID", line)


def _found(line: str) -> str:
    """Each side writes the body of a message to a file, of a name with the time."""
    return "" if line.startswith("Message Body Path") else line


_ADDRESS = re.compile(r"\b127\.0\.0\.1:[0-9]+|/127\.0\.0\.1:[0-9]+")
_ID = re.compile(r"\b[0-9A-F]{32,56}\b")
_TIME = re.compile(r"\b(?:[0-9]{13}|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8})\b")
_MASKS: dict[str, Callable[[str], str]] = {
    "clusterList": _cluster,
    "clusterList -m": _totals,
    "brokerStatus": _same_keys,
    "getBrokerConfig": _same_keys,
    "getNamesrvConfig": _same_keys,
    "topicRoute": _route,
    "sendMessage": _sent,
}
# Of this machine, this moment or this process; and what differs between a broker and us.
_VOLATILE = frozenset(
    (
        *("bootTimestamp", "commitLogDirCapacity", "commitLogDiskRatio", "consumeQueueDiskRatio"),
        *("dispatchBehindBytes", "dispatchMaxBuffer", "earliestMessageTimeStamp", "getFoundTps"),
        *("getMissTps", "getTotalTps", "getTransferedTps", "getMessageEntireTimeMax", "putTps"),
        *("putMessageAverageSize", "putMessageDistributeTime", "putMessageEntireTimeMax"),
        *("putMessageSizeTotal", "putMessageTimesTotal", "runtime", "remainHowManyDataToFlush"),
        *("msgPutTotalTodayNow", "commitLogDiskRatio_HOME/commitlog", "configStorePath"),
        *("kvConfigPath", "listenPort", "orderMessageEnable", "cleanFileForciblyEnable"),
        *("fileReservedTime", "osPageCacheBusyTimeOutMills", "storePathCommitLog"),
        *("transactionCheckInterval", "bitMapLengthConsumeQueueExt"),
    )
)


@pytest.fixture(scope="module")
def sides(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    home = tmp_path_factory.mktemp("mqadmin")
    archives.unpack(STORES / "broker-clean.tar.xz", home)
    store = home / "broker-clean" / "store"
    deliver_nothing(store)  # while both are compared
    made = Sides(home, store)
    for _ in range(100):  # a broker has no figures before its first sample, after a second
        if made.theirs(["brokerStatus -b {broker}"])[0][0] is None:
            break
        time.sleep(0.1)
    yield made
    made.close()


def _compare(sides: Sides, text: str, **given: str) -> int:
    """Run commands on both sides; return how many printed the same."""
    commands = text.strip().splitlines()
    theirs, ours = sides.theirs(commands, **given), sides.ours(commands, **given)
    return _equal(sides, commands, theirs, ours)


def _equal(sides: Sides, commands: list[str], theirs: list[Outcome], ours: list[Outcome]) -> int:
    """Compare what commands printed; return how many there were."""
    assert sides.server is not None
    wrong = []
    for command, their, our in zip(commands, theirs, ours, strict=True):
        name = command if command in _MASKS else command.split()[0]
        expected = _compared(name, their, sides.address, sides.home)
        found = _compared(name, our, sides.server.address, sides.home)
        if expected != found:
            wrong.append(command)
            wrong += difflib.unified_diff(expected, found, "real", "ours", "", "", 0, "")
    assert not wrong, "\n".join(wrong)
    return len(commands)


def test_commands_that_read(sides: Sides, compared: Callable[[str, int], None]) -> None:
    compared("mqadmin commands", _compare(sides, READING))


def test_commands_that_change(sides: Sides, compared: Callable[[str, int], None]) -> None:
    compared("mqadmin commands", _compare(sides, CHANGING))


def test_commands_that_use_messages(sides: Sides, compared: Callable[[str, int], None]) -> None:
    sent = (sides.home / "broker-clean" / "sent.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in sent]
    row = [row for row in rows if row[1] == "orders"][5]
    compared("mqadmin commands", _compare(sides, USING, uniq=row[4], id=row[5]))


def test_commands_about_consumers(sides: Sides, compared: Callable[[str, int], None]) -> None:
    """With a push consumer and a producer of the real client connected, to each in turn."""
    commands = LIVE.strip().splitlines()
    outcomes = []
    assert sides.server is not None
    for run, namesrv in ((sides.theirs, sides.names), (sides.ours, sides.server.address)):
        sides.broker.connect(namesrv, "orders-group", "orders", "live-producer", "live")
        try:
            outcomes.append(run(commands))
        finally:
            sides.broker.disconnect()
    assert [thrown for thrown, _ in outcomes[1]] == [None] * len(commands)
    for each in outcomes:
        each[:] = [(thrown, _TIME.sub("TIME", printed)) for thrown, printed in each]
    compared("mqadmin commands", _equal(sides, commands, *outcomes))


def test_exported_metadata_is_the_same(sides: Sides) -> None:
    commands = ["exportMetadata -c DefaultCluster -f {dir}"]
    assert sides.theirs(commands)[0][0] is None
    assert sides.ours(commands)[0][0] is None
    theirs, ours = (
        json.loads((sides.home / name / "metadata.json").read_text())
        for name in ("their-export", "our-export")
    )
    for exported in (theirs, ours):
        del exported["exportTime"]
    assert theirs["topicConfigTable"]
    for table in theirs:
        assert ours[table] == theirs[table]


def test_a_reset_reaches_a_consumer_of_the_real_client(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It suspends itself for ten seconds, commits the offsets that it was told, and reads anew."""
    server = sides.server
    assert server is not None
    # Commits of what is known already would end in the core, and not be noted here.
    monkeypatch.setattr(server.gateway.shared, "hot_sends", False)
    sides.broker.connect(server.address, "reset-group", "batched", "reset-producer", "reset")
    committed: list[tuple[int, int]] = []
    handlers = server.gateway.handlers
    commit = handlers[15]

    def noted(connection: Connection, request: Request) -> Handled:
        if request.fields["consumerGroup"] == "reset-group":
            fields = request.fields
            committed.append((int(fields["queueId"]), int(fields["commitOffset"])))
        return commit(connection, request)

    handlers[15] = noted

    def wait_for(offsets: dict[int, int]) -> None:
        until = time.monotonic() + 60
        while not set(offsets.items()) <= set(committed):
            assert time.monotonic() < until, committed
            time.sleep(0.05)

    ends = {queue_id: server.store.queue_bounds("batched", queue_id)[1] for queue_id in range(4)}
    wait_for(ends)
    committed.clear()
    [(thrown, printed)] = sides.ours(["consumerStatus -g reset-group -i 192.0.2.1@reset"])
    assert thrown is None
    assert re.search(r"^batched +broker-a +0 +ProcessQueueInfo", printed, re.MULTILINE), printed
    command = ["resetOffsetByTime -g reset-group -t batched -s 0"]
    [(thrown, printed)] = sides.ours(command)
    assert thrown is None
    assert len(re.findall(r"^broker-a +[0-3] +0 *$", printed, re.MULTILINE)) == 4, printed
    wait_for(dict.fromkeys(range(4), 0))


def test_a_topic_deleted_by_mqadmin_stays_deleted(java: None, tmp_path: Path) -> None:
    """4.9.3 has it back after a restart."""
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=StoreConfig.small()) as store:
        store.create_topic("gone", 2)
        store.put("gone", b"1")
    with Broker() as commands:
        with Server(path, Settings(), StoreConfig.small()) as server:
            given = {"broker": server.address}
            command = ["deleteTopic -c DefaultCluster -t gone"]
            assert commands.admin(server.address, _words(command, given))[0][0] is None
            assert "gone" not in server.store
        with Server(path, Settings(), StoreConfig.small()) as server:
            [(thrown, _)] = commands.admin(server.address, [["topicRoute", "-t", "gone"]])
            assert thrown is not None
            assert "CODE: 17" in thrown
            assert "gone" not in server.store
