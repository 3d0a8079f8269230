"""Access control: accounts of a ``plain_acl.yml``, and the signatures of their requests.

4.9.3 checks ten kinds of requests; here every kind is checked (``aclresources.py``), including
batches and requests to the name server.  A signature carries no time: an eavesdropper can replay a
request, which TLS prevents.

Source: ``acl/plain/PlainAccessValidator.java``, ``PlainPermissionManager.java``,
``acl/common/AclUtils.java``, ``AclSigner.java``, ``Permission.java``.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqstore.base.arguments import shown
from rmqstore.base.warn import log_warning
from rmqstore.files import paths
from rmqstore.serve.accounts.account import DENY, Account, Caller
from rmqstore.serve.accounts.aclresources import FREE, RESOURCES, Resource, resources_of
from rmqstore.serve.accounts.addresses import AddressRule
from rmqstore.serve.stored_records import OF_ALL_TOPICS
from rmqstore.serve.wire.codes import ResponseCode
from rmqstore.serve.wire.frames import Refusal, Request

if TYPE_CHECKING:
    from rmqstore.store import MessageStore

__all__ = ["LOOK_SECONDS", "Acl"]

_PUB, _SUB = 4, 8  # Permission
_PERMISSIONS = {
    "DENY": DENY, "PUB": _PUB, "SUB": _SUB, "PUB|SUB": _PUB | _SUB, "SUB|PUB": _PUB | _SUB,
}  # fmt: skip
_MIN_LENGTH = 7  # of access and secret keys
LOOK_SECONDS = 1.0  # between checks of the file for changes
_NOT_SIGNED = frozenset(("Signature", "_UNIQUE_KEY_QUERY"))
_SHORT_FILE = 4 << 10  # bytes read in the loop: a thousand accounts take a second
_EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "


class _FileVersion(NamedTuple):
    """State of a file; a different one means a new version."""

    modified: int  # ns
    changed: int  # ns
    size: int
    inode: int


class Acl:
    """Accounts of a file, reread when it changes."""

    def __init__(
        self,
        accounts: Iterable[Account],
        white: Iterable[AddressRule] = (),
        *,
        path: Path | None = None,
        version: _FileVersion | None = None,
    ) -> None:
        self._accounts = {account.access_key: account for account in accounts}
        self._white = tuple(white)
        self._path = path
        self.version = 0  # number of changes
        self._looked = time.monotonic()
        self._file = version

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Acl:
        """Read a ``plain_acl.yml``; errors name the file.

        ``OSError`` if it is unreadable, ``ValueError`` if it is not YAML or has an invalid value,
        ``ImportError`` without PyYAML, of the extra ``serve``.
        """
        version = _version_of(Path(path))  # before reading, so that later changes are noticed
        return cls(*_read(Path(path)), path=Path(path), version=version)

    def check(
        self, peer: str, request: Request, store: MessageStore, *, is_handled: bool
    ) -> Caller:
        """Return the caller of a request from ``ip:port``; ``Refusal`` if it is not allowed.

        A request without a handler needs only a signature, as it is unsupported anyway. As from a
        broker, a refusal has code 1, and a remark that begins with its exception's name.
        """
        self.look()
        host = peer.rpartition(":")[0].strip("[]")
        if self._is_white(host):
            return Caller(host)
        key = request.fields.get("AccessKey")
        if not key:
            raise _refusal("No accessKey is configured")
        account = self._accounts.get(key)
        if account is None:
            raise _refusal(f"No acl config for {shown(key).strip(chr(39))}")
        if not account.white.matches(host) and not _is_signed(account.secret_key, request):
            raise _refusal(f"Check signature failed for accessKey={key}")
        if is_handled:
            self._check_permission(account, request, store)
        return Caller(host, account)

    def _check_permission(self, account: Account, request: Request, store: MessageStore) -> None:
        if request.code not in RESOURCES and request.code not in FREE and not account.admin:
            raise _refusal(
                f"Need admin permission for request code={request.code}, "
                f"but accessKey={account.access_key} is not"
            )
        if _may_all(account):
            return
        for resource in resources_of(request, store):
            if not _has(account, resource):
                kind = "group" if resource.is_group else "topic"
                raise _refusal(f"No default permission for {kind}:{resource.name}")

    def allows(self, caller: Caller, *resources: Resource) -> bool:
        """Whether a caller is still authenticated, with permission for these resources.

        The account must still exist, with the secret that the request was signed with or exempt
        from signatures; an address that was exempt must still be.
        """
        if self._is_white(caller.host):
            return True
        before = caller.account
        account = self._accounts.get(before.access_key) if before is not None else None
        if before is None or account is None:
            return False
        has_signed = not before.white.matches(caller.host)  # else no signature was checked
        if not (has_signed and account.secret_key == before.secret_key) and not (
            account.white.matches(caller.host)
        ):
            return False
        return _may_all(account) or all(_has(account, one) for one in resources)

    def _is_white(self, host: str) -> bool:
        return any(rule.matches(host) for rule in self._white)

    def look(self) -> None:
        """Reread a short file if it has changed; an invalid one leaves the accounts unchanged."""
        now = time.monotonic()
        if self._path is None or now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        found = _version_of(self._path)
        if found != self._file and (found is None or found.size <= _SHORT_FILE):
            self._take(found, partial(_read, self._path))

    @property
    def is_outdated(self) -> bool:
        """Whether the file has changed but, after :meth:`look`, is too long for it."""
        return self._path is not None and _version_of(self._path) != self._file

    async def look_aside(self) -> None:
        """Do as :meth:`look` in another thread; accounts change in the loop, between requests."""
        assert self._path is not None
        before, found = self._file, _version_of(self._path)
        reading = asyncio.get_running_loop().run_in_executor(None, _read, self._path)
        await asyncio.wait((reading,))
        if self._file is before:  # else a later version was read
            self._take(found, reading.result)

    def _take(
        self,
        found: _FileVersion | None,
        read: Callable[[], tuple[list[Account], tuple[AddressRule, ...]]],
    ) -> None:
        """Apply the accounts of a version of the file, if valid."""
        self._file = found
        try:
            accounts, self._white = read()
        except (OSError, ValueError) as error:
            log_warning("the accounts stay as they were: %s", error)
            return
        self._accounts = {account.access_key: account for account in accounts}
        self.version += 1


def _refusal(why: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, _EXCEPTION + why)


def _may_all(account: Account) -> bool:
    return account.admin and not account.named


def _has(account: Account, resource: Resource) -> bool:
    owned = _owned_group(account, resource.name) if resource.is_group else _owned(account, resource)
    return not owned & DENY and owned & (_PUB if resource.is_written else _SUB) != 0


def _owned_group(account: Account, name: str) -> int:
    return account.named.get(paths.retry_topic(name), account.default_group)


def _owned(account: Account, topic: Resource) -> int:
    """Return an account's permission for a topic.

    The default permission for topics excludes other accounts' messages: those waiting for a time
    or a commit, and dead letters of other groups.
    """
    named = account.named.get(topic.name)
    if named is not None:
        return named
    if topic.name in OF_ALL_TOPICS:
        return DENY
    prefix = paths.dead_letter_topic("")
    if topic.name.startswith(prefix):
        group = Resource(topic.name[len(prefix) :], is_group=True)
        return account.default_topic if _has(account, group) else DENY
    return account.default_topic


def _is_signed(secret: str, request: Request) -> bool:
    """Whether the signature matches the fields and the body; in constant time."""
    fields = request.fields
    signed = "".join(fields[name] for name in sorted(fields) if name not in _NOT_SIGNED)
    made = hmac.new(
        secret.encode(), signed.encode("utf-8", "surrogatepass") + bytes(request.body), hashlib.sha1
    )
    given = fields.get("Signature", "").encode("utf-8", "surrogatepass")
    return hmac.compare_digest(base64.b64encode(made.digest()), given)


def _version_of(path: Path) -> _FileVersion | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return _FileVersion(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


# The file


def _read(path: Path) -> tuple[list[Account], tuple[AddressRule, ...]]:
    try:
        import yaml
    except ImportError:
        raise ImportError(f"{path}: reading it needs PyYAML: pip install PyYAML") from None
    content = path.read_bytes()
    try:
        data = yaml.safe_load(content) or {}
    except Exception as error:  # PyYAML raises anything for some values, such as an empty "!!int"
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from None
    try:
        if not isinstance(data, dict):
            raise ValueError(f"it holds {type(data).__name__}, must be a mapping")
        white = tuple(
            AddressRule(str(rule)) for rule in _list_of(data, "globalWhiteRemoteAddresses")
        )
        accounts = [_account(entry) for entry in _list_of(data, "accounts")]
        if not accounts and not white:
            raise ValueError("it has neither accounts nor globalWhiteRemoteAddresses")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return accounts, white


def _list_of(data: Mapping[str, Any], name: str) -> list[Any]:
    found = data.get(name) or []
    if not isinstance(found, list):
        raise ValueError(f"{name} is {type(found).__name__}, must be a list")
    return found


def _account(entry: Any) -> Account:
    if not isinstance(entry, dict):
        raise ValueError(f"an account is {type(entry).__name__}, must be a mapping")
    key, secret = (str(entry.get(name) or "") for name in ("accessKey", "secretKey"))
    if len(key) < _MIN_LENGTH or len(secret) < _MIN_LENGTH:
        raise ValueError(
            f"accessKey {key!r} and its secretKey must each be at least {_MIN_LENGTH} characters"
        )
    named = dict(_permissions(entry, "topicPerms", key))
    groups = _permissions(entry, "groupPerms", key)
    named.update((paths.retry_topic(name), permission) for name, permission in groups)
    return Account(
        key,
        secret,
        AddressRule(str(entry.get("whiteRemoteAddress") or "")),
        _is_admin(entry, key),
        _permission(entry.get("defaultTopicPerm", "DENY"), key),
        _permission(entry.get("defaultGroupPerm", "DENY"), key),
        named,
    )


def _is_admin(entry: Mapping[str, Any], key: str) -> bool:
    admin = entry.get("admin", False)
    if not isinstance(admin, bool):
        raise ValueError(f"account {key!r}: admin is {admin!r}, must be true or false")
    return admin


def _permissions(entry: Mapping[str, Any], name: str, key: str) -> list[tuple[str, int]]:
    found = []
    for item in _list_of(entry, name):
        resource, equals, permission = str(item).partition("=")
        if not equals:
            raise ValueError(f"account {key!r}: {name} has {item!r}, must be NAME=PERMISSION")
        found.append((resource.strip(), _permission(permission, key)))
    return found


def _permission(text: object, key: str) -> int:
    found = _PERMISSIONS.get(str(text).replace(" ", ""))
    if found is None:
        allowed = ", ".join(_PERMISSIONS)
        raise ValueError(f"account {key!r}: a permission is {text!r}, must be one of {allowed}")
    return found
