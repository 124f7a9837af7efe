"""A program under test: reads steps as JSON lines, does them with the client, and answers each with a line.

`program.py sync|aio`; the server is in TIDELOCK_SOCKET or the store in TIDELOCK_URL.
"""

import asyncio
import json
import os
import queue
import sys
import threading
import time

import tidelock

SEE_LIMIT = 30.0


def count_under_lock(path):
    """Adds one to the number in a file in two steps, which only works for one process at a time."""
    with open(path, "r+") as file:
        text = file.read()
        number, _, holder = text.partition(" ")
        if holder:
            return f"overlap with {holder}"
        file.seek(0)
        file.write(f"{number} {os.getpid()}")
        file.flush()
        file.seek(0)
        file.truncate()
        file.write(str(int(number) + 1))
    return None


def options(step):
    return {key: step[key] for key in ("wait", "ttl") if key in step}


def lock_of(locks, step):
    share = step.get("share", "exclusive")
    if "names" in step:
        return locks.lock_all(step["names"], **options(step))
    if share == "shared":
        return locks.shared(step["name"], **options(step))
    if isinstance(share, dict):
        return locks.permits(step["name"], share["permits"], of=share["of"], **options(step))
    return locks.mutex(step["name"], **options(step))


def seen(view, step):
    return len(view.holders) == step["holders"] and len(view.waiters) == step["waiters"]


def not_seen(view):
    return {"result": f"{len(view.holders)} holders, {len(view.waiters)} waiters"}


def total(path):
    with open(path) as file:
        return {"result": file.read()}


def failed(error):
    result = "refused" if isinstance(error, tidelock.Refused) else error.kind
    return {"result": result, "message": error.message, "retryable": error.retryable}


class Sync:
    def __init__(self):
        self.locks = tidelock.connect(os.environ.get("TIDELOCK_URL"))
        self.held = {}
        self.lost = {}

    def lock(self, step):
        held = lock_of(self.locks, step).acquire()
        self.held[step["as"]] = held
        news = self.lost[step["as"]] = queue.Queue()
        held.on_lost(news.put)
        return {"result": "held", "token": str(held.token)}

    def release(self, step):
        self.held[step["as"]].release()
        return {"result": "released"}

    def is_held(self, step):
        return {"result": "held" if self.held[step["as"]].is_held() else "not_held"}

    def lost_(self, step):
        return {"result": self.lost[step["as"]].get(timeout=SEE_LIMIT).kind}

    def see(self, step):
        end = time.monotonic() + SEE_LIMIT
        while not seen(view := self.locks.look(step["name"]), step):
            if time.monotonic() > end:
                return not_seen(view)
        return {"result": "seen"}

    def evict(self, step):
        claim = self.locks.look(step["name"]).holders[0].claim
        return {"result": "evicted" if self.locks.evict(step["name"], claim, step["reason"]) else "nobody"}

    def count(self, step):
        for _ in range(step["times"]):
            with self.locks.mutex(step["name"]):
                wrong = count_under_lock(step["file"])
            if wrong:
                return {"result": wrong}
        return {"result": "counted"}

    def total(self, step):
        return total(step["file"])

    def run(self):
        for line in sys.stdin:
            step = json.loads(line)
            try:
                answer = getattr(self, {"lost": "lost_"}.get(step["do"], step["do"]))(step)
            except tidelock.Error as error:
                answer = failed(error)
            print(json.dumps(answer), flush=True)
        self.locks.close()


class Aio:
    def __init__(self):
        self.held = {}
        self.lost = {}

    async def lock(self, step):
        held = await lock_of(self.locks, step).acquire()
        self.held[step["as"]] = held
        news = self.lost[step["as"]] = asyncio.Queue()
        held.on_lost(news.put_nowait)
        return {"result": "held", "token": str(held.token)}

    async def release(self, step):
        await self.held[step["as"]].release()
        return {"result": "released"}

    async def is_held(self, step):
        return {"result": "held" if self.held[step["as"]].is_held() else "not_held"}

    async def lost_(self, step):
        return {"result": (await asyncio.wait_for(self.lost[step["as"]].get(), SEE_LIMIT)).kind}

    async def see(self, step):
        end = time.monotonic() + SEE_LIMIT
        while not seen(view := await self.locks.look(step["name"]), step):
            if time.monotonic() > end:
                return not_seen(view)
        return {"result": "seen"}

    async def evict(self, step):
        claim = (await self.locks.look(step["name"])).holders[0].claim
        return {"result": "evicted" if await self.locks.evict(step["name"], claim, step["reason"]) else "nobody"}

    async def count(self, step):
        for _ in range(step["times"]):
            async with self.locks.mutex(step["name"]):
                wrong = count_under_lock(step["file"])
            if wrong:
                return {"result": wrong}
        return {"result": "counted"}

    async def total(self, step):
        return total(step["file"])

    async def run(self):
        self.locks = await tidelock.aio.connect(os.environ.get("TIDELOCK_URL"))
        steps = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def read():
            for line in sys.stdin:
                loop.call_soon_threadsafe(steps.put_nowait, json.loads(line))
            loop.call_soon_threadsafe(steps.put_nowait, None)

        threading.Thread(target=read, daemon=True).start()
        while (step := await steps.get()) is not None:
            try:
                answer = await getattr(self, {"lost": "lost_"}.get(step["do"], step["do"]))(step)
            except tidelock.Error as error:
                answer = failed(error)
            print(json.dumps(answer), flush=True)
        await self.locks.close()


if __name__ == "__main__":
    if sys.argv[1] == "aio":
        asyncio.run(Aio().run())
    else:
        Sync().run()
