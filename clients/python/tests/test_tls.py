"""A server with TLS, as one on another machine is used."""

import asyncio
import json
import os
import pathlib
import subprocess
import threading

import pytest
import tidelock
import tidelock.aio
from tidelock._server import binary

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def certificates():
    given = os.environ.get("TIDELOCK_TEST_CERTIFICATES")
    if given is None:
        pytest.skip("cargo xtask test makes certificates")
    return pathlib.Path(given)


@pytest.fixture
def address(certificates, tmp_path):
    token, key = tmp_path / "token", tmp_path / "key"
    token.write_text(TOKEN)
    key.write_text((certificates / "server.key").read_text())
    for private in (token, key):
        private.chmod(0o600)
    command = [binary(), "serve", "--listen", "tcp:127.0.0.1:0", "--url", f"file:{tmp_path}/locks", "--token-file", token]
    command += ["--tls-cert", certificates / "server.crt", "--tls-key", key, "--until-stdin-closes"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        listen = json.loads(server.stdout.readline())["listen"]
        yield listen.replace("tcp:", "https://")
        server.stdin.close()


def test_locks_are_held_over_tls(address, certificates):
    with tidelock.connect(socket=address, token=TOKEN, ca=str(certificates / "ca.crt"), ttl=1) as locks:
        for _ in range(3):
            with locks.mutex("job") as held:
                assert held.is_held() and locks.mutex("job").try_acquire() is None
        held, lost = locks.mutex("job", ttl=30).acquire(), threading.Event()
        held.on_lost(lambda _: lost.set())
        locks.evict("job", locks.look("job").holders[0].claim)
        assert lost.wait(30) and not held.is_held()
        with pytest.raises(tidelock.Lost):
            held.release()


def test_locks_are_held_over_tls_in_an_event_loop(address, certificates):
    async def hold():
        async with await tidelock.aio.connect(socket=address, token=TOKEN, ca=str(certificates / "ca.crt")) as locks:
            for _ in range(3):
                async with locks.mutex("job") as held:
                    assert held.is_held() and await locks.mutex("job").try_acquire() is None

    asyncio.run(hold())


def test_a_server_that_is_not_trusted_and_a_wrong_token_are_refused(address, certificates):
    with pytest.raises(tidelock.Unavailable, match="certificate"):
        tidelock.connect(socket=address, token=TOKEN, ca=str(certificates / "foreign-ca.crt"))
    with pytest.raises(tidelock.Error) as refused:
        tidelock.connect(socket=address, token="wrong" * 8, ca=str(certificates / "ca.crt"))
    assert refused.value.kind == "unauthorized"
    with pytest.raises(tidelock.Refused, match="cannot be read"):
        tidelock.connect(socket=address, token=TOKEN, ca="/nowhere")
    with pytest.raises(tidelock.Error):
        tidelock.connect(socket=address.replace("https://", "tcp:"), token=TOKEN)
