"""pottery: lock and release one name."""

import json
import sys
import time

from pottery import Redlock
from redis import Redis

asked = json.loads(sys.argv[1])
if asked["scenario"] != "pair":
    raise SystemExit(f"no scenario {asked['scenario']}")
masters = {Redis.from_url(f"redis://{server}") for server in asked["servers"]}
lock = Redlock(key="peer", masters=masters, auto_release_time=2)


def pair():
    lock.acquire()
    lock.release()


for _ in range(20):
    pair()
start, pairs = time.perf_counter(), 0
while time.perf_counter() - start < asked["seconds"]:
    pair()
    pairs += 1
print(json.dumps({"pairs": pairs, "seconds": time.perf_counter() - start}))
