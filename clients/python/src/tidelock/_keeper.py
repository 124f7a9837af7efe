"""The background thread of a client: it confirms that the program lives, and watches streams for those who want to know
at once of a loss.

A hold that is short costs it nothing: the thread sleeps until the first confirmation is due, a third of the ttl after
the grant.
"""

import os
import select
import selectors
import sys
import threading
from typing import Any, Callable, Dict, List, Optional

from . import errors
from ._clock import now_ns
from ._pool import Connection, Gone, Pool
from ._window import Window
from ._wire import Garbled, request

#: Confirmations that share a message.
BATCH = 64
NEVER = 1 << 62
RETRY_NS = 50_000_000


if sys.platform == "linux":

    class Poll:
        """The descriptors that are watched: `selectors`, without an object for each."""

        def __init__(self) -> None:
            self._epoll = select.epoll()
            self.unregister = self._epoll.unregister
            self.close = self._epoll.close

        def register(self, descriptor: int) -> None:
            self._epoll.register(descriptor, select.EPOLLIN)

        def wait(self, timeout: Optional[float]) -> List[int]:
            return [descriptor for descriptor, _ in self._epoll.poll(timeout)]

else:

    class Poll:
        """The descriptors that are watched."""

        def __init__(self) -> None:
            self._selector = selectors.DefaultSelector()
            self.unregister = self._selector.unregister
            self.close = self._selector.close

        def register(self, descriptor: int) -> None:
            self._selector.register(descriptor, selectors.EVENT_READ)

        def wait(self, timeout: Optional[float]) -> List[int]:
            return [key.fd for key, _ in self._selector.select(timeout)]


class Hold:
    """A lock that this process holds: its window and its stream."""

    __slots__ = ("window", "connection", "keeper", "guard", "callbacks", "due", "shown", "opened", "watched", "__weakref__")

    def __init__(
        self, window: Window, connection: Connection, keeper: "Keeper", shown: str, opened: bool, now: int
    ) -> None:
        self.window = window
        #: Whether it can be ended on its own connection.
        self.opened = opened
        #: Whether the keeper reads what the server says as soon as it comes.
        self.watched = False
        self.connection = connection
        self.keeper = keeper
        # Re-entrant: the garbage collector may drop a hold wherever this thread is.
        self.guard = threading.RLock()
        self.callbacks: List[Callable[[errors.Lost], Any]] = []
        self.shown = shown
        #: When the next confirmation is due.
        self.due = now + window.ttl_ns // 3

    def poll(self) -> None:
        """Reads what the server has said since, without waiting."""
        with self.guard:
            if self.window.ended:
                return
            opened = self.connection.poll()
            try:
                for line in self.connection.reader.lines():
                    self.window.read(line)
            except (Garbled, ValueError):
                opened = False
            if self.window.lost is None and (not opened or self.connection.reader.ended):
                self.window.lose("the connection to the server ended, and with it the hold")
            if self.window.lost is not None:
                self._lost()

    def expire(self) -> bool:
        """Ends the hold if its time has passed."""
        with self.guard:
            if not self.window.expire():
                return False
            self._lost()
            return True

    def confirmed(self, status: int, body: bytes, noted: int) -> None:
        with self.guard:
            if self.window.ended:
                return
            self.window.confirmed(status, body, noted)
            self.due = noted + self.window.ttl_ns // 3
            if self.window.lost is not None:
                self._lost()

    def _lost(self) -> None:
        self.keeper.remove(self)
        self.keeper.pool.drop(self.connection)
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            self._tell(callback)

    def _tell(self, callback: Callable[[errors.Lost], Any]) -> None:
        # A thread of its own: a callback may wait, and other holds need the keeper.
        threading.Thread(target=callback, args=(self.window.lost,), name="tidelock-lost", daemon=True).start()

    def on_lost(self, callback: Callable[[errors.Lost], Any]) -> None:
        with self.guard:
            if self.window.lost is not None:
                self._tell(callback)
            elif not self.window.ended:
                self.callbacks.append(callback)
                self.keeper.watch(self)

    def end(self) -> bool:
        """Takes the hold away from the keeper because the program releases it. False: it had ended already."""
        with self.guard:
            if self.window.ended:
                return False
            self.window.end()
            self.callbacks = []
            self.keeper.remove(self)
            return True

    def abandon(self) -> None:
        """Closes the stream, which releases the lock."""
        if self.end():
            self.keeper.pool.drop(self.connection)


class Keeper:
    """Watches all holds of a client."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._reset()

    def _reset(self) -> None:
        self.holds: Dict[int, Hold] = {}
        self.starting = threading.Lock()
        self.thread: Optional[threading.Thread] = None
        self.selector: Optional[Poll] = None
        #: Until when the thread sleeps unless it is woken.
        self.wakes_at = NEVER
        #: A third of the ttl of the hold that was added last, if there was one since the thread looked.
        self.lately = 0
        self.bell = (-1, -1)
        self.stopped = False

    def add(self, hold: Hold) -> None:
        if self.selector is None:
            self._start()
        self.holds[hold.connection.descriptor] = hold
        self.lately = hold.window.ttl_ns // 3
        if hold.due < self.wakes_at:
            self.ring()

    def watch(self, hold: Hold) -> None:
        """Somebody wants to know at once when the hold is lost. Others look when they ask."""
        if not hold.watched and self.selector is not None:
            hold.watched = True
            self.selector.register(hold.connection.descriptor)

    def remove(self, hold: Hold) -> None:
        descriptor = hold.connection.descriptor
        if self.holds.pop(descriptor, None) is not None and hold.watched and self.selector is not None:
            self.selector.unregister(descriptor)

    def ring(self) -> None:
        try:
            os.write(self.bell[1], b"!")
        except BlockingIOError:
            pass  # It has been told.

    def _start(self) -> Poll:
        with self.starting:
            if self.selector is None:
                selector = Poll()
                self.bell = os.pipe()
                os.set_blocking(self.bell[0], False)
                os.set_blocking(self.bell[1], False)
                selector.register(self.bell[0])
                self.thread = threading.Thread(target=self._run, args=(selector,), name="tidelock-keeper", daemon=True)
                self.selector = selector
                self.thread.start()
            return self.selector

    def _run(self, selector: Poll) -> None:
        while not self.stopped:
            # First this: a hold that is added from here on rings.
            self.wakes_at = NEVER
            holds = list(self.holds.values())
            self._confirm([hold for hold in holds if not hold.expire()])
            now = now_ns()
            # After a hold that was short, it sleeps as if there were one, so that the next ones need not ring. If none
            # comes until then, it sleeps until one rings.
            lately, self.lately = self.lately, 0
            nexts = [min(hold.due, hold.window.deadline) for hold in list(self.holds.values())]
            wakes_at = min(nexts, default=now + lately if lately else NEVER)
            if wakes_at < self.wakes_at:
                self.wakes_at = wakes_at
            timeout = None if wakes_at == NEVER else max(0.0, (wakes_at - now) / 1e9)
            for descriptor in selector.wait(timeout):
                hold = self.holds.get(descriptor)
                if hold is not None:
                    hold.poll()
                elif descriptor == self.bell[0]:
                    self._quiet()

    def _quiet(self) -> None:
        try:
            os.read(self.bell[0], 4096)
        except BlockingIOError:
            pass

    def _confirm(self, holds: List[Hold]) -> None:
        now = now_ns()
        # Those that are due soon go along, so that many holds share few messages.
        due = [hold for hold in holds if hold.due <= now + hold.window.ttl_ns // 24]
        if not any(hold.due <= now for hold in due):
            return
        earliest = min(hold.window.deadline for hold in holds)
        for start in range(0, len(due), BATCH):
            self._confirm_batch(due[start : start + BATCH], earliest)

    def _confirm_batch(self, batch: List[Hold], earliest: int) -> None:
        asked = [request("POST", f"/v1/holds/{hold.window.hold}", {}, self.pool.token) for hold in batch]
        noted = now_ns()
        # A server that hangs must not keep this thread from telling the first loss in time.
        limit = max(0.001, (earliest - noted) / 1e9)
        connection = None
        try:
            connection = self.pool.get()
            connection.send(b"".join(asked), limit)
            for hold in batch:
                status, body = connection.answer()
                hold.confirmed(status, body, noted)
        except (OSError, Gone, ValueError, errors.Error):
            if connection is not None:
                self.pool.drop(connection)
            for hold in batch:
                hold.due = max(hold.due, now_ns() + RETRY_NS)
            return
        self.pool.put(connection)

    def stop(self) -> None:
        """Ends the thread, and all holds."""
        self.stopped = True
        for hold in list(self.holds.values()):
            hold.abandon()
        if self.selector is not None:
            self.ring()
            if self.thread is not None and self.thread is not threading.current_thread():
                self.thread.join()
                self._close()

    def _close(self) -> None:
        if self.selector is not None:
            self.selector.close()
            self.selector = None
        for end in self.bell:
            os.close(end)

    def after_fork(self) -> None:
        """In the child: its parent holds, and the child does not."""
        for hold in list(self.holds.values()):
            hold.guard = threading.RLock()
            hold.callbacks = []
            hold.window.lose("the lock is held by the parent process: after fork(), acquire locks in the child itself")
        if self.selector is not None:
            # Only closed: what is unregistered here would be gone for the parent, too.
            self._close()
        self._reset()
