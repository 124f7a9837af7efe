"""kazoo: its locks, under one session."""

import driver
from kazoo.client import KazooClient


class Kazoo:
    def __init__(self, servers):
        self.client = KazooClient(hosts=",".join(servers), timeout=driver.lease())
        self.client.start()

    def lock(self, name):
        return self.client.Lock("/" + name)

    def attempt(self, name):
        lock = self.lock(name)
        return lambda: lock.acquire(blocking=False)

    def read_write(self, name):
        return self.client.ReadLock("/" + name), self.client.WriteLock("/" + name)

    def close(self):
        self.client.stop()


driver.main(Kazoo)
