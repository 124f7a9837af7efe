"""pottery, on one server or several that vote."""

import driver
from pottery import Redlock
from redis import Redis


class Pottery:
    def __init__(self, servers):
        self.masters = {Redis.from_url(f"redis://{server}") for server in servers}

    def lock(self, name):
        return Redlock(key=name, masters=self.masters, auto_release_time=30)

    def attempt(self, name):
        lock = self.lock(name)
        return lambda: lock.acquire(blocking=False)


driver.main(Pottery)
