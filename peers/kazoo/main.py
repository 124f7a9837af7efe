"""kazoo: its lock, under one session."""

import driver
from kazoo.client import KazooClient


class Kazoo:
    def __init__(self, servers):
        self.client = KazooClient(hosts=",".join(servers), timeout=15)
        self.client.start()

    def lock(self, name):
        return self.client.Lock("/" + name)

    def attempt(self, name):
        lock = self.lock(name)
        return lambda: lock.acquire(blocking=False)


driver.main(Kazoo)
