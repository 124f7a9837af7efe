"""python-redis-lock, which wakes waiters by a list."""

import logging
import math

import driver
import redis_lock
from redis import Redis

# Each try that fails is a warning, and all of them would be printed.
logging.getLogger("redis_lock").setLevel(logging.ERROR)


class PythonRedisLock:
    def __init__(self, servers):
        self.redis = Redis.from_url(f"redis://{servers[0]}")

    def lock(self, name):
        # Whole seconds only.
        return redis_lock.Lock(self.redis, name, expire=math.ceil(driver.lease()), auto_renewal=False)

    def kept(self, name):
        return redis_lock.Lock(self.redis, name, expire=math.ceil(driver.lease()), auto_renewal=True)

    def attempt(self, name):
        lock = self.lock(name)
        return lambda: lock.acquire(blocking=False)


driver.main(PythonRedisLock)
