"""Random transactions of a producer over the wire, checks, restarts and kills: a plain model."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore import _core
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.settings import Settings
from rmqstore.services.stored import MAX_TIME_TOPIC
from support.remoting import RemotingClient

END, CHECK = 37, 39
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
MOST = 3  # checks
CONFIG = StoreConfig.small().replace(
    transaction_timeout=0, transaction_check_interval=86_400_000, transaction_check_max=MOST
)
NUMBER = st.integers(0, 5)
STEP = st.one_of(
    st.tuples(st.just("begin"), st.booleans()),
    st.tuples(st.just("commit"), NUMBER),
    st.tuples(st.just("rollback"), NUMBER),
    st.tuples(st.just("unknown"), NUMBER),
    st.tuples(st.just("again"), NUMBER),
    st.tuples(st.just("check"), st.lists(st.sampled_from([COMMIT, ROLLBACK, UNKNOWN]), max_size=5)),
    st.tuples(st.just("reopen"), st.none()),
    st.tuples(st.just("kill"), st.none()),
)


@dataclass
class Modelled:
    """A transaction, and each name that a producer has for it: pairs of offsets."""

    body: bytes
    names: list[tuple[int, int]]
    checks: int = 0
    state: str = "open"
    keyed: bool = False


@dataclass
class Run:
    """A server over a store, and what must be in it."""

    root: Path
    all: list[Modelled] = field(default_factory=list)
    committed: list[bytes] = field(default_factory=list)
    copies: int = 0

    def open(self) -> None:
        self.server = Server(self.root, Settings(), CONFIG)
        self.client = RemotingClient(self.server.address)
        heartbeat = {"clientID": "c", "producerDataSet": [{"groupName": "p"}]}
        assert self.client.ask(34, None, json.dumps(heartbeat).encode()).code == 0

    def close(self) -> None:
        self.client.close()
        self.server.close()
        for one in self.all:
            if not one.keyed:  # an older copy of such a one is not known for one after a restart
                del one.names[:-1]

    def open_ones(self) -> list[Modelled]:
        return [one for one in self.all if one.state == "open"]

    def begin(self, keyed: bool) -> None:
        body = b"%d" % len(self.all)
        properties = {"PGROUP": "p", "TRAN_MSG": "true"}
        if keyed:
            properties["UNIQ_KEY"] = f"KEY{len(self.all)}"
        done = self.server.store.transactions.put_half(
            "t", len(self.all) % 2, body, properties, born_timestamp=1_000_000 + len(self.all)
        )
        self.all.append(Modelled(body, [(done.queue_offset, done.physical_offset)]))
        self.all[-1].keyed = keyed

    def end(self, one: Modelled, how: int, name: tuple[int, int]) -> None:
        fields: dict[str, object] = {
            "producerGroup": "p", "tranStateTableOffset": name[0], "commitLogOffset": name[1],
            "commitOrRollback": how, "msgId": "x",
        }  # fmt: skip
        if how == UNKNOWN:
            self.client.tell(END, fields)
            return
        assert self.client.ask(END, fields).code == 0
        if one.state == "open":
            one.state = "committed" if how == COMMIT else "rolled back"
            if how == COMMIT:
                self.committed.append(one.body)

    def check(self, answers: list[int]) -> None:
        asked = [one for one in self.open_ones() if one.checks < MOST]
        for one in self.open_ones():
            if one.checks >= MOST:
                one.state = "given up"
        self.server.store.transaction_checks.check()
        by_body = {one.body: one for one in asked}
        for number in range(len(asked)):
            request = self.client.next_request(CHECK)
            assert request.fields is not None
            message = _core.decode_record(request.body)
            one = by_body.pop(message.body)
            one.checks += 1
            assert message.properties["TRANSACTION_CHECK_TIMES"] == str(one.checks)
            name = (
                int(request.fields["tranStateTableOffset"]), int(request.fields["commitLogOffset"])
            )  # fmt: skip
            one.names.append(name)
            self.end(one, answers[number] if number < len(answers) else UNKNOWN, name)
        assert not by_body

    def kill(self) -> None:
        """Go on with a copy as a kill leaves it."""
        self.copies += 1
        copy = Path(f"{self.root}.{self.copies}")
        self.server.store.flush()
        shutil.copytree(self.root, copy)
        self.close()
        self.root = copy
        self.open()

    def settle(self) -> None:
        store = self.server.store
        assert sorted(message.body for message in store.scan("t")) == sorted(self.committed)
        doubtful = {one.message.body: one.checks for one in store.in_doubt()}
        assert doubtful == {one.body: one.checks for one in self.open_ones()}
        given_up = [one.body for one in self.all if one.state == "given up"]
        assert sorted(message.body for message in store.scan(MAX_TIME_TOPIC)) == sorted(given_up)


@settings(deadline=None, max_examples=10)
@given(st.lists(STEP, min_size=5, max_size=30))
def test_none_is_lost_and_none_is_committed_twice(steps: list[tuple]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run = Run(Path(directory, "s"))
        run.open()
        try:
            for kind, value in steps:
                if kind in ("commit", "rollback", "unknown"):
                    ones = run.open_ones()
                    if value < len(ones):
                        how = {"commit": COMMIT, "rollback": ROLLBACK, "unknown": UNKNOWN}[kind]
                        # By the newest name, or by the first, as a late word does.
                        run.end(ones[value], how, ones[value].names[-(value % 2)])
                elif kind == "again":
                    ended = [one for one in run.all if one.state != "open"]
                    if value < len(ended):
                        run.end(ended[value], COMMIT, ended[value].names[-1])
                elif kind == "begin":
                    run.begin(value)
                elif kind == "check":
                    run.check(value)
                elif kind == "kill":
                    run.kill()
                else:
                    run.close()
                    run.open()
                run.settle()
        finally:
            run.close()
