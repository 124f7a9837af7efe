"""What a thread has of a lock that it holds."""

from types import TracebackType
from typing import Any, Callable, Optional, Tuple, Type

from . import errors
from ._clock import now_ns
from ._keeper import Hold
from ._pool import PATIENCE, Gone
from ._wire import ENDINGS

OnLost = Callable[[errors.Lost], Any]


class Held:
    """A lock that is held, until it is released, lost or dropped."""

    __slots__ = ("_hold", "token", "tokens", "__weakref__")

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        window = hold.window
        #: The fencing token, larger than that of every earlier holder.
        self.token: int = window.token
        #: The tokens of `lock_all`, in the order of the names.
        self.tokens: Tuple[int, ...] = window.tokens

    def is_held(self) -> bool:
        """Whether the lock is held at this moment. Reads the clock, and what the server has said."""
        self._hold.poll()
        return self._hold.window.remaining_ns() > 0

    def remaining(self) -> float:
        """For how many seconds the lock is held even if the server and the store are gone."""
        return self._hold.window.remaining_ns() / 1e9

    def check(self) -> None:
        """Raises `Lost` unless the lock is held."""
        if not self.is_held():
            raise self.lost or errors.Lost(f"{self._hold.shown} is not held any more")

    @property
    def lost(self) -> Optional[errors.Lost]:
        """Why the lock was lost, if it was."""
        self._hold.poll()
        return self._hold.window.lost

    def on_lost(self, callback: OnLost) -> None:
        """Calls `callback` with the `Lost` error when the lock is lost, in a thread of its own."""
        self._hold.on_lost(callback)

    def release(self) -> None:
        """Releases the lock; returns when the store has confirmed that.

        Raises `Lost` if the lock was lost before, and `Unavailable` if the server did not answer; the lock is then
        free as soon as the server or the store notices.
        """
        self._finish("release")

    def _finish(self, ending: str) -> None:
        hold = self._hold
        if not hold.end():
            if hold.window.lost is not None:
                raise hold.window.lost
            return
        pool, window = hold.keeper.pool, hold.window
        if now_ns() >= window.deadline:
            pool.drop(hold.connection)
            window.lost = errors.Lost(f"{hold.shown} was not confirmed in time and may be held by another client")
            raise window.lost
        try:
            if hold.opened:
                hold.connection.end(ENDINGS[ending], PATIENCE)
            else:
                pool.end(hold.connection, window.hold, ending)
        except errors.Lost as error:
            pool.drop(hold.connection)
            window.lost = error
            raise
        except (OSError, Gone) as error:
            pool.drop(hold.connection)
            raise errors.Unavailable(f"the tidelock server did not answer: {error}") from error
        except BaseException:
            pool.drop(hold.connection)
            raise
        pool.put(hold.connection)

    def __enter__(self) -> "Held":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._leave(error)

    def _leave(self, error: Optional[BaseException]) -> None:
        try:
            self.release()
        except errors.Error:
            # What went wrong under the lock is more than that it could not be released.
            if error is None:
                raise

    def __del__(self) -> None:
        hold = getattr(self, "_hold", None)
        if hold is not None and not hold.window.ended:
            hold.abandon()

    def __repr__(self) -> str:
        return f"<tidelock.Held {self._hold.shown} token={self.token} remaining={self.remaining():.3f}>"


class Turn(Held):
    """A job that runs once per period, and whose turn this is."""

    __slots__ = ()

    @property
    def slot(self) -> Optional[str]:
        """The period that it runs for."""
        return self._hold.window.details.get("slot")

    def done(self) -> None:
        """Records that the job has run in this period."""
        self._finish("done")

    def failed(self) -> None:
        """Records that the job has failed, so that another client may run it."""
        self._finish("failed")

    def _leave(self, error: Optional[BaseException]) -> None:
        try:
            if error is None:
                self.done()
            else:
                self.failed()
        except errors.Error:
            if error is None:
                raise
