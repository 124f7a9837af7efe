"""Locks by their names, for threads: how they are asked for."""

import json
import socket
import threading
import time
from types import TracebackType
from typing import Any, Dict, Iterator, List, Optional, Type, TypeVar

from . import _calls, errors
from ._calls import Duration
from ._clock import now_ns
from ._held import Held, OnLost, Turn
from ._keeper import Hold, Keeper
from ._pool import Connection, Gone, Pool
from ._window import OnWaiting, Window, first_line
from ._wire import Garbled, request
from .values import Leader

H = TypeVar("H", bound=Held)
#: How much later than `wait` the answer of the server may come.
GRACE = 2.0


class Client:
    """What all locks of a client share."""

    def __init__(self, pool: Pool, ttl: Optional[Duration], label: Optional[str]) -> None:
        self.pool = pool
        self.keeper = Keeper(pool)
        self.ttl = ttl
        self.label = label
        #: How many forks there have been since the client was made: a child has another process id.
        self.forks = 0

    def named(self, fields: Dict[str, Any]) -> Dict[str, Any]:
        """Adds the settings of the client."""
        # Not earlier than now: a child has another process id.
        defaults = _calls.body(ttl=self.ttl, label=self.label or _calls.default_label())
        return {**defaults, **fields}

    def ask(self, method: str, path: str, fields: Optional[Dict[str, Any]] = None, again: bool = True) -> Any:
        """Sends a request, and reads its answer as JSON."""
        status, body = self.pool.ask(method, path, fields, again)
        if status >= 300:
            raise errors.from_answer(status, body)
        return json.loads(body) if body else None

    def close(self) -> None:
        self.keeper.stop()
        self.pool.close()

    def after_fork(self) -> None:
        self.forks += 1
        self.keeper.after_fork()
        self.pool.after_fork()


class Lock:
    """A lock by its name and options. It holds nothing: `acquire`, or `with`, gives a `Held`."""

    def __init__(
        self,
        client: Client,
        call: _calls.Hold,
        on_lost: Optional[OnLost] = None,
        on_waiting: Optional[OnWaiting] = None,
    ) -> None:
        self._client = client
        self._call = call
        self._on_lost = on_lost
        self._on_waiting = on_waiting
        self._ready: Dict[Optional[float], bytes] = {}
        self._ready_for = client.forks
        # Of each thread, what its `with` blocks hold.
        self._entered: Dict[int, List[Held]] = {}

    def acquire(self, wait: Optional[Duration] = None) -> Held:
        """Acquires the lock, and waits in the queue for up to `wait` (default: that of the lock)."""
        hold = self._acquire(self._call.wait if wait is None else _calls.seconds(wait))
        return self._give(Held(hold))

    def try_acquire(self) -> Optional[Held]:
        """Acquires the lock if it is free, or returns `None`."""
        try:
            return self.acquire(0)
        except errors.Busy:
            return None

    def _give(self, held: H) -> H:
        if self._on_lost is not None:
            held.on_lost(self._on_lost)
        return held

    def _request(self, wait: Optional[float]) -> bytes:
        client = self._client
        if self._ready_for != client.forks:
            self._ready, self._ready_for = {}, client.forks
        data = self._ready.get(wait)
        if data is None:
            data = self._call.request(wait, client.named({}), self._on_waiting is not None, client.pool.token)
            if len(self._ready) < 4:
                self._ready[wait] = data
        return data

    def _acquire(self, wait: Optional[float]) -> Hold:
        pool = self._client.pool
        begun = now_ns()
        left, pause = wait, 0.01
        while True:
            data = self._request(left)
            try:
                return self._ask(pool.get(), data, left)
            except errors.Unavailable as error:
                # The server is gone or was restarted. It is asked again while the caller waits.
                if not error.details.get("reconnect") and not isinstance(error.__cause__, OSError):
                    raise
                if wait is not None:
                    left = max(0.0, wait - (now_ns() - begun) / 1e9)
                if error.details.get("stale"):
                    continue
                if left == 0:
                    raise
                time.sleep(pause if left is None else min(pause, left))
                pause = min(0.5, pause * 2)

    def _ask(self, connection: Connection, data: bytes, wait: Optional[float]) -> Hold:
        pool = self._client.pool
        opened = _calls.stays_open(wait)
        noted = now_ns()
        try:
            connection.send(data, None if wait is None else wait + GRACE)
            line = connection.sole_line()
            window = None if line is None else first_line(line, noted, self._on_waiting, pool.place.trust)
            if window is None:
                window = self._outcome(connection, noted, opened)
        except socket.timeout as error:
            pool.drop(connection)
            raise errors.Unavailable(f"the tidelock server did not answer for {self._call.shown}") from error
        except (OSError, Gone, Garbled) as error:
            details = {"reconnect": True, "stale": connection.used}
            pool.drop(connection)
            raise errors.Unavailable(f"the tidelock server is gone: {error}", details=details) from error
        except errors.Error:
            if connection.reader.status:
                pool.drop(connection)
            raise
        except BaseException:
            # Also for Ctrl-C: the closed stream leaves the queue.
            pool.drop(connection)
            raise
        now = now_ns()
        if window.ended or now >= window.deadline:
            # This program was stopped while it waited, and the lock has expired again.
            pool.drop(connection)
            raise errors.Unavailable(
                f"{self._call.shown} was granted and lost while this program was stopped", details={"reconnect": True}
            )
        hold = Hold(window, connection, self._client.keeper, self._call.shown, opened, now)
        self._client.keeper.add(hold)
        if connection.reader.raw or connection.reader.text:
            hold.poll()
        return hold

    def _outcome(self, connection: Connection, noted: int, opened: bool) -> Window:
        """Reads up to the outcome, which comes late or is no grant."""
        pool, reader = self._client.pool, connection.reader
        if connection.head() != 200:
            status, body = connection.answer()
            if opened:
                # The server does not wait for the end of the body.
                pool.drop(connection)
            else:
                pool.put(connection)
            raise errors.from_answer(status, body)
        while True:
            lines = reader.lines()
            while lines:
                line = lines.pop(0)
                window = first_line(line, noted, self._on_waiting, pool.place.trust)
                if window is None:
                    continue
                # What came with it may already say that it is lost.
                for later in lines:
                    window.read(later)
                return window
            if reader.ended:
                raise Gone("the stream ended without an outcome")
            connection.more()

    def __enter__(self) -> Held:
        held = self._enter()
        self._entered.setdefault(threading.get_ident(), []).append(held)
        return held

    def _enter(self) -> Held:
        return self.acquire()

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        thread = threading.get_ident()
        stack = self._entered[thread]
        held = stack.pop()
        if not stack:
            del self._entered[thread]
        held._leave(error)


class Election(Lock):
    """Candidates of one name, of which one leads. `with` campaigns, and leads in its block."""

    def leader(self) -> Optional[Leader]:
        """Who leads, if anybody does."""
        try:
            return Leader.read(self._client.ask("GET", self._call.path))
        except errors.NotFound:
            return None

    def watch(self) -> Iterator[Optional[Leader]]:
        """Gives who leads, now and whenever it changes, until the iterator is closed."""
        pool = self._client.pool
        connection = pool.fresh()
        try:
            connection.send(request("GET", f"{self._call.path}/watch", None, pool.token), None)
            if connection.head() != 200:
                raise errors.from_answer(*connection.answer())
            while True:
                for line in connection.reader.lines():
                    told = json.loads(line)
                    if told.get("event") == "leader":
                        yield Leader.read(told.get("leader"))
                if connection.reader.ended:
                    return
                connection.more()
        except (OSError, Gone) as error:
            raise errors.Unavailable(f"the tidelock server is gone: {error}") from error
        finally:
            pool.drop(connection)


class Once(Lock):
    """A job that runs once per period, on one of all clients.

    `with` raises `DoneAlready` or `RunningNow` if it is not the turn of this client. The end of the block records the
    job as done, and an exception gives it back.
    """

    def acquire(self, wait: Optional[Duration] = None) -> Turn:
        return self._give(Turn(self._acquire(None)))

    def __enter__(self) -> Turn:
        turn = super().__enter__()
        assert isinstance(turn, Turn)
        return turn
