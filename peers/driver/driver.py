"""What every peer in Python does: see ../README.md. A library gives its locks; this times them."""

import itertools
import json
import os
import sys
import threading
import time
import traceback

WARM_UP = 50
# How long a holder of many locks may take to give them back before it just ends, in seconds.
RELEASE_LIMIT = 2


def lease():
    """For how long a client that dies still holds, in seconds."""
    return int(os.environ.get("LEASE_MS", 30_000)) / 1_000


class Hands:
    """Where the holder writes its number, and how often another one stood there in this turn."""

    def __init__(self):
        path = os.environ.get("HANDS")
        self.file = os.open(path, os.O_RDWR) if path else None
        self.own = os.getpid().to_bytes(4, "little")
        self.count = 0

    def note(self):
        if self.file is not None and os.pread(self.file, 4, 0) != self.own:
            self.count += 1
            os.pwrite(self.file, self.own, 0)


HANDS = Hands()


class Count:
    """A number that nobody may change without the lock: see ../README.md."""

    def __init__(self):
        path = os.environ.get("COUNT")
        self.file = os.open(path, os.O_RDWR) if path else None
        self.begun = False

    def add(self):
        if self.file is None or not self.begun:
            return
        other = int.from_bytes(os.pread(self.file, 4, 8), "little")
        if other:
            raise ValueError(f"the process {other} holds the lock, too")
        os.pwrite(self.file, os.getpid().to_bytes(4, "little"), 8)
        number = int.from_bytes(os.pread(self.file, 8, 0), "little")
        os.pwrite(self.file, (number + 1).to_bytes(8, "little"), 0)
        os.pwrite(self.file, bytes(4), 8)


COUNT = Count()


def say(what):
    print(what, flush=True)


def summary(waits, time):
    """Both in nanoseconds."""
    waits.sort()
    at = lambda part: waits[min(len(waits) - 1, int(len(waits) * part))] / 1_000 if waits else 0
    waits_us = {"p50": at(0.5), "p99": at(0.99), "max": at(1.0)}
    handed = HANDS.count if HANDS.file is not None else None
    return json.dumps({"pairs": len(waits), "seconds": time / 1e9, "waits_us": waits_us, "handed": handed})


def turns(turn):
    """Each line that is read is a turn."""
    COUNT.begun = True
    say("ready")
    for _ in iter(sys.stdin.readline, ""):
        say(turn())


def timed(works, millis):
    """In each turn, calls each work again and again in a thread of its own. A work says how long it waited, in
    nanoseconds, or nothing."""

    over = lambda begin: time.monotonic_ns() - begin >= millis * 1_000_000

    def go(work, begin, waits):
        try:
            while not over(begin):
                waited = work(lambda: over(begin))
                # A task that had nothing when the time ended has waited for nothing.
                if waited is not None:
                    waits.append(waited)
        except Exception:
            traceback.print_exc()
            os._exit(1)

    def turn():
        HANDS.count = 0
        begin = time.monotonic_ns()
        waits = [[] for _ in works]
        threads = [threading.Thread(target=go, args=(work, begin, its)) for work, its in zip(works, waits)]
        for thread in threads[1:]:
            thread.start()
        threads[0].run()
        for thread in threads[1:]:
            thread.join()
        return summary([wait for its in waits for wait in its], time.monotonic_ns() - begin)

    turns(turn)


def wait_for(lock, over=lambda: False):
    """Takes a lock, and says how long it waited: a library that gave up is asked again until it is over."""
    asked = time.monotonic_ns()
    while not lock.acquire():
        if over():
            return None
    return time.monotonic_ns() - asked


def pair(*locks, turn=0):
    """Of the locks of a read-write lock, to read and to write, the second has every tenth turn."""
    turn = itertools.count(turn)

    def work(over):
        lock = locks[-1] if next(turn) % 10 == 9 else locks[0]
        waited = wait_for(lock, over)
        if waited is not None:
            HANDS.note()
            COUNT.add()
            lock.release()
        return waited

    return work


def main(connect):
    """`connect(servers)` gives an object with `lock(name)`, and if the library has such a thing `kept(name)`, a lock
    that is kept whatever its lease, `attempt(name)`, to try a busy lock, `read_write(name)`, the two locks of a
    read-write lock, and `close()`, which ends a session."""
    verb, servers, name, *more = sys.argv[1:]
    library = connect(servers.split(","))
    if verb != "hold":
        warm = pair(library.lock(name + "-warm"))
        for _ in range(WARM_UP):
            warm(lambda: False)
    if verb == "pairs":
        tasks, millis, distinct = int(more[0]), int(more[1]), more[2:] == ["distinct"]
        names = [f"{name}-{task}" if distinct else name for task in range(tasks)]
        timed([pair(library.lock(name)) for name in names], millis)
    elif verb == "read" and hasattr(library, "read_write"):
        tasks, millis = int(more[0]), int(more[1])
        timed([pair(*library.read_write(name), turn=task) for task in range(tasks)], millis)
    elif verb == "try" and hasattr(library, "attempt"):
        held = library.lock(name)
        wait_for(held)
        attempt = library.attempt(name)

        def work(_over):
            asked = time.monotonic_ns()
            if attempt():
                raise ValueError("a lock that is held was taken")
            return time.monotonic_ns() - asked

        timed([work], int(more[0]))
        held.release()
    elif verb == "hold":
        kept = getattr(library, "kept", library.lock)
        locks = [kept(f"{name}-{number}") for number in range(int(more[0]))]
        for lock in locks:
            wait_for(lock)
        turns(lambda: summary([0] * len(locks), 0))
        begin = time.monotonic()
        for lock in locks:
            if time.monotonic() - begin > RELEASE_LIMIT:
                break
            lock.release()
    elif verb == "wait":
        lock = library.lock(name)
        say("ready")
        for _ in iter(sys.stdin.readline, ""):
            waited = wait_for(lock)
            say(summary([waited], waited))
            lock.release()
    else:
        print(f"there is no {verb} of this library", file=sys.stderr)
        raise SystemExit(3)
    getattr(library, "close", lambda: None)()
    # Some libraries leave threads behind.
    os._exit(0)
