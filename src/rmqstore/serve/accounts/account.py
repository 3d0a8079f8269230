"""Accounts of a ``plain_acl.yml``, and callers of requests.

Source: ``acl/plain/PlainAccessResource.java``, ``acl/common/Permission.java``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqstore.serve.accounts.addresses import AddressRule

__all__ = ["DENY", "Account", "Caller"]

DENY = 1  # Permission


@dataclass(frozen=True, slots=True)
class Account:
    """Account of an access key."""

    access_key: str
    secret_key: str
    white: AddressRule  # addresses that need no signature
    admin: bool = False
    default_topic: int = DENY  # permission for topics not named
    default_group: int = DENY  # permission for groups not named
    # Permissions by topic; groups by retry topic.
    named: Mapping[str, int] = field(default_factory=dict)


class Caller(NamedTuple):
    """Caller of a request that is answered later: the account as of then, None without one."""

    host: str
    account: Account | None = None
