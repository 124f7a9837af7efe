"""Stock, for threads."""

from typing import Any, Optional

from . import _calls
from ._calls import Duration
from ._lock import Client
from .values import Sale


class Stock:
    """Limited inventory that many clients sell from."""

    def __init__(self, locks: Client, item: str) -> None:
        self._locks = locks
        self._item = item

    def _post(self, verb: str, **fields: Any) -> Any:
        return self._locks.ask("POST", _calls.stock(self._item, verb), _calls.body(**fields))

    def open(self, amount: int, segments: Optional[int] = None) -> "Stock":
        """Creates the stock, or finds it."""
        self._post("open", amount=amount, segments=segments)
        return self

    def take(self, order: str, amount: int = 1) -> Sale:
        """Sells to an order. The same order is sold to once, also if it asks again."""
        return Sale(self._post("take", order=order, amount=amount)["sale"])

    def reserve(self, order: str, amount: int = 1, ttl: Duration = 60) -> Sale:
        """Reserves for an order, which must `confirm` within `ttl`."""
        return Sale(self._post("reserve", order=order, amount=amount, ttl=ttl)["sale"])

    def confirm(self, order: str) -> bool:
        """Makes a reservation a sale. False: it has expired."""
        return bool(self._post("confirm", order=order)["confirmed"])

    def give_back(self, order: str) -> bool:
        """Returns what an order has. False: it has nothing."""
        return bool(self._post("give_back", order=order)["given_back"])

    def remaining(self) -> int:
        """How many items are left."""
        return int(self._locks.ask("GET", _calls.stock(self._item))["remaining"])
