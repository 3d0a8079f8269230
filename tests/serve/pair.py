"""The real servers and ours, with Java clients of each: answers to the same requests compared."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from typing import Any

from serve.javaclients import FOUR, JavaClients
from serve.transcripts import Transcript

QUIET = 0.1  # seconds that the last frames have after a scenario's end


class Pair:
    """Both servers, and clients of each in processes of their own.

    Parameters
    ----------
    makers : callables
        They make the servers, the real ones first.
    """

    def __init__(self, *makers: Callable[[], Any]) -> None:
        self.made: list[Any] = []
        self.pool = ThreadPoolExecutor(2)
        self._clients: dict[tuple[str, ...], list[JavaClients]] = {}
        try:
            self.servers = [self.keep(each) for each in self.pool.map(lambda make: make(), makers)]
        except BaseException:
            self.close()
            raise

    def keep(self, one: Any) -> Any:
        self.made.append(one)
        return one

    def close(self) -> None:
        for one in reversed(self.made):
            one.__exit__()
        self.pool.shutdown()

    def clients(self, flags: tuple[str, ...]) -> list[JavaClients]:
        """Return the clients of each server with these system properties."""
        if flags not in self._clients:
            self._clients[flags] = [self.keep(JavaClients(FOUR, flags)) for _ in self.servers]
        return self._clients[flags]

    def run(
        self, scenario: str, flags: tuple[str, ...] = (), **fields: Any
    ) -> tuple[list[list[list[Any]]], list[Transcript]]:
        """Output of the clients, and frames: of the real servers, and of ours."""
        clients = self.clients(flags)

        def one(n: int) -> tuple[list[list[Any]], Transcript]:
            server = self.servers[n]
            server.recorder.take()
            said = clients[n].run(scenario, server.namesrv, **fields)
            sleep(QUIET)
            frames = server.recorder.take()
            assert not server.recorder.problems, server.recorder.problems
            return said, Transcript(frames)

        done = list(self.pool.map(one, range(2)))
        return [said for said, _ in done], [transcript for _, transcript in done]
