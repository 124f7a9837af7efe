"""The requests that both clients send: paths and bodies, and nothing that waits."""

import os
import sys
from typing import Any, Dict, Optional, Sequence, Union
from urllib.parse import quote

from . import errors
from ._wire import opened, request, segment

#: A time in seconds, or text with a unit such as ``"15m"``.
Duration = Union[int, float, str]


def default_label() -> str:
    """How this program is called in ``look`` unless it says something else."""
    program = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "python"
    program = "".join(c for c in program if c.isprintable())[:64] or "python"
    return f"{program} (pid {os.getpid()})"


def seconds(duration: Optional[Duration]) -> Optional[float]:
    """A time as a number of seconds."""
    if duration is None or isinstance(duration, (int, float)):
        return duration
    units = (("ms", 0.001), ("us", 0.000_001), ("s", 1.0), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0))
    for unit, factor in units:
        if duration.endswith(unit):
            try:
                return float(duration[: -len(unit)]) * factor
            except ValueError:
                break
    raise errors.Refused(f"{duration!r} is no time: write 1.5, '200ms', '30s' or '5m'")


def body(**fields: Any) -> Dict[str, Any]:
    """A body with the fields that are set."""
    return {key: value for key, value in fields.items() if value is not None}


#: Nothing comes before the outcome, so that its status tells what it is.
QUIET = {"progress": False}


class Hold:
    """How a stream is asked for: a path, and a body to which each attempt adds how long it may wait."""

    def __init__(self, path: str, shown: str, fields: Dict[str, Any], wait: Optional[Duration]) -> None:
        self.path = path
        #: What errors call it.
        self.shown = shown
        # The server may take the lock away if this program does not confirm that it lives: see _window.py.
        self.fields = {"confirm": True, **body(**fields)}
        self.wait = seconds(wait)

    def request(self, wait: Optional[float], settings: Dict[str, Any], progress: bool, token: Optional[str]) -> bytes:
        """The request, with the settings of a client."""
        fields = {**settings, **self.fields}
        if progress:
            fields["progress"] = True
        if wait is not None:
            fields["wait"] = round(max(0.0, wait), 6)
        return opened(self.path, fields, token) if stays_open(wait) else request("POST", self.path, fields, token)


def stays_open(wait: Optional[float]) -> bool:
    """Whether the body of a request stays open, so that the release needs no other connection.

    A try often fails. Then there is nothing to release, and with a whole body the connection can be used again.
    """
    return wait is None or wait > 0


def lock(name: str, **fields: Any) -> Hold:
    wait = fields.pop("wait", None)
    return Hold(f"/v1/locks/{segment(name)}", f"lock {name!r}", {**fields, **QUIET}, wait)


def lock_all(names: Sequence[str], **fields: Any) -> Hold:
    wait = fields.pop("wait", None)
    if isinstance(names, str):
        raise errors.Refused("lock_all takes a list of names, not one name")
    return Hold("/v1/locks", f"locks {list(names)!r}", {"names": list(names), **fields, **QUIET}, wait)


def campaign(name: str, **fields: Any) -> Hold:
    wait = fields.pop("wait", None)
    return Hold(f"/v1/elections/{segment(name)}", f"election {name!r}", {**fields, **QUIET}, wait)


def once(name: str, **fields: Any) -> Hold:
    return Hold(f"/v1/once/{segment(name)}", f"job {name!r}", fields, None)


def listing(prefix: Optional[str]) -> str:
    return "/v1/locks" if prefix is None else f"/v1/locks?prefix={quote(prefix, safe='')}"


def claim(name: str, claim: str, reason: Optional[str]) -> str:
    path = f"/v1/locks/{segment(name)}/claims/{segment(claim)}"
    return path if reason is None else f"{path}?reason={quote(reason, safe='')}"


def stock(item: str, verb: str = "") -> str:
    return f"/v1/stock/{segment(item)}" + (f"/{verb}" if verb else "")
