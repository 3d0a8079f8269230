"""Housekeeping thread of a store: retention, progress of groups, transaction checks.

Source: ``store/DefaultMessageStore.java addScheduleTask``, ``broker/BrokerController.java``.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rmqstore.base.warn import log_warning
from rmqstore.services.base import STORE_ENDED, Service

__all__ = ["Housekeeper"]

_LONGEST_SLEEP = 1.0  # seconds: others may move the clock of the store
_EXIT_SECONDS = 5.0  # wait for a task at close, or at the interpreter's exit


@dataclass
class _Task:
    """A periodic task, and when it is due next by the store's clock."""

    name: str
    method: weakref.WeakMethod[Callable[[], object]]
    interval: int  # ms
    due: int  # ms since the epoch
    failed: str = ""  # reason of the last failure


class Housekeeper(Service):
    """Runner of a store's periodic tasks, one after the other, in a thread of its own.

    The thread starts with the first task. Between tasks it holds no reference to the store, and it
    ends with the store. ``now`` is a method of the store's clock: milliseconds since the epoch.
    """

    def __init__(self, now: Callable[[], int], name: str = "rmq-housekeeping") -> None:
        self._now = weakref.WeakMethod(now)
        self._name = name
        self._tasks: list[_Task] = []
        # `with` takes the lock itself: where a condition's own `__enter__` returns, a signal may be
        # handled before the block is entered, and the lock would never be released.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._running = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._process = os.getpid()

    def every(self, seconds: float, method: Callable[[], object], name: str) -> None:
        """Run a method every ``seconds`` of the store's clock, the first time after as many.

        The method is held weakly. A failure is logged under ``name``, and the next run tries again.
        """
        interval = max(1, round(seconds * 1000))
        with self._lock:
            due = self._time() + interval
            self._tasks.append(_Task(name, weakref.WeakMethod(method), interval, due))
            if self._thread is None and not self._stopping:
                atexit.register(self.stop)
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wake(self) -> None:
        """Check again for due tasks: the clock was moved."""
        with self._lock:
            self._changed.notify_all()

    def run_due(self) -> int:
        """Run the due tasks in the calling thread; return their number."""
        with self._running:
            done = 0
            for task in self._due():
                method = task.method()
                if method is not None and not self._stopping:
                    self._run_task(task, method)
                    done += 1
            return done

    def stop(self) -> None:
        """Stop the thread, and wait up to 5 s for a running task; start no other."""
        if self._process != os.getpid():
            return  # a forked child has no thread, and the lock may be held
        with self._lock:
            self._stopping = True
            thread, self._thread = self._thread, None
            self._changed.notify_all()
        atexit.unregister(self.stop)
        if thread is not None and thread is not threading.current_thread():
            thread.join(_EXIT_SECONDS)

    def abandon(self) -> None:
        """Stop the thread: the store is given up."""
        self.stop()

    def _time(self) -> int:
        now: Any = self._now()
        return int(now()) if now is not None else 0

    def _due(self) -> list[_Task]:
        """Return the due tasks, each with its next time set."""
        with self._lock:
            now = self._time()
            due = []
            for task in self._tasks:
                if task.due <= now:
                    due.append(task)
                # Also after the clock was put back: no later than an interval from now.
                if task.due <= now or task.due > now + task.interval:
                    task.due = now + task.interval
            return due

    def _run_task(self, task: _Task, method: Callable[[], object]) -> None:
        try:
            method()
        except STORE_ENDED:
            pass  # the store's own calls report it
        except Exception as error:
            if task.failed != repr(error):
                log_warning("%s failed, and will be tried again: %s", task.name, error)
            task.failed = repr(error)
        else:
            task.failed = ""

    def _run(self) -> None:
        """Run tasks until the store is gone or stopped."""
        while True:
            with self._lock:
                if self._stopping or self._now() is None:
                    return
                soonest = min(task.due for task in self._tasks)
                sleep = min(_LONGEST_SLEEP, max(0.0, (soonest - self._time()) / 1000))
                if sleep > 0:
                    self._changed.wait(sleep)
                if self._stopping or self._now() is None:
                    return
            self.run_due()
