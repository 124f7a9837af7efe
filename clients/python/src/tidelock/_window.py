"""What a client may rely on: the window of one hold, the same for threads and for asyncio."""

import json
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import errors
from ._clock import now_ns

# `json.loads` looks for the encoding first, which is known, and for space around the value, of which there is none.
_decode = json.JSONDecoder().raw_decode
#: Told how many are ahead in the queue, and behind whom the lock is waited for.
OnWaiting = Callable[[int, Optional[str]], Any]


class Window:
    """Until when a lock is held, counted from before the question that the server answered.

    Lines of the stream never move the deadline: after a pause of this program, a line in the buffer may be older than
    the decision of the server to give the lock away. Only answers to questions of this program do.
    """

    __slots__ = ("hold", "token", "tokens", "ttl_ns", "deadline", "lost", "ended", "details", "trust")

    def __init__(self, granted: Dict[str, Any], noted: int, trust: int = 1_000) -> None:
        #: Nanoseconds for a microsecond that the server says: see `Place.trust`.
        self.trust = trust
        self.details = granted
        self.hold = str(granted["hold"])
        tokens = granted.get("tokens")
        self.tokens: Tuple[int, ...] = tuple(map(int, tokens)) if tokens else (int(granted["token"]),)
        self.token = int(granted["token"]) if "token" in granted else self.tokens[0]
        self.ttl_ns = int(granted["ttl_ms"]) * 1_000_000
        self.deadline = noted + int(granted["until_us"]) * trust
        self.lost: Optional[errors.Lost] = None
        #: Released, or lost: nothing changes any more.
        self.ended = False

    def remaining_ns(self) -> int:
        """How long the lock is still held for, or 0."""
        return 0 if self.ended else max(0, self.deadline - now_ns())

    def confirmed(self, status: int, body: bytes, noted: int) -> None:
        """Takes the answer to a confirmation that was asked for at ``noted``."""
        if status == 200:
            deadline = noted + int(json.loads(body)["until_us"]) * self.trust
            # The window that has ended is not opened again: others may have acted on it.
            if not self.ended and now_ns() < self.deadline:
                self.deadline = max(self.deadline, deadline)
        elif status in (404, 410):
            self.lose(errors.from_answer(status, body).message)

    def read(self, line: bytes) -> None:
        """Takes a line of the stream."""
        told = json.loads(line)
        event = told.get("event")
        if event == "lost":
            self.lose(str(told.get("message") or told.get("reason")), told)
        elif event in ("released", "error"):
            self.lose(str(told.get("message") or "the server released the lock"), told)

    def lose(self, message: str, details: Optional[Dict[str, Any]] = None) -> bool:
        """Ends the window. Says whether that is news."""
        if self.ended:
            return False
        self.ended = True
        self.lost = errors.Lost(message, details=details)
        return True

    def expire(self) -> bool:
        """Ends the window if its time has passed. Says whether that is news."""
        if self.ended or now_ns() < self.deadline:
            return False
        return self.lose("the server did not confirm the lock in time: it may be held by another client now")

    def end(self) -> None:
        """Ends the window because the program releases."""
        self.ended = True


def first_line(
    line: bytes, noted: int, on_waiting: Optional[OnWaiting] = None, trust: int = 1_000
) -> Optional[Window]:
    """What a line before the grant says: the lock is held, or not yet (`None`), or an error is raised."""
    text = line.decode()
    told, end = _decode(text)
    if end != len(text):
        told = json.loads(text)
    event = told.get("event")
    if event == "granted":
        return Window(told, noted, trust)
    if event == "waiting":
        if on_waiting is not None:
            on_waiting(int(told.get("ahead") or 0), told.get("behind"))
        return None
    if event == "lost":
        raise errors.from_details({**told, "kind": "lost"}, 410)
    raise errors.from_details(told, int(told.get("status") or 500))


def released(lines: List[bytes]) -> bool:
    """Whether a stream says that its hold has ended as the client asked. Raises what it says instead."""
    for line in lines:
        if line == b'{"event":"released"}':
            return True
        told = json.loads(line)
        if told.get("event") == "lost":
            raise errors.Lost(str(told.get("message") or told.get("reason")), details=told)
        if told.get("event") == "error":
            raise errors.from_details(told, int(told.get("status") or 500))
    return False


def check_ended(status: int, body: bytes) -> None:
    """Raises what an answer says unless the hold has ended as the client asked."""
    if status == 200:
        return
    error = errors.from_answer(status, body)
    raise errors.Lost(error.message, details=error.details) if status in (404, 410) else error
