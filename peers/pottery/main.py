"""pottery, on one server or several that vote."""

import driver
from pottery import Redlock
from redis import Redis


class Patient(Redlock):
    def acquire(self):
        # Where many want a lock of five servers nobody may have it for a minute: the driver shall look at the time.
        return super().acquire(timeout=1)


class Pottery:
    def __init__(self, servers):
        masters = {Redis.from_url(f"redis://{server}") for server in servers}
        self.options = {"masters": masters, "auto_release_time": driver.lease()}

    def lock(self, name):
        return Patient(key=name, **self.options)

    def attempt(self, name):
        lock = Redlock(key=name, **self.options)
        return lambda: lock.acquire(blocking=False)


driver.main(Pottery)
