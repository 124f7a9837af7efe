"""What can go wrong. Every error has a kind, a sentence for people, and whether to try again."""

import json
from typing import Any, Dict, Optional, Type


class Error(Exception):
    """The base of all errors of tidelock."""

    kind = "internal"
    retryable = False

    def __init__(
        self,
        message: str,
        *,
        kind: Optional[str] = None,
        retryable: Optional[bool] = None,
        details: Optional[Dict[str, Any]] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind or type(self).kind
        self.retryable = type(self).retryable if retryable is None else retryable
        #: The whole answer of the server, such as the ``holder`` of a lock that is busy.
        self.details = details or {}


class Busy(Error):
    """Another client holds the lock, and the call does not wait."""

    kind = "busy"
    retryable = True


class TimedOut(Error):
    """The lock was not acquired within ``wait``."""

    kind = "timed_out"
    retryable = True


class Lost(Error):
    """The lock is not held any more: stop the work that it protects."""

    kind = "lost"


class Unavailable(Error):
    """The store or the server did not answer. What was asked may have been done or not."""

    kind = "unavailable"
    retryable = True


class Refused(Error):
    """The request or the configuration is wrong, or the program may not do this."""

    kind = "bad_request"


class NotFound(Error):
    """There is no such thing."""

    kind = "not_found"


class TooMany(Error):
    """A limit of the server is reached."""

    kind = "too_many"
    retryable = True


class NotNow(Error):
    """A job that runs once per period has run, or runs at this moment elsewhere."""

    kind = "not_now"


class DoneAlready(NotNow):
    """The job has run in this period."""

    kind = "done_already"


class RunningNow(NotNow):
    """The job runs at this moment on another client."""

    kind = "running_now"


_BY_KIND: Dict[str, Type[Error]] = {
    "busy": Busy,
    "timed_out": TimedOut,
    "lost": Lost,
    "unavailable": Unavailable,
    "not_found": NotFound,
    "no_leader": NotFound,
    "too_many": TooMany,
    "done_already": DoneAlready,
    "running_now": RunningNow,
}
# A kind that this client does not know is told by its status.
_BY_STATUS: Dict[int, Type[Error]] = {
    404: NotFound,
    408: TimedOut,
    409: Busy,
    410: Lost,
    429: TooMany,
    503: Unavailable,
}


def from_details(details: Dict[str, Any], status: int) -> Error:
    """The error that a line or an answer of the server stands for."""
    kind = str(details.get("kind", "internal"))
    known = _BY_KIND.get(kind) or _BY_STATUS.get(status)
    if known is None:
        known = Refused if 400 <= status < 500 else Error
    message = str(details.get("message") or details.get("reason") or kind)
    retryable = details.get("retryable")
    return known(
        message,
        kind=kind,
        retryable=retryable if isinstance(retryable, bool) else None,
        details=details,
    )


def from_answer(status: int, body: bytes) -> Error:
    """The error that an HTTP answer stands for, also if it is not one of ours."""
    try:
        details = json.loads(body)
    except ValueError:
        details = None
    if not isinstance(details, dict):
        text = body.decode("utf-8", "replace").strip()
        details = {"kind": "http", "message": f"the server answered {status}: {text or 'nothing'}"}
    return from_details(details, status)
