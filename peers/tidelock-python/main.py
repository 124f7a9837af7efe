"""tidelock for Python, with the private server that `connect` starts."""

import driver
import tidelock


class Kept:
    """A lock as the driver uses it: one that is acquired and released."""

    def __init__(self, lock):
        self.lock = lock

    def acquire(self):
        self.held = self.lock.acquire()
        return True

    def release(self):
        self.held.release()


class Tidelock:
    def __init__(self, servers):
        self.locks = tidelock.connect(f"redis://{servers[0]}", ttl=driver.lease())

    def lock(self, name):
        return Kept(self.locks.mutex(name))

    def attempt(self, name):
        return lambda lock=self.locks.mutex(name): lock.try_acquire() is not None

    def read_write(self, name):
        return Kept(self.locks.shared(name)), Kept(self.locks.mutex(name))

    def close(self):
        self.locks.close()


driver.main(Tidelock)
