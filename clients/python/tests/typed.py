"""What people write, for mypy --strict: it is checked and never run."""

from typing import List, Optional

import tidelock


def threads() -> None:
    with tidelock.connect("redis://localhost", ttl="30s") as locks:
        with locks.mutex("orders/42", wait=5, on_lost=lambda lost: print(lost.message)) as held:
            token: int = held.token
            left: float = held.remaining()
            print(token, left, held.is_held())
        maybe: Optional[tidelock.Held] = locks.shared("orders").try_acquire()
        if maybe is not None:
            maybe.release()
        with locks.permits("render", 2, of=5), locks.lock_all(["a", "b"]) as both:
            tokens: List[int] = list(both.tokens)
            print(tokens)
        try:
            with locks.once("report", every="15m") as turn:
                print(turn.slot)
        except tidelock.NotNow as error:
            print(error.kind, error.retryable)
        for leader in locks.election("scheduler").watch():
            print(leader.label if leader else None)
        ticket: tidelock.Ticket = locks.acquire_ticket("deploy", ttl=90)
        locks.release_ticket(locks.renew_ticket(ticket))
        if locks.stock("10001").open(100).take("order-1") is tidelock.Sale.TAKEN:
            print(locks.look("orders/42").holders[0].label)


async def loop() -> None:
    async with await tidelock.aio.connect(socket="/run/tidelock.sock") as locks:
        async with locks.mutex("orders/42", wait=5) as held:
            token: int = held.token
            print(token)
        async for leader in locks.election("scheduler").watch():
            print(leader)
        held = await locks.mutex("x").acquire(wait="1s")
        await held.release()
