"""What calls give back."""

import enum
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple


def _token(value: Any) -> Optional[int]:
    return None if value is None else int(value)


@dataclass(frozen=True)
class Claim:
    """One that holds a lock or waits for it."""

    claim: str
    label: str
    owner: Optional[str]
    share: str
    token: Optional[int]
    age: float
    expires_in: float
    details: Dict[str, Any]

    @classmethod
    def read(cls, told: Dict[str, Any]) -> "Claim":
        return cls(
            claim=str(told["claim"]),
            label=str(told.get("label") or ""),
            owner=told.get("owner"),
            share=str(told.get("share", "exclusive")),
            token=_token(told.get("token")),
            age=int(told.get("age_ms") or 0) / 1_000,
            expires_in=int(told.get("expires_in_ms") or 0) / 1_000,
            details=told,
        )


@dataclass(frozen=True)
class LockView:
    """Who holds a lock and who waits for it."""

    name: str
    token: Optional[int]
    holders: Tuple[Claim, ...]
    waiters: Tuple[Claim, ...]

    @classmethod
    def read(cls, told: Dict[str, Any]) -> "LockView":
        return cls(
            name=str(told["name"]),
            token=_token(told.get("token")),
            holders=tuple(map(Claim.read, told.get("holders") or ())),
            waiters=tuple(map(Claim.read, told.get("waiters") or ())),
        )

    @classmethod
    def read_all(cls, told: Any) -> "List[LockView]":
        return [cls.read(each) for each in (told if isinstance(told, list) else told["locks"])]


@dataclass(frozen=True)
class Leader:
    """Who leads an election."""

    label: str
    advertised: Optional[str]
    token: int
    leads_for: float

    @classmethod
    def read(cls, told: Optional[Dict[str, Any]]) -> "Optional[Leader]":
        if told is not None and "leader" in told:
            told = told["leader"]
        if told is None:
            return None
        return cls(
            label=str(told.get("label") or ""),
            advertised=told.get("advertised"),
            token=int(told["token"]),
            leads_for=int(told.get("leads_for_ms") or 0) / 1_000,
        )


@dataclass(frozen=True)
class Ticket:
    """A lock that outlives the program: its text is the right to renew and to release it."""

    text: str
    token: int
    #: Seconds, counted from before the question.
    remaining: float

    def __str__(self) -> str:
        return self.text


class Sale(enum.Enum):
    """What came of an order."""

    TAKEN = "taken"
    RESERVED = "reserved"
    SOLD_OUT = "sold_out"
    RETURNED = "returned"
    CLOSED = "closed"
