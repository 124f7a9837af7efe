"""What an event loop has of a lock that it holds."""

import asyncio
import json
from types import TracebackType
from typing import Any, Dict, List, Optional, Set, Tuple, Type

from . import _calls, errors
from ._alarm import Timed
from ._calls import Duration
from ._clock import now_ns
from ._held import OnLost
from ._keeper import BATCH, RETRY_NS
from ._link import Link, Links, Watcher
from ._pool import Gone
from ._window import Window, check_ended
from ._wire import ENDINGS, Garbled, end_elsewhere, request


class Client:
    """What all locks of a client share."""

    def __init__(self, links: Links, ttl: Optional[Duration], label: Optional[str]) -> None:
        self.links = links
        self.ttl = ttl
        self.label = label
        #: How many forks there have been since the client was made: a child has another process id.
        self.forks = 0
        self.held: Set["Held"] = set()
        #: Of each event loop, the holds that are confirmed together, and the tasks that do that.
        self.due: Dict[asyncio.AbstractEventLoop, List["Held"]] = {}
        self.tasks: Set["asyncio.Task[None]"] = set()

    def confirm(self, held: "Held") -> None:
        """Confirms a hold, in one message with others that are due now."""
        loop = held._loop
        due = self.due.setdefault(loop, [])
        due.append(held)
        if len(due) == 1:
            loop.call_soon(self._confirm_due, loop)

    def _confirm_due(self, loop: asyncio.AbstractEventLoop) -> None:
        due = self.due.pop(loop, [])
        for start in range(0, len(due), BATCH):
            task = loop.create_task(self._confirm(due[start : start + BATCH]))
            # The loop itself does not keep its tasks.
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _confirm(self, batch: List["Held"]) -> None:
        token = self.links.place.token
        asked = [request("POST", f"/v1/holds/{held._window.hold}", {}, token) for held in batch]
        noted = now_ns()
        limit = max(1_000_000, min(held._window.deadline for held in batch) - noted) / 1e9
        try:
            answers = await self.links.ask_all(asked, True, limit)
        except errors.Error:
            for held in batch:
                held._confirmed(0, b"", noted)
            return
        for held, (status, body) in zip(batch, answers):
            held._confirmed(status, body, noted)

    def named(self, fields: Dict[str, Any]) -> Dict[str, Any]:
        defaults = _calls.body(ttl=self.ttl, label=self.label or _calls.default_label())
        return {**defaults, **fields}

    async def ask(self, method: str, path: str, fields: Optional[Dict[str, Any]] = None, again: bool = True) -> Any:
        status, body = await self.links.ask(method, path, fields, again)
        if status >= 300:
            raise errors.from_answer(status, body)
        return json.loads(body) if body else None

    def after_fork(self) -> None:
        for held in list(self.held):
            held._window.lose("the lock is held by the parent process: after fork(), acquire locks in the child itself")
        self.held, self.due, self.tasks = set(), {}, set()
        self.forks += 1
        self.links.after_fork()


class Held(Watcher, Timed):
    """A lock that is held, by the event loop that acquired it."""

    def __init__(self, client: Client, window: Window, link: Link, shown: str, opened: bool) -> None:
        self._client = client
        self._window = window
        self._link = link
        self._shown = shown
        #: Whether it can be ended on its own connection.
        self._opened = opened
        self._callbacks: List[OnLost] = []
        assert link.loop is not None
        self._loop = link.loop
        self._confirming = False
        self.token: int = window.token
        self.tokens: Tuple[int, ...] = window.tokens
        client.held.add(self)
        link.watcher = self
        self._confirm_later()

    def is_held(self) -> bool:
        """Whether the lock is held at this moment. Reads the clock, and what the server has said."""
        if not self._window.ended:
            self._link.look()
            self.came()
        return self._window.remaining_ns() > 0

    def remaining(self) -> float:
        """For how many seconds the lock is held even if the server and the store are gone."""
        return self._window.remaining_ns() / 1e9

    def check(self) -> None:
        """Raises `Lost` unless the lock is held."""
        if not self.is_held():
            raise self.lost or errors.Lost(f"{self._shown} is not held any more")

    @property
    def lost(self) -> Optional[errors.Lost]:
        """Why the lock was lost, if it was."""
        return self._window.lost

    def on_lost(self, callback: OnLost) -> None:
        """Calls `callback` with the `Lost` error when the lock is lost, in the event loop."""
        if self._window.lost is not None:
            self._loop.call_soon(callback, self._window.lost)
        elif not self._window.ended:
            self._callbacks.append(callback)

    def came(self) -> None:
        if self._window.ended:
            return
        try:
            for line in self._link.reader.lines():
                self._window.read(line)
            ended = self._link.reader.ended
        except (Garbled, ValueError):
            ended = True
        if self._window.lost is None and (self._link.gone or ended):
            self._window.lose("the connection to the server ended, and with it the hold")
        if self._window.lost is not None:
            self._stop()

    def _stop(self) -> None:
        """The hold has ended because it was lost: nothing is watched any more."""
        self._forget()
        self._link.close()
        lost = self._window.lost
        if lost is not None:
            for callback in self._callbacks:
                self._loop.call_soon(callback, lost)

    def _forget(self) -> None:
        self._client.held.discard(self)
        self._link.local.alarm.discard(self)
        self._link.watcher = None

    def ring(self) -> None:
        if self._window.ended:
            return
        if self._window.expire():
            self._stop()
        else:
            if not self._confirming:
                self._confirming = True
                self._client.confirm(self)
            # The end of the window is noticed also while the server hangs.
            self._later(self._window.deadline - now_ns())

    def _later(self, nanos: float) -> None:
        self._link.local.alarm.set(self, max(0.001, nanos / 1e9))

    def _confirm_later(self) -> None:
        # May be early, so that many holds are confirmed together.
        self._link.local.alarm.set(self, self._window.ttl_ns / 3e9, self._window.ttl_ns / 24e9)

    def _confirmed(self, status: int, body: bytes, noted: int) -> None:
        """Takes the answer to a confirmation; 0: there was none."""
        self._confirming = False
        if self._window.ended:
            return
        try:
            self._window.confirmed(status, body, noted)
        except (ValueError, KeyError):
            status = 0
        if self._window.lost is not None:
            self._stop()
        elif not status:
            # Asked again shortly, until the window ends.
            self._later(min(RETRY_NS, self._window.deadline - now_ns()))
        elif self._window.deadline - now_ns() < self._window.ttl_ns // 3:
            self._later(self._window.deadline - now_ns())
        else:
            self._confirm_later()

    async def release(self) -> None:
        """Releases the lock; returns when the store has confirmed that. Raises `Lost` if it was lost before."""
        await self._finish("release")

    async def _finish(self, ending: str) -> None:
        window = self._window
        if window.ended:
            if window.lost is not None:
                raise window.lost
            return
        window.end()
        self._forget()
        links = self._client.links
        if now_ns() >= window.deadline:
            self._link.close()
            window.lost = errors.Lost(f"{self._shown} was not confirmed in time and may be held by another client")
            raise window.lost
        try:
            if self._opened:
                await self._link.end(ENDINGS[ending])
            else:
                check_ended(*await links.ask(*end_elsewhere(window.hold, ending), again=False))
                self._link.streams = self._link.used = True
        except errors.Lost as error:
            self._link.close()
            window.lost = error
            raise
        except Gone as error:
            self._link.close()
            raise errors.Unavailable(f"the tidelock server did not answer: {error}") from error
        except BaseException:
            # Also if this task is cancelled: the closed stream releases.
            self._link.close()
            raise
        links.put(self._link)

    async def _leave(self, error: Optional[BaseException]) -> None:
        try:
            await self.release()
        except errors.Error:
            if error is None:
                raise

    async def __aenter__(self) -> "Held":
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self._leave(error)

    def __repr__(self) -> str:
        return f"<tidelock.aio.Held {self._shown} token={self.token} remaining={self.remaining():.3f}>"


class Turn(Held):
    """A job that runs once per period, and whose turn this is."""

    @property
    def slot(self) -> Optional[str]:
        """The period that it runs for."""
        return self._window.details.get("slot")

    async def done(self) -> None:
        """Records that the job has run in this period."""
        await self._finish("done")

    async def failed(self) -> None:
        """Records that the job has failed, so that another client may run it."""
        await self._finish("failed")

    async def _leave(self, error: Optional[BaseException]) -> None:
        try:
            await (self.done() if error is None else self.failed())
        except errors.Error:
            if error is None:
                raise
