"""Connection of a client: its frames, its answers, and our requests to it.

Source: ``remoting/netty/NettyRemotingAbstract.java``, ``NettyRemotingServer.java``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from rmqstore.serve.network.durable import LateAnswers
from rmqstore.serve.network.sockets import address_text, unmapped
from rmqstore.serve.network.tls import write_in_parts
from rmqstore.serve.network.turns import SHARE_SECONDS, Steps
from rmqstore.serve.wire.codes import ResponseCode
from rmqstore.serve.wire.frames import (
    LARGE_HEADER,
    Answer,
    FrameReader,
    Request,
    encode_answer_to,
    encode_request,
    leaves_memory,
    renewed,
)

if TYPE_CHECKING:
    from rmqstore._core import ClientSends
    from rmqstore.serve.accounts.account import Caller
    from rmqstore.serve.network.busypoll import BusyPoll
    from rmqstore.serve.network.connections import Connections
    from rmqstore.serve.network.durable import DurableAnswers
    from rmqstore.serve.network.work import Work
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.shares import Owners

__all__ = ["Connection", "Shared"]

_MAX_UNANSWERED = 64  # requests answered later; at this number no more are read
_UNANSWERED_BUFFERS = 4  # their bytes, in write buffers: room for a whole frame
_COUNTED_SECONDS = SHARE_SECONDS / 4  # shorter handling is not charged to the turn
_SHORT = 4 << 10  # bytes; such answers go even to a client that does not read


@dataclass(slots=True)
class Shared:
    """Collaborators of all connections of a gateway."""

    settings: Settings
    work: Work
    connections: Connections[Connection]
    sends: ClientSends  # plain sends, handled by the core
    durable: DurableAnswers
    busy_poll: BusyPoll
    dispatch: Callable[[Connection, Request], object]
    resumed: Callable[[Connection], object]  # called when a client reads again
    # The core handles plain sends (310, 10, 320), and commits that change nothing (oneway 15). If
    # false, every request goes through ``dispatch``, as access control and faults of tests require.
    # May change at any time.
    hot_sends: bool


class Connection(asyncio.BufferedProtocol):
    """Connection of a client; used only in the loop."""

    def __init__(self, shared: Shared, origin: str) -> None:
        self._shared = shared
        self.origin = origin  # owner charged without an account; see :func:`origin_of`
        self.peer = ""  # ``ip:port`` of the client, the born host of its messages
        self.dialled = ("127.0.0.1", 0)  # address that the client used to reach us
        self.store_host = ""  # ``ip:port`` in records
        self.client_id: str | None = None  # of its last heartbeat
        self.caller: Caller | None = None  # of its last request, where there are accounts
        self.language, self.version = "OTHER", 0  # of its last request
        self.last_used = shared.work.loop.time()  # loop's time of the last complete frame
        self.kept = 0  # bytes of frames that are incomplete or wait, and of requests answered later
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(Request)
        self.has_tls = False
        self._counted = False  # unread bytes exceed the uncounted first ones
        self._full = False  # the client reads its answers too slowly
        self._noticed = 0  # bytes of notices sent beyond its room
        self._missed = 0  # bytes of notices dropped
        self._over = False  # other connections of its owner are read first
        self._ceased = self._paused = False  # the gateway stops; nothing is read
        self._late = LateAnswers(self, shared.durable)
        self._most_late = 0  # bytes of late answers at which no more requests are read
        # Bytes of requests answered later and of answers waiting for the disk; number of requests.
        self.unanswered = self._unanswered = 0
        self._share_began = 0.0
        self._was_short = True  # the last arrivals took less than a share
        self._turn_awaited = False  # received requests wait for the loop's next turns
        self._long_answer: asyncio.Future[None] | None = None  # the next requests wait behind it
        self._opaque = 0
        self._asked: dict[int, asyncio.Future[Request | str]] = {}  # or the reason for none
        self._waits_for: set[asyncio.Future[Request | str]] = set()  # answers of other clients

    @property
    def address(self) -> tuple[str, int]:
        """Address given to this client in routes and message ids."""
        return self._shared.settings.advertise or self.dialled

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._most_late = self._shared.settings.limits.write_buffer
        self._transport.set_write_buffer_limits(high=self._shared.connections.unread.own)
        self.has_tls = transport.get_extra_info("sslcontext") is not None
        peer, name = map(transport.get_extra_info, ("peername", "sockname"))
        if not peer or not name or self._shared.connections.stopping:  # closed again, or too late
            self._transport.abort()
            return
        self.peer = address_text(unmapped(str(peer[0])), peer[1])
        self.dialled = (unmapped(str(name[0])), self._shared.settings.port)
        self.store_host = self._shared.connections.store_host(self.dialled)
        self._reader.set_hosts(self.peer, self.store_host)
        self.last_used = self._shared.work.loop.time()
        self._shared.connections.connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return room for the next read; the read counts towards the client's share."""
        self._share_began = perf_counter()
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Handle complete frames."""
        self._reader.received(nbytes)
        self._handle()
        self._shared.busy_poll.came(self)

    def _handle(self) -> None:
        """Handle arrivals up to the client's share, and the rest after the shares of others.

        In a turn of the loop whose shares are used up all of it waits; clients that needed less
        than a share the last time go first.
        """
        turns = self._shared.work.turns
        is_late = turns.is_over and not self._waits
        if not is_late:
            left, spent = self._handle_share(self._share_began)
            if spent >= _COUNTED_SECONDS:
                turns.spend(spent)
            if not left:
                if self._reader.kept:
                    self._pace()  # others may have taken the room that was left
                return
        self._turn_awaited = True
        self._pace()
        turns.requests.add(self._handle_rest(), short=is_late and self._was_short)
        self._note_kept()

    def _handle_rest(self) -> Steps:
        """Handle the rest, one share a step."""
        left = True
        try:
            while left and self.is_open:
                self._turn_awaited = False
                left, _ = self._handle_share(perf_counter())
                self._turn_awaited = left
                self._pace()
                yield
        finally:
            if left:  # an error: as the loop does for one in a callback
                self.abort()

    def _handle_share(self, began: float) -> tuple[bool, float]:
        """Handle arrivals up to a share; return whether some are left, and the seconds spent.

        A client that never completes a frame does not count as active.
        """
        before = self._reader.kept
        left = self._handle_requests(began + SHARE_SECONDS)
        spent = perf_counter() - began
        self._was_short = spent < SHARE_SECONDS
        if self._reader.kept < before:
            self.last_used = self._shared.work.loop.time()
        self._note_kept()
        return left, spent

    def _note_kept(self) -> None:
        frames = self._reader.kept
        kept = frames + self.unanswered
        if kept != self.kept and self.is_open:
            self._shared.connections.kept_frames.note(self, kept, frames)

    def _handle_requests(self, until: float) -> bool:
        """Handle requests while the client reads its answers; return whether some are left."""
        shared, reader = self._shared, self._reader
        left = swollen = False
        kept = reader.kept
        while not left and not self._waits:
            sends = shared.sends if shared.hot_sends else None
            try:
                request: Request | None = reader.take(sends)
            except ValueError as error:
                self._write_answers()
                shared.work.log.warning("%s: closed: %s", self.peer, error)
                self.close()
                return False
            took, kept = kept - reader.kept, reader.kept
            swollen = swollen or (took > LARGE_HEADER and leaves_memory(took, request))
            if request is None:
                break
            self._take(request)
            if not self.is_open:
                break
            left = kept > 0 and perf_counter() >= until
        self._write_answers()
        if swollen:
            self._reader = renewed(reader)
            self._reader.set_hosts(self.peer, self.store_host)
        return left

    def _write_answers(self) -> None:
        """Write the answers to plain sends; with SYNC_FLUSH once they are on the disk."""
        now = self._reader.answers()
        if now:
            self.write(now)
        late = self._reader.late_answers()
        if late is not None:
            self._write_durable(*late)
        elif self._shared.sends.unflushed:
            self._shared.durable.ask()

    def _write_durable(self, stop: int, frames: bytes) -> None:
        """Write answers to sends once the log is on the disk up to ``stop``."""
        if self.is_open:
            self._late.hold(stop, frames)
            self._pace()
        else:
            self._shared.durable.ask()

    def settled(self) -> None:
        """Read on, if requests answered later leave room."""
        self._note_kept()
        self._pace()

    def _take(self, request: Request) -> None:
        if request.is_answer:
            future = self._asked.pop(request.opaque, None)
            if future is not None and not future.done():
                future.set_result(request)
            return
        self.language, self.version = request.language, request.version
        self._shared.dispatch(self, request)

    @property
    def _waits(self) -> bool:
        return (
            self._full
            or self._ceased
            or self._unanswered >= _MAX_UNANSWERED
            or self.unanswered > _UNANSWERED_BUFFERS * self._most_late
            or self._late.size > self._most_late
            or self._turn_awaited
            or (self._long_answer is not None and not self._long_answer.done())
            # A client without waiting requests is read even when others have used up the room.
            or (self.unanswered > 0 and self.unanswered > self._shared.connections.unanswered_room)
        )

    def _pace(self) -> None:
        """Pause reading requests while answers pile up; resume when they drain."""
        if self._transport is None or self._transport.is_closing():
            return
        if (self._over or self._waits) == self._paused:
            return
        self._paused = not self._paused
        if self._paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
            if self._reader.kept:
                self._shared.work.loop.call_soon(self._handle)

    def read_no_further(self, over: bool) -> None:
        """Pause or resume reading, as other connections of its owner are read first."""
        if self._over != over:
            self._over = over
            self._pace()

    def pause_writing(self) -> None:
        """Begin to count the bytes that the client leaves unread."""
        self._counted = True
        self._note_unread()

    def resume_writing(self) -> None:
        """Read on: the client reads its answers again."""
        self._counted = self._full = False
        self._noticed = self._missed = 0
        self._shared.connections.unread.note(self, 0)
        self._shared.resumed(self)
        self._pace()

    def _note_unread(self) -> None:
        """Count the bytes not taken by the client; stop reading requests if they are too many."""
        if self._shared.connections.unread.note(self, self.unwritten):
            self.lacks_room()

    def connection_lost(self, error: Exception | None) -> None:
        """Clean up."""
        self._transport = None
        self._late.forget()
        _give_up(self._asked.values(), f"{self.peer} is gone")
        self._asked.clear()
        _give_up(self._waits_for, f"{self.peer}, which asked, is gone")  # nobody waits for them
        self._shared.connections.disconnected(self)

    # Called by handlers

    @property
    def owners(self) -> Owners:
        """Owners charged for state that ends with the connection."""
        return self.owner, self.peer

    @property
    def owner(self) -> str:
        """Owner charged for state that outlasts the connection: its account, or its address."""
        account = None if self.caller is None else self.caller.account
        return self.origin if account is None else account.access_key

    @property
    def is_writable(self) -> bool:
        """Whether its client reads what is sent."""
        return self.is_open and not self._full

    @property
    def is_open(self) -> bool:
        """Whether it can still be written to."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def unwritten(self) -> int:
        """Bytes that the client has not taken."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    @property
    def is_slow(self) -> bool:
        """Whether the client reads its answers too slowly."""
        return self._full

    def write(self, frames: bytes) -> None:
        """Send frames; nothing happens if the client is gone."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.has_tls:
            write_in_parts(transport, frames)
        else:
            transport.write(frames)
        if self._counted:
            self._note_unread()

    def answer(self, request: Request, answer: Answer) -> None:
        """Answer a request, now or later; oneway requests get no answer.

        A long answer to a client that leaves much unread is replaced by an error.
        """
        if request.oneway:
            return
        size = len(answer.body)
        unread = self._shared.connections.unread
        if size > (_SHORT if self._full else unread.own) and not unread.fits(self, size):
            remark = f"the answer has {size} bytes, and the client has not read earlier ones"
            answer = Answer(ResponseCode.SYSTEM_BUSY, remark)
        self.write(encode_answer_to(request, answer))

    def answer_durable(self, request: Request, answer: Answer, stop: int) -> None:
        """Answer a send once the log is on the disk up to ``stop``; only the answer is kept."""
        if request.oneway:
            self._shared.durable.ask()
        else:
            self._write_durable(stop, encode_answer_to(request, answer))

    def lacks_room(self) -> None:
        """Stop reading requests until the client reads, if it leaves much unread."""
        if self._counted and not self._full:
            self._full = True
            self._pace()

    def notify(self, code: int, fields: Mapping[str, str] | None, body: bytes = b"") -> bool:
        """Send a request that the client does not answer; return whether there is room for it."""
        if not self.is_open:
            return False
        self._opaque += 1
        frame = encode_request(code, fields, body, self._opaque, oneway=True)
        size = len(frame)
        unread = self._shared.connections.unread
        if not unread.has_room(self, size):
            # Actions of others cause notices, whether or not this client reads them.
            if self._noticed + size > unread.own:
                self._missed += size
                if self.unwritten + self._missed > 2 * self._shared.settings.limits.write_buffer:
                    self._shared.work.log.warning(
                        "%s: closed: it does not read what it is sent", self.peer
                    )
                    self.abort()
                return False
            self._noticed += size
        self.write(frame)
        return True

    def ask(
        self,
        code: int,
        fields: Mapping[str, str] | None,
        body: bytes = b"",
        *,
        asker: Connection,
        seconds: float = 10.0,
    ) -> Coroutine[Any, Any, Request]:
        """Send a request; return a coroutine for its answer, which does not keep the body.

        ``ConnectionError`` if the client is gone or does not read, or the asker is gone meanwhile;
        ``TimeoutError`` without an answer in time.
        """
        if not self.is_open:
            raise ConnectionResetError(f"{self.peer} is gone")
        # Requests on behalf of others would pile up here.
        if self._full or not self._shared.connections.unread.has_room(self, len(body)):
            raise ConnectionError(f"{self.peer} does not read what it is sent")
        self._opaque += 1
        future = self._asked[self._opaque] = self._shared.work.loop.create_future()
        self.write(encode_request(code, fields, body, self._opaque, oneway=False))
        asker.ends_with(future)
        return self._answer_of(self._opaque, future, seconds)

    def ends_with(self, future: asyncio.Future[Request | str]) -> None:
        """Give up the wait for another client's answer when this connection is lost."""
        self._waits_for.add(future)
        future.add_done_callback(self._waits_for.discard)

    async def _answer_of(
        self, opaque: int, future: asyncio.Future[Request | str], seconds: float
    ) -> Request:
        try:
            found = await asyncio.wait_for(future, seconds)
        finally:
            self._asked.pop(opaque, None)
        if isinstance(found, str):
            raise ConnectionResetError(found)
        return found

    def waits_alone(self, request: Request, done: asyncio.Future[None]) -> None:
        """Count a request as :meth:`waits_for`, and handle no other until it is answered."""
        self._long_answer = done
        self.waits_for(request, done)

    def waits_for(self, request: Request, done: asyncio.Future[None]) -> None:
        """Count a request that is answered when a future is done."""
        size = request.held_bytes
        self._unanswered += 1
        self.hold(size)
        done.add_done_callback(partial(self._answered, size))
        self._pace()

    def _answered(self, size: int, _done: asyncio.Future[None]) -> None:
        self._unanswered -= 1
        self.hold(-size)
        self.settled()

    def hold(self, size: int) -> None:
        """Add to the bytes of requests answered later; less if negative."""
        self.unanswered += size
        self._shared.connections.unanswered += size

    def cease(self) -> None:
        """Stop reading; received requests are still answered, our own fail."""
        self._ceased = True
        self._pace()
        _give_up(self._asked.values(), "the gateway stops")

    def abort(self) -> None:
        """Close it at once; unsent bytes are lost."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close it after sending the bytes written so far."""
        if self._transport is not None:
            self._transport.close()


def _give_up(futures: Iterable[asyncio.Future[Request | str]], why: str) -> None:
    """End waits with a reason: an exception would keep the locals of its frames alive."""
    for future in futures:
        if not future.done():
            future.set_result(why)
