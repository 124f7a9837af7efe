"""Three programs and a server, each stopped and killed at random: no two windows may overlap."""

import os
import random
import signal
import time
import uuid

import stage
import tidelock

#: For each program and the server. TIDELOCK_CLIENT_FAULTS=500 for more.
FAULTS = int(os.environ.get("TIDELOCK_CLIENT_FAULTS", 10))
TTL = 1.0


class Hammer:
    """A program that acquires one lock again and again, and notes each moment at which it knew to hold it."""

    def __init__(self, client, folder, socket, name):
        self.client, self.folder = client, folder
        self.environment = {"TIDELOCK_SOCKET": socket, "NAME": name, "TTL": str(TTL)}
        self.starts = 0
        self.start()

    def start(self):
        self.starts += 1
        log = self.folder / f"{self.client}-{self.starts}.log"
        command = stage.program(self.client)
        command[1] = command[1].replace("program.", "hammer.")
        self.process = stage.Process(command, {**self.environment, "LOG": str(log)})


def windows(folder):
    """Of each token, the first and the last moment at which a program knew to hold."""
    found = {}
    for log in folder.glob("*.log"):
        # A line that was cut off by a kill has no end.
        for line in log.read_text().split("\n")[:-1]:
            token, moment = map(int, line.split())
            first, last = found.get(token, (moment, moment))
            found[token] = (min(first, moment), max(last, moment))
    return found


def overlaps(found):
    """Pairs of tokens whose windows overlap, or whose order is not that of the tokens."""
    wrong, latest = [], (0, -1)
    for token in sorted(found):
        first, last = found[token]
        if first <= latest[1]:
            wrong.append((latest[0], token))
        latest = max(latest, (token, last), key=lambda each: each[1])
    return wrong


def test_the_checker_finds_an_overlap():
    assert overlaps({1: (0, 10), 2: (11, 20), 3: (21, 30)}) == []
    assert overlaps({1: (0, 10), 2: (9, 20)}) == [(1, 2)]
    assert overlaps({1: (0, 50), 2: (60, 70), 3: (40, 45)}) == [(2, 3)]


def test_programs_and_their_server_are_stopped_and_killed_at_random(tmp_path, stores):
    seed = int(os.environ.get("TIDELOCK_CLIENT_SEED", uuid.uuid4().int % 1_000_000))
    print(f"seed {seed}")
    chance = random.Random(seed)
    socket, name = str(tmp_path / "s.sock"), f"faults/{uuid.uuid4().hex}"
    server = stage.Server(socket, stores["one"].url)
    hammers = [Hammer(client, tmp_path, socket, name) for client in ("sync", "aio", "node")]
    try:
        targets = [*hammers, "server"] * FAULTS
        chance.shuffle(targets)
        for target in targets:
            process = server if target == "server" else target.process
            if chance.random() < 0.5:
                process.signal(signal.SIGSTOP)
                # How long it is stopped is the fault: shorter and longer than the ttl.
                time.sleep(chance.choice([0.02, 0.2, 0.5, 1.5]) * TTL)
                process.signal(signal.SIGCONT)
            else:
                process.kill()
                if target == "server":
                    server = stage.Server(socket, stores["one"].url)
                else:
                    target.start()
            time.sleep(chance.random() * 0.2)
    finally:
        for hammer in hammers:
            hammer.process.end()
    found = windows(tmp_path)
    print(f"{len(targets)} faults, {len(found)} holds")
    assert overlaps(found) == []
    # Programs were killed, and not all of the time was spent on that.
    assert len(found) > FAULTS
    # Nothing is left held: what killed servers held ends with its ttl.
    with tidelock.connect(socket=socket) as locks:
        with locks.mutex(name, wait=30):
            pass
        view = locks.look(name)
        assert view.holders == () and view.waiters == ()
    server.end()

