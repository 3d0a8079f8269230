"""Java clients with accounts and with TLS, at the real servers and at ours.

Both have the same ``plain_acl.yml`` and the same certificate; what the clients get, and what is
refused to them in which words, is compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.broker import Broker
from serve.javaclients import FIVE, FOUR, JavaClients
from serve.pair import Pair
from serve.servers import OurServer, RealServer
from serve.transcripts import compared, differences, rows

pytestmark = [pytest.mark.interop, pytest.mark.campaign]

TLS = Path(__file__).parents[1] / "data" / "tls"
CERT, KEY = TLS / "cert.pem", TLS / "key.pem"
ACCOUNTS = {"sender-key": "secret-of-sender", "reader-key": "secret-of-reader"}
PLAIN_ACL = f"""
accounts:
- accessKey: sender-key
  secretKey: {ACCOUNTS["sender-key"]}
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - signed=PUB
- accessKey: reader-key
  secretKey: {ACCOUNTS["reader-key"]}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - signed=SUB
  groupPerms:
  - signed-c=SUB
  - signed-pull-c=SUB
"""
# Clients that trust this certificate alone.
TLS_FLAGS = (
    "-Dtls.enable=true",
    "-Dtls.client.authServer=true",
    f"-Dtls.client.trustCertPath={CERT}",
)
EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "


class GuardedBroker(Broker):
    """The real servers with accounts, and with TLS for those who ask for it."""

    def __init__(self, home: Path) -> None:
        conf = home / "conf"
        conf.mkdir(parents=True)
        (conf / "plain_acl.yml").write_text(PLAIN_ACL)
        self.flags = (
            *(flag for flag in type(self).flags if "tls" not in flag),
            "-Dtls.server.mode=permissive",
            "-Dtls.test.mode.enable=false",
            f"-Dtls.server.certPath={CERT}",
            f"-Dtls.server.keyPath={KEY}",
            f"-Drocketmq.home.dir={home}",
        )
        super().__init__()


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("accounts") / "plain_acl.yml"
    path.write_text(PLAIN_ACL)
    return path


@pytest.fixture(scope="module")
def pair(java: None, accounts: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    path = tmp_path_factory.mktemp("guarded")
    made = Pair(
        lambda: RealServer(
            path / "real",
            broker_config={"aclEnable": True},
            broker=lambda: GuardedBroker(path / "home"),
        ),
        lambda: OurServer(path / "ours", acl=accounts, tls=(CERT, KEY)),
    )
    yield made
    made.close()


def refusals(said: list[list[Any]]) -> dict[str, tuple[int, str]]:
    """Return code and remark of refusals."""
    return {row[1]: (row[3], row[4]) for row in said if row[0] == "error"}


def check(real: list[list[Any]], ours: list[list[Any]]) -> None:
    """Compare with the real servers, but for batches, which these do not check."""
    batch = refusals(real).pop("a batch"), refusals(ours).pop("a batch")
    assert batch == ((0, "SEND_OK"), (1, f"{EXCEPTION}No default permission for topic:others"))
    there, here = ([row for row in said if row[1] != "a batch"] for said in (real, ours))
    assert rows(here) == rows(there)
    refused = refusals(here)
    assert all(code == 1 for what, (code, _) in refused.items() if "administrator" not in what)
    assert {what: words for what, (_, words) in refused.items() if words.startswith(EXCEPTION)} == {
        "a topic of others": f"{EXCEPTION}No default permission for topic:others",
        "read by a sender": f"{EXCEPTION}No default permission for topic:signed",
        "sent by a reader": f"{EXCEPTION}No default permission for topic:signed",
        "a group of others": f"{EXCEPTION}No default permission for group:signed-denied-c",
        "a wrong secret": f"{EXCEPTION}Check signature failed for accessKey=sender-key",
        "nobody's key": f"{EXCEPTION}No acl config for nobody",
    }
    assert len([row for row in here if row[:2] == ["got", "signed"]]) >= 4
    assert len([row for row in here if row[0] == "sent"]) == 5


def test_signed_and_refused_as_at_the_real_servers(pair: Pair) -> None:
    said, transcripts = pair.run("accounts", accounts=ACCOUNTS)
    check(*said)
    # Heartbeats of pull consumers come when a second has passed, wherever the scenario is then.
    found = differences(*transcripts, ordered=False)
    assert [each.startswith('["client", "320"') for each in found] == [True], "\n".join(found)
    assert compared(*transcripts) >= 3
    assert {"client 310", "client 11", "client 17", "client 34"} <= transcripts[1].kinds


def test_the_same_with_tls(pair: Pair) -> None:
    said, transcripts = pair.run("accounts", accounts=ACCOUNTS, flags=TLS_FLAGS)
    check(*said)
    for server, transcript in zip(pair.servers, transcripts, strict=True):
        assert server.recorder.encrypted >= 3
        assert not transcript.kinds


@pytest.mark.parametrize("version", [FOUR, FIVE])
def test_strangers_are_told_no_routes(
    java: None, accounts: Path, tmp_path: Path, version: str
) -> None:
    """The real name server answers everybody, and the broker refuses their sends."""
    with OurServer(tmp_path / "store", acl=accounts) as server, JavaClients(version) as clients:
        refused = refusals(clients.run("strangers", server.namesrv))
        assert set(refused) == {"unsigned", "wrongly signed"}
        assert all(re.match("No route info of this topic", words) for _, words in refused.values())
        answers = {f.remark for f in server.recorder.take() if f.is_answer and f.code == 1}
        assert answers == {
            f"{EXCEPTION}No accessKey is configured",
            f"{EXCEPTION}Check signature failed for accessKey=sender-key",
        }
        assert "signed" not in server.server.store.topics


def test_java_5_3_3_signs_with_tls(java: None, accounts: Path, tmp_path: Path) -> None:
    with (
        OurServer(tmp_path / "store", acl=accounts, tls=(CERT, KEY)) as server,
        JavaClients(FIVE, TLS_FLAGS) as clients,
    ):
        said = clients.run("accounts", server.namesrv, accounts=ACCOUNTS)
        assert server.recorder.encrypted >= 3
        assert not server.recorder.take()
    assert refusals(said)["a wrong secret"] == (
        1, f"{EXCEPTION}Check signature failed for accessKey=sender-key",
    )  # fmt: skip
    assert {row[2]["status"] for row in said if row[0] == "sent"} == {"SEND_OK"}
    assert len([row for row in said if row[:2] == ["got", "signed"]]) >= 4
