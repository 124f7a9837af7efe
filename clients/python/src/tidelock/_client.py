"""The client for threads: what people call."""

import atexit
import json
import os
import weakref
from typing import Any, Dict, List, Optional, Sequence

from . import _calls, errors
from ._calls import Duration
from ._clock import now_ns
from ._held import OnLost
from ._lock import Client, Election, Lock, Once
from ._pool import PATIENCE, Pool
from ._server import Place
from ._stock import Stock
from ._window import OnWaiting
from ._wire import segment
from .values import LockView, Ticket

_ALL: "weakref.WeakSet[Client]" = weakref.WeakSet()


class Locks:
    """A client: locks of one store, through one server. Threads may share it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        _ALL.add(client)

    def mutex(
        self,
        name: str,
        *,
        wait: Optional[Duration] = None,
        ttl: Optional[Duration] = None,
        owner: Optional[str] = None,
        label: Optional[str] = None,
        max_hold: Optional[Duration] = None,
        on_lost: Optional[OnLost] = None,
        on_waiting: Optional[OnWaiting] = None,
    ) -> Lock:
        """A lock that one client holds at a time. `wait`: 0 only tries, `None` waits for ever."""
        call = _calls.lock(name, wait=wait, ttl=ttl, owner=owner, label=label, max_hold=max_hold)
        return Lock(self._client, call, on_lost, on_waiting)

    def shared(
        self,
        name: str,
        *,
        wait: Optional[Duration] = None,
        ttl: Optional[Duration] = None,
        owner: Optional[str] = None,
        label: Optional[str] = None,
        max_hold: Optional[Duration] = None,
        on_lost: Optional[OnLost] = None,
    ) -> Lock:
        """The lock of readers: many hold it at a time, but not together with a `mutex` of the name."""
        call = _calls.lock(name, wait=wait, ttl=ttl, owner=owner, label=label, max_hold=max_hold, share="shared")
        return Lock(self._client, call, on_lost)

    def permits(
        self,
        name: str,
        count: int = 1,
        *,
        of: int,
        wait: Optional[Duration] = None,
        ttl: Optional[Duration] = None,
        owner: Optional[str] = None,
        label: Optional[str] = None,
        max_hold: Optional[Duration] = None,
        on_lost: Optional[OnLost] = None,
    ) -> Lock:
        """`count` of the `of` permits of a semaphore."""
        share = {"permits": count, "of": of}
        call = _calls.lock(name, wait=wait, ttl=ttl, owner=owner, label=label, max_hold=max_hold, share=share)
        return Lock(self._client, call, on_lost)

    def lock_all(
        self,
        names: Sequence[str],
        *,
        wait: Optional[Duration] = None,
        ttl: Optional[Duration] = None,
        label: Optional[str] = None,
        on_lost: Optional[OnLost] = None,
    ) -> Lock:
        """Several locks, all or none, without deadlock."""
        return Lock(self._client, _calls.lock_all(names, wait=wait, ttl=ttl, label=label), on_lost)

    def election(
        self,
        name: str,
        *,
        advertise: Optional[str] = None,
        wait: Optional[Duration] = None,
        ttl: Optional[Duration] = None,
        label: Optional[str] = None,
        on_lost: Optional[OnLost] = None,
    ) -> Election:
        """An election: one of the candidates leads until it is lost or resigns."""
        call = _calls.campaign(name, advertise=advertise, wait=wait, ttl=ttl, label=label)
        return Election(self._client, call, on_lost)

    def once(
        self,
        name: str,
        *,
        every: Optional[Duration] = None,
        slot: Optional[str] = None,
        ttl: Optional[Duration] = None,
        label: Optional[str] = None,
        retry_failed: Optional[bool] = None,
        on_lost: Optional[OnLost] = None,
    ) -> Once:
        """A job that runs once per period (`every`), or once for a named `slot`."""
        call = _calls.once(name, every=every, slot=slot, ttl=ttl, label=label, retry_failed=retry_failed)
        return Once(self._client, call, on_lost)

    def look(self, name: str) -> LockView:
        """Who holds a lock and who waits for it."""
        return LockView.read(self._client.ask("GET", f"/v1/locks/{segment(name)}"))

    def look_all(self, prefix: Optional[str] = None) -> List[LockView]:
        """All locks that are held or waited for."""
        return LockView.read_all(self._client.ask("GET", _calls.listing(prefix)))

    def evict(self, name: str, claim: str, reason: Optional[str] = None) -> bool:
        """Takes a claim away. Its client is told; what it does meanwhile is not prevented."""
        try:
            return bool(self._client.ask("DELETE", _calls.claim(name, claim, reason)).get("evicted", True))
        except errors.NotFound:
            return False

    def acquire_ticket(
        self,
        name: str,
        *,
        ttl: Duration,
        wait: Optional[Duration] = None,
        owner: Optional[str] = None,
        label: Optional[str] = None,
    ) -> Ticket:
        """Acquires a lock that outlives this program: until it is released, or `ttl` ends without a renewal."""
        fields = self._client.named(_calls.body(ttl=ttl, wait=wait, owner=owner, label=label))
        limit = 86_400.0 if wait is None else (_calls.seconds(wait) or 0.0) + PATIENCE
        return self._ticket(f"/v1/tickets/{segment(name)}", fields, None, limit)

    def renew_ticket(self, ticket: "Ticket | str") -> Ticket:
        """Renews a ticket for another ttl. Raises `Lost` if it has ended."""
        return self._ticket("/v1/tickets/renew", {"ticket": str(ticket)}, str(ticket), PATIENCE)

    def _ticket(self, path: str, fields: Dict[str, Any], text: Optional[str], limit: float) -> Ticket:
        noted = now_ns()
        # Not again: the first question may have left a ticket behind.
        status, body = self._client.pool.ask("POST", path, fields, again=text is not None, limit=limit)
        if status >= 300:
            raise errors.from_answer(status, body)
        told = json.loads(body)
        until = noted + int(told["until_us"]) * 1_000
        return Ticket(text or str(told["ticket"]), int(told["token"]), max(0, until - now_ns()) / 1e9)

    def release_ticket(self, ticket: "Ticket | str") -> None:
        """Releases a ticket. Raises `Lost` if it has ended."""
        self._client.ask("POST", "/v1/tickets/release", {"ticket": str(ticket)}, again=False)

    def stock(self, item: str) -> Stock:
        """The stock of an item."""
        return Stock(self._client, item)

    def abilities(self) -> Any:
        """What the store and the server can do."""
        return self._client.ask("GET", "/v1/abilities")

    def close(self) -> None:
        """Releases all that is held, and ends a private server."""
        self._client.close()

    def __enter__(self) -> "Locks":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(
    url: Optional[str] = None,
    *,
    socket: Optional[str] = None,
    token: Optional[str] = None,
    ca: Optional[str] = None,
    ttl: Optional[Duration] = None,
    label: Optional[str] = None,
) -> Locks:
    """Connects to a store, by its URL, through a private server that ends with this program.

    With `socket`, or without a URL and with `TIDELOCK_SOCKET` in the environment, it connects to a server that runs
    already: a path, or with a `token` `tcp:HOST:PORT` or `https://HOST:PORT`, whose certificate was signed by `ca`, a
    file, or by those that the system trusts.
    """
    client = Client(Pool(Place(url, socket, token, ca)), ttl, label)
    try:
        client.ask("GET", "/healthz")
    except BaseException:
        client.close()
        raise
    return Locks(client)


def _after_fork_in_child() -> None:
    for client in list(_ALL):
        client.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


@atexit.register
def _close_all() -> None:
    for client in list(_ALL):
        client.close()
