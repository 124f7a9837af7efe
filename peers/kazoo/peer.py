"""Takes a lock with kazoo, as often as it is told to.

    peer.py contend SERVERS PATH mutex|read|write WITNESS TIMES   says "overlaps N"
    peer.py hold SERVERS PATH mutex|read|write                    holds until its standard input ends
    peer.py pairs SERVERS PATH MILLIS                             says "pairs N nanos N"
"""

import os
import sys
import time

from kazoo.client import KazooClient


def say(what):
    print("@" + what, flush=True)


def lock_of(client, path, kind):
    return {"mutex": client.Lock, "read": client.ReadLock, "write": client.WriteLock}[kind](path)


def contend(lock, witness, times):
    """Whoever holds makes a file that must not be there, and removes it."""
    say("ready")
    sys.stdin.readline()
    overlaps = 0
    for _ in range(times):
        lock.acquire()
        try:
            os.close(os.open(witness, os.O_CREAT | os.O_EXCL))
            os.remove(witness)
        except FileExistsError:
            overlaps += 1
        lock.release()
    say(f"overlaps {overlaps}")
    # The other one goes on against nobody.
    sys.stdin.readline()


def pairs(client, path, millis):
    warm, lock = client.Lock(path + "-warm"), client.Lock(path)
    for _ in range(100):
        warm.acquire()
        warm.release()
    say("ready")
    sys.stdin.readline()
    done, begin = 0, time.monotonic_ns()
    while time.monotonic_ns() - begin < millis * 1_000_000:
        lock.acquire()
        lock.release()
        done += 1
    say(f"pairs {done} nanos {time.monotonic_ns() - begin}")


def main(what, servers, path, *more):
    client = KazooClient(hosts=servers, timeout=15)
    client.start()
    if what == "contend":
        contend(lock_of(client, path, more[0]), more[1], int(more[2]))
    elif what == "hold":
        lock = lock_of(client, path, more[0])
        lock.acquire()
        say("held")
        sys.stdin.readline()
        lock.release()
        say("released")
    elif what == "pairs":
        pairs(client, path, int(more[0]))
    client.stop()


main(*sys.argv[1:])
