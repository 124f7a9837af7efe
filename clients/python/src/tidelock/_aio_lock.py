"""Locks by their names, for asyncio: how they are asked for."""

import asyncio
import json
from types import TracebackType
from typing import AsyncIterator, Dict, List, Optional, Type

from . import _calls, errors
from ._aio_held import Client, Held, Turn
from ._calls import Duration
from ._clock import now_ns
from ._held import OnLost
from ._link import Link
from ._lock import GRACE
from ._pool import Gone
from ._window import OnWaiting, Window, first_line
from ._wire import Garbled, request
from .values import Leader


class _Block:
    """A task in an `async with` block: it is cancelled when its lock is lost, and then gets `Lost`."""

    def __init__(self, held: Held) -> None:
        self.held = held
        self.task = asyncio.current_task()
        self.cancelled = False
        held.on_lost(self._cancel)

    def _cancel(self, _: errors.Lost) -> None:
        if self.task is not None and not self.task.done():
            self.cancelled = True
            self.task.cancel()

    async def leave(self, error: Optional[BaseException]) -> None:
        ours = self.cancelled and isinstance(error, asyncio.CancelledError)
        if self.cancelled and self.task is not None and hasattr(self.task, "uncancel"):
            # Somebody else wants the task to end as well: that goes first.
            ours = self.task.uncancel() == 0 and ours
        self.task = None
        if ours and self.held.lost is not None:
            raise self.held.lost from None
        await self.held._leave(error)


class Lock:
    """A lock by its name and options. It holds nothing: `acquire`, or `async with`, gives a `Held`."""

    _gives: Type[Held] = Held

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
        self._entered: Dict[int, List[_Block]] = {}

    def _request(self, wait: Optional[float]) -> bytes:
        client = self._client
        if self._ready_for != client.forks:
            self._ready, self._ready_for = {}, client.forks
        data = self._ready.get(wait)
        if data is None:
            data = self._call.request(wait, client.named({}), self._on_waiting is not None, client.links.place.token)
            if len(self._ready) < 4:
                self._ready[wait] = data
        return data

    async def acquire(self, wait: Optional[Duration] = None) -> Held:
        """Acquires the lock, and waits in the queue for up to `wait` (default: that of the lock).

        A task that is cancelled here leaves the queue.
        """
        limit = self._call.wait if wait is None else _calls.seconds(wait)
        begun = now_ns()
        left, pause = limit, 0.01
        while True:
            link: Optional[Link] = None
            try:
                link = self._client.links.kept() or await self._client.links.fresh()
                held = await self._ask(link, left)
            except (Gone, errors.Unavailable) as error:
                stale = link is not None and link.used and not link.late and isinstance(error, Gone)
                if isinstance(error, errors.Unavailable) and not isinstance(error.__cause__, OSError):
                    raise
                if limit is not None:
                    left = max(0.0, limit - (now_ns() - begun) / 1e9)
                if stale:
                    continue
                if left == 0:
                    if isinstance(error, errors.Unavailable):
                        raise
                    raise errors.Unavailable(f"the tidelock server is gone: {error}") from error
                await asyncio.sleep(pause if left is None else min(pause, left))
                pause = min(0.5, pause * 2)
                continue
            if self._on_lost is not None:
                held.on_lost(self._on_lost)
            return held

    async def try_acquire(self) -> Optional[Held]:
        """Acquires the lock if it is free, or returns `None`."""
        try:
            return await self.acquire(0)
        except errors.Busy:
            return None

    async def _ask(self, link: Link, wait: Optional[float]) -> Held:
        client = self._client
        data = self._request(wait)
        noted = now_ns()
        window: "Window | errors.Error"
        link.limit(None if wait is None else wait + GRACE)
        try:
            window = await self._outcome(link, data, noted)
        except BaseException:
            # Also if this task is cancelled: the closed stream leaves the queue.
            link.close()
            raise
        finally:
            link.unlimit()
        opened = _calls.stays_open(wait)
        if isinstance(window, errors.Error):
            if opened:
                # The server does not wait for the end of the body.
                link.close()
            else:
                client.links.put(link)
            raise window
        if window.remaining_ns() == 0:
            link.close()
            raise Gone(f"{self._call.shown} was granted and lost while this program was stopped")
        return self._gives(client, window, link, self._call.shown, opened)

    async def _outcome(self, link: Link, data: bytes, noted: int) -> "Window | errors.Error":
        await link.send(data)
        try:
            if not link.reader.raw:
                await link.more()
            line = link.reader.sole_line()
            if line is not None:
                window = first_line(line, noted, self._on_waiting, self._client.links.place.trust)
                if window is not None:
                    return window
            if await link.head() != 200:
                return errors.from_answer(*await link.answer())
            while True:
                lines = link.reader.lines()
                while lines:
                    line = lines.pop(0)
                    window = first_line(line, noted, self._on_waiting, self._client.links.place.trust)
                    if window is None:
                        continue
                    for later in lines:
                        window.read(later)
                    return window
                if link.reader.ended:
                    raise Gone("the stream ended without an outcome")
                await link.more()
        except Garbled as error:
            raise Gone(str(error)) from error

    @staticmethod
    def _task() -> int:
        return id(asyncio.current_task())

    async def __aenter__(self) -> Held:
        held = await self.acquire()
        self._entered.setdefault(self._task(), []).append(_Block(held))
        return held

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        stack = self._entered[self._task()]
        block = stack.pop()
        if not stack:
            del self._entered[self._task()]
        await block.leave(error)


class Election(Lock):
    """Candidates of one name, of which one leads. `async with` campaigns, and leads in its block."""

    async def leader(self) -> Optional[Leader]:
        """Who leads, if anybody does."""
        try:
            return Leader.read(await self._client.ask("GET", self._call.path))
        except errors.NotFound:
            return None

    async def watch(self) -> AsyncIterator[Optional[Leader]]:
        """Gives who leads, now and whenever it changes."""
        links = self._client.links
        link = await links.fresh()
        try:
            await link.send(request("GET", f"{self._call.path}/watch", None, links.place.token))
            if await link.head() != 200:
                raise errors.from_answer(*await link.answer())
            while True:
                for line in link.reader.lines():
                    told = json.loads(line)
                    if told.get("event") == "leader":
                        yield Leader.read(told.get("leader"))
                if link.reader.ended:
                    return
                await link.more()
        except Gone as error:
            raise errors.Unavailable(f"the tidelock server is gone: {error}") from error
        finally:
            link.close()


class Once(Lock):
    """A job that runs once per period, on one of all clients: see `tidelock.Once`."""

    _gives = Turn

    async def __aenter__(self) -> Turn:
        turn = await super().__aenter__()
        assert isinstance(turn, Turn)
        return turn
