"""Faults of requests, set by a test: errors, delays, silence.

RocketMQ has nothing of the kind; codes are named as in ``RequestCode`` and ``ResponseCode``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqstore.serve.wire.frames import Answer

if TYPE_CHECKING:
    from rmqstore.serve.network.connection import Connection, Shared
    from rmqstore.serve.wire.frames import Request

__all__ = ["RequestRules"]


class RequestRules:
    """Rules of a gateway under test; used only in its loop.

    The oldest rule for a request's code that is not used up applies; an error or a drop follows
    the delay.
    """

    def __init__(self, shared: Shared, handle: Callable[[Connection, Request], object]) -> None:
        self._shared = shared
        self._handle = handle
        # [code or None for any, response or None for silence, remaining uses]
        self._faults: list[tuple[int | None, int | None, int]] = []
        self._delays: dict[int | None, float] = {}  # seconds
        self._hot_sends = shared.hot_sends

    def _changed(self) -> None:
        """Pass all requests to the handlers while there is a rule: the core ignores rules."""
        self._shared.hot_sends = self._hot_sends and not (self._faults or self._delays)

    def fail(self, code: int, response: int, times: int) -> None:
        """Answer the next requests of a code with an error."""
        self._faults.append((code, response, times))
        self._changed()

    def drop(self, code: int | None, times: int) -> None:
        """Ignore the next requests, without an answer."""
        self._faults.append((code, None, times))
        self._changed()

    def delay(self, seconds: float, code: int | None) -> None:
        """Delay requests before they are handled; 0 ends it."""
        if seconds > 0:
            self._delays[code] = seconds
        elif code is None:
            self._delays.clear()
        else:
            self._delays.pop(code, None)
        self._changed()

    def take(self, connection: Connection, request: Request) -> bool:
        """Apply the rules to a request; return whether one applied."""
        seconds = self._delays.get(request.code, self._delays.get(None, 0.0))
        fault = self._fault(request.code)
        if seconds:
            self._shared.work.loop.call_later(seconds, self._go_on, connection, request, fault)
        elif fault is not None:
            self._go_on(connection, request, fault)
        return bool(seconds) or fault is not None

    def _fault(self, code: int) -> tuple[int | None, int | None, int] | None:
        """Return the fault for a code, and count its use."""
        for at, fault in enumerate(self._faults):
            wanted, response, times = fault
            if wanted is None or wanted == code:
                if times > 1:
                    self._faults[at] = (wanted, response, times - 1)
                else:
                    del self._faults[at]
                    self._changed()
                return fault
        return None

    def _go_on(
        self,
        connection: Connection,
        request: Request,
        fault: tuple[int | None, int | None, int] | None,
    ) -> None:
        if not connection.is_open:
            return
        if fault is None:
            self._handle(connection, request)
        elif fault[1] is not None:
            remark = f"a rule of the test: request {request.code} fails with {fault[1]}"
            connection.answer(request, Answer(fault[1], remark, fields=_FIELDS))


# The Java client reads the region in every answer to a send, even an error.
_FIELDS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
