"""What every peer in Python does: see ../README.md. A library gives its locks; this times them."""

import json
import sys
import threading
import time

WARM_UP = 50


def say(what):
    print(what, flush=True)


def summary(waits):
    """Percentiles in microseconds of what was waited for, in nanoseconds."""
    waits.sort()
    at = lambda part: waits[min(len(waits) - 1, int(len(waits) * part))] / 1_000 if waits else 0
    return {"p50": at(0.5), "p99": at(0.99), "max": at(1.0)}


def timed(works, millis):
    """Calls each work again and again in a thread of its own. A work says how long it waited, in nanoseconds."""
    say("ready")
    sys.stdin.readline()
    begin = time.monotonic_ns()
    waits = [[] for _ in works]

    def go(work, waits):
        while time.monotonic_ns() - begin < millis * 1_000_000:
            waits.append(work())

    threads = [threading.Thread(target=go, args=pair) for pair in list(zip(works, waits))[1:]]
    for thread in threads:
        thread.start()
    go(works[0], waits[0])
    for thread in threads:
        thread.join()
    seconds = (time.monotonic_ns() - begin) / 1e9
    each = [wait for some in waits for wait in some]
    say(json.dumps({"pairs": len(each), "seconds": seconds, "waits_us": summary(each)}))


def pair(lock):
    def work():
        asked = time.monotonic_ns()
        lock.acquire()
        waited = time.monotonic_ns() - asked
        lock.release()
        return waited

    return work


def main(connect):
    """`connect(servers)` gives an object with `lock(name)`, and `attempt(name)` if a busy lock can be tried."""
    verb, servers, name, *more = sys.argv[1:]
    library = connect(servers.split(","))
    if verb == "pairs":
        tasks, millis, distinct = int(more[0]), int(more[1]), more[2:] == ["distinct"]
        warm = pair(library.lock(name + "-warm"))
        for _ in range(WARM_UP):
            warm()
        names = [f"{name}-{task}" if distinct else name for task in range(tasks)]
        timed([pair(library.lock(name)) for name in names], millis)
    elif verb == "try" and hasattr(library, "attempt"):
        held = library.lock(name)
        held.acquire()
        attempt = library.attempt(name)

        def work():
            asked = time.monotonic_ns()
            if attempt():
                raise SystemExit("a lock that is held was taken")
            return time.monotonic_ns() - asked

        timed([work], int(more[0]))
        held.release()
    elif verb == "hold":
        locks = [library.lock(f"{name}-{number}") for number in range(int(more[0]))]
        for lock in locks:
            lock.acquire()
        say("ready")
        sys.stdin.readline()
        for lock in locks:
            lock.release()
        say(json.dumps({"pairs": len(locks), "seconds": 0}))
    else:
        print(f"there is no {verb} of this library", file=sys.stderr)
        raise SystemExit(3)
