"""python-redis-lock, which wakes whoever waits by a list."""

import driver
import redis_lock
from redis import Redis


class PythonRedisLock:
    def __init__(self, servers):
        self.redis = Redis.from_url(f"redis://{servers[0]}")

    def lock(self, name):
        return redis_lock.Lock(self.redis, name, expire=30, auto_renewal=False)

    def attempt(self, name):
        lock = self.lock(name)
        return lambda: lock.acquire(blocking=False)


driver.main(PythonRedisLock)
