"""A file of accounts that a test changes, and what takes a permission away."""

from __future__ import annotations

import os
from pathlib import Path

from rmqstore.serve.server import Server

__all__ = ["BEFORE", "TAKEN", "WHITE", "Accounts"]

GROUPS = "    groupPerms: [g=SUB, other=SUB, shop=PUB|SUB]\n"
ACCOUNT = (
    "  - accessKey: consumer\n    secretKey: 12345678\n    defaultTopicPerm: DENY\n"
    "    topicPerms: [t=PUB|SUB, new=PUB]\n" + GROUPS
)
BESIDE = (
    "  - accessKey: beside1\n    secretKey: 12345678\n    defaultTopicPerm: PUB|SUB\n"
    "    defaultGroupPerm: PUB|SUB\n"
)
ADMIN = "  - accessKey: operator\n    secretKey: 12345678\n    admin: true\n"
BEFORE = "accounts:\n" + ACCOUNT + BESIDE + ADMIN
WHITE = "globalWhiteRemoteAddresses: [127.0.0.1]\n"
# What takes the account's right to read "t" for "g".
TAKEN = {
    "the topic": BEFORE.replace("t=PUB|SUB", "t=DENY"),
    "reading": BEFORE.replace("t=PUB|SUB", "t=PUB"),
    "the group": BEFORE.replace("g=SUB", "g=DENY"),
    "the account": "accounts:\n" + BESIDE + ADMIN,
    "the secret": BEFORE.replace("12345678", "87654321", 1),
}


class Accounts:
    """The file of a server, and when the server looks at it: only when a test says so."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.server: Server
        self._version = 0
        self.write(BEFORE)

    def write(self, text: str) -> None:
        self._version += 1
        self.path.write_text(text)
        os.utime(self.path, ns=(self._version, self._version))

    def read(self) -> None:
        """Have the file read, while nothing that waits is ended."""
        acl = self.server.gateway.settings.acl
        assert acl is not None

        def look() -> None:
            acl._looked = float("-inf")
            acl.look()

        self.server.in_loop(look)

    def change(self, text: str) -> None:
        self.write(text)
        self.read()
