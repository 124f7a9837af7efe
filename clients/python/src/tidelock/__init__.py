"""Distributed locks on the store you already run: Redis, etcd, ZooKeeper, PostgreSQL, MySQL or files.

    import tidelock

    locks = tidelock.connect("redis://localhost")
    with locks.mutex("orders/42", wait=5) as held:
        write_order(held.token)

`tidelock.aio` is the same for asyncio.
"""

from . import aio
from ._client import Locks, connect
from ._held import Held, Turn
from ._lock import Election, Lock, Once
from ._stock import Stock
from .errors import (
    Busy,
    DoneAlready,
    Error,
    Lost,
    NotFound,
    NotNow,
    Refused,
    RunningNow,
    TimedOut,
    TooMany,
    Unavailable,
)
from .values import Claim, Leader, LockView, Sale, Ticket

__version__ = "0.1.0"

__all__ = [
    "Busy",
    "Claim",
    "DoneAlready",
    "Election",
    "Error",
    "Held",
    "Leader",
    "Lock",
    "LockView",
    "Locks",
    "Lost",
    "NotFound",
    "NotNow",
    "Once",
    "Refused",
    "RunningNow",
    "Sale",
    "Stock",
    "Ticket",
    "TimedOut",
    "TooMany",
    "Turn",
    "Unavailable",
    "aio",
    "connect",
]
