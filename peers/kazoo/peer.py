"""Takes a lock with kazoo, as often as it is told to.

    peer.py contend SERVERS PATH mutex|read|write WITNESS TIMES   says "overlaps N"
    peer.py hold SERVERS PATH mutex|read|write                    holds until its standard input ends
"""

import os
import sys

from kazoo.client import KazooClient


def say(what):
    print("@" + what, flush=True)


def lock_of(client, path, kind):
    return {"mutex": client.Lock, "read": client.ReadLock, "write": client.WriteLock}[kind](path)


def contend(lock, witness, times):
    """The holder makes a file that must not be there, and removes it."""
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
    client.stop()


main(*sys.argv[1:])
