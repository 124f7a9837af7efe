"""Acquires one lock again and again, and notes each moment at which it knows to hold it: `hammer.py sync|aio`.

The moment is read before the question whether the lock is held, so that it is one at which it was.
"""

import asyncio
import os
import random
import sys
import threading

import tidelock
from tidelock._clock import now_ns

NAME, TTL = os.environ["NAME"], float(os.environ["TTL"])
LOG = os.open(os.environ["LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
#: Holds are shorter and longer than the ttl.
LENGTHS_NS = [0, 1_000_000, 50_000_000, 400_000_000, int(TTL * 2e9)]


def note(held):
    """Whether it is held, and if so it is written down when."""
    moment = now_ns()
    if not held.is_held():
        return False
    os.write(LOG, b"%d %d\n" % (held.token, moment))
    return True


def ended():
    """An event that is set when standard input ends."""
    end = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), end.set()), daemon=True).start()
    return end


def sync():
    end = ended()
    locks = connect(lambda: tidelock.connect())
    while not end.is_set():
        try:
            with locks.mutex(NAME, wait=2, ttl=TTL) as held:
                until = now_ns() + random.choice(LENGTHS_NS)
                while note(held) and now_ns() < until and not end.wait(0.01):
                    pass
        except tidelock.Error as error:
            if not error.retryable and not isinstance(error, tidelock.Lost):
                raise
    locks.close()


def connect(attempt):
    """The server may just be dead."""
    while True:
        try:
            return attempt()
        except tidelock.Unavailable:
            pass


async def aio():
    end = ended()
    while True:
        try:
            locks = await tidelock.aio.connect()
            break
        except tidelock.Unavailable:
            pass
    while not end.is_set():
        try:
            async with locks.mutex(NAME, wait=2, ttl=TTL) as held:
                until = now_ns() + random.choice(LENGTHS_NS)
                while note(held) and now_ns() < until and not end.is_set():
                    await asyncio.sleep(0.01)
        except tidelock.Error as error:
            if not error.retryable and not isinstance(error, tidelock.Lost):
                raise
    await locks.close()


if sys.argv[1] == "aio":
    asyncio.run(aio())
else:
    sync()
