"""kill -9 of a program that holds, with a ttl of 30 s: the next one holds within moments, on every store."""

import os
import subprocess
import sys
import time
import uuid

import pytest
import tidelock

HOLD = """
import sys, tidelock
locks = tidelock.connect(sys.argv[1])
held = locks.mutex(sys.argv[2], ttl=30).acquire()
print("held", flush=True)
sys.stdin.read()
"""


def place(store, url):
    if store == "redis":
        return url
    given = os.environ.get(f"TIDELOCK_TEST_{store.upper()}")
    if given is None:
        pytest.skip(f"cargo xtask test starts {store}")
    return given


@pytest.mark.parametrize("server", ["private", "shared"])
@pytest.mark.parametrize("store", ["redis", "etcd", "postgres"])
def test_the_next_one_holds_at_once_when_the_holder_is_killed(store, server, url, capsys, tmp_path):
    import stage

    store_url, name = place(store, url), f"killed/{uuid.uuid4().hex}"
    shared = stage.Server(str(tmp_path / "s.sock"), store_url) if server == "shared" else None
    environment = {**os.environ, **({"TIDELOCK_SOCKET": shared.path} if shared else {})}
    program = HOLD.replace("sys.argv[1]", "None") if shared else HOLD
    waits = []
    with tidelock.connect(socket=shared.path) if shared else tidelock.connect(store_url) as locks:
        for _ in range(5):
            holder = subprocess.Popen(
                [sys.executable, "-c", program, store_url, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
            assert holder.stdout.readline() == b"held\n"
            assert locks.mutex(name).try_acquire() is None
            begun = time.monotonic()
            holder.kill()
            # Far less than the ttl: only a lock that was freed by the death of its holder is granted in time.
            with locks.mutex(name, wait=15):
                waits.append((time.monotonic() - begun) * 1_000)
            holder.wait()
    if shared:
        shared.end()
    with capsys.disabled():
        print(f"\nkill -9 to the next, {store}, {server} server: {', '.join(f'{wait:.1f}' for wait in waits)} ms")
