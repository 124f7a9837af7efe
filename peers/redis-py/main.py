"""The lock of redis-py."""

import driver
from redis import Redis


class RedisPy:
    def __init__(self, servers):
        self.redis = Redis.from_url(f"redis://{servers[0]}")

    def lock(self, name):
        return self.redis.lock(name, timeout=driver.lease())

    def attempt(self, name):
        lock = self.lock(name)
        return lambda: lock.acquire(blocking=False)


driver.main(RedisPy)
