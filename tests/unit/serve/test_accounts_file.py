"""The file of accounts: when it is read, and by whom."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rmqstore.serve.accounts import acl as accounts_file
from support.accounts import TAKEN, Accounts

pytestmark = pytest.mark.pure


@pytest.fixture
def accounts(tmp_path: Path) -> Accounts:
    return Accounts(tmp_path / "plain_acl.yml")


def test_a_change_while_the_file_is_read_for_the_first_time(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = accounts_file._read

    def changed_meanwhile(path: Path) -> Any:
        found = read(path)
        accounts.write(TAKEN["the account"])
        return found

    monkeypatch.setattr(accounts_file, "_read", changed_meanwhile)
    made = accounts_file.Acl.from_file(accounts.path)
    monkeypatch.undo()
    made._looked = float("-inf")
    made.look()
    assert "consumer" not in made._accounts


@pytest.mark.parametrize("later", [None, "the topic"])
def test_accounts_read_in_another_thread_are_taken_in_the_loop(
    accounts: Accounts, later: str | None
) -> None:
    """A request would be checked by those before, and be held to be checked by those after."""
    made = accounts_file.Acl.from_file(accounts.path)
    accounts.write(TAKEN["the account"])

    async def look() -> None:
        pool = ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(pool)
        looking = asyncio.create_task(made.look_aside())
        await asyncio.sleep(0)
        pool.shutdown()  # its thread has ended, and the loop has done nothing meanwhile
        assert (made.version, "consumer" in made._accounts) == (0, True)
        if later is not None:
            accounts.write(TAKEN[later])
            made._looked = float("-inf")
            made.look()
        await looking

    asyncio.run(look())
    assert (made.version, "consumer" in made._accounts) == (1, later is not None)


@pytest.mark.parametrize("text", ["accounts: !!int", "accounts: !!float ''", "a: !!binary 1"])
def test_a_file_of_which_the_parser_fails(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(str(path))):
        accounts_file.Acl.from_file(path)
