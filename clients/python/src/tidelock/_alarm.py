"""One timer of an event loop for all that may become due: of most of it nothing ever does, and a timer for each would
cost more."""

import asyncio
from typing import Optional, Set

NEVER = float("inf")


class Timed:
    """What an alarm rings for."""

    #: When it is due, in the time of the loop, and by how much earlier it may be called together with others.
    at: float
    early: float

    def ring(self) -> None:
        raise NotImplementedError


class Alarm:
    """Rings for all items of an event loop."""

    __slots__ = ("_loop", "_items", "_rings", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: Set[Timed] = set()
        self._rings = NEVER
        self._timer: Optional[asyncio.TimerHandle] = None

    def set(self, item: Timed, seconds: float, early: float = 0.0) -> None:
        item.at = at = self._loop.time() + seconds
        item.early = early
        self._items.add(item)
        if at < self._rings:
            self._arm(at)

    def discard(self, item: Timed) -> None:
        # The timer stays: the next item is usually due later.
        self._items.discard(item)

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings = at
        self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._rings, self._timer = NEVER, None
        # A loop calls its timers up to a tick of its clock too early.
        now = self._loop.time() + 0.001
        due = [item for item in self._items if item.at - item.early <= now]
        self._items.difference_update(due)
        # Before they are called, which may set them again.
        if self._items:
            self._arm(min(item.at for item in self._items))
        for item in due:
            item.ring()
