"""What a program in Python relies on beyond the scenarios: its private server, fork, threads, errors."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid

import pytest
import stage
import tidelock


@pytest.fixture
def locks(url):
    with tidelock.connect(url) as locks:
        yield locks


@pytest.fixture
def name():
    return f"test/{uuid.uuid4().hex}"


def until(condition, what):
    """Waits for a condition that will hold."""
    end = time.monotonic() + stage.LIMIT
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.005)


def server_of(locks):
    return locks._client.pool.place.server.pid


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_with_holds_in_the_block_and_releases_behind_it(locks, name):
    with locks.mutex(name, wait=5) as held:
        assert held.is_held()
        assert 0 < held.remaining() <= 30
        assert locks.look(name).holders[0].token == held.token
        assert f"(pid {os.getpid()})" in locks.look(name).holders[0].label
    assert not held.is_held()
    assert locks.look(name).holders == ()
    held.release()  # Once more is nothing.


def test_an_error_in_the_block_releases_and_stays_what_it_is(locks, name):
    with pytest.raises(ZeroDivisionError):
        with locks.mutex(name):
            1 / 0
    assert locks.mutex(name).try_acquire() is not None


def test_a_block_whose_lock_is_lost_ends_with_lost(locks, name):
    with pytest.raises(tidelock.Lost) as caught:
        with locks.mutex(name) as held:
            locks.evict(name, locks.look(name).holders[0].claim, "deploy")
            until(lambda: not held.is_held(), "the loss")
            assert held.lost is not None
    assert caught.value.kind == "lost"
    assert not caught.value.retryable


def test_busy_names_the_holder(locks, name):
    with locks.mutex(name, label="worker-7"):
        with pytest.raises(tidelock.Busy) as caught:
            locks.mutex(name, wait=0).acquire()
    assert caught.value.retryable
    assert "worker-7" in caught.value.message


def test_on_lost_is_called_without_anybody_asking(locks, name):
    told = threading.Event()
    held = locks.mutex(name, on_lost=lambda lost: told.set()).acquire()
    locks.evict(name, locks.look(name).holders[0].claim)
    assert told.wait(stage.LIMIT)
    assert not held.is_held()


def test_a_hold_lives_longer_than_its_ttl_and_the_program_is_known_to_live(locks, name):
    held = locks.mutex(name, ttl=0.6).acquire()
    begun = time.monotonic()
    deadlines = set()

    def renewed():
        assert held.is_held()
        deadlines.add(held._hold.window.deadline)
        return len(deadlines) >= 5

    until(renewed, "five confirmations")
    assert time.monotonic() - begun > 0.6
    held.release()


def test_a_hold_that_is_dropped_is_released(locks, name):
    locks.mutex(name).acquire()
    gc.collect()
    with locks.mutex(name, wait=30):
        pass


def test_max_hold_ends_a_hold(locks, name):
    held = locks.mutex(name, max_hold=0.3).acquire()
    until(lambda: not held.is_held(), "the end of the longest hold")


def test_threads_share_a_client(locks, name):
    total, broken = [0], []
    lock = locks.mutex(name)

    def work():
        try:
            for _ in range(20):
                with lock:
                    before = total[0]
                    time.sleep(0)
                    total[0] = before + 1
        except BaseException as error:
            broken.append(error)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not broken
    assert total == [320]


def test_connections_are_used_again(locks, name):
    for _ in range(50):
        with locks.mutex(name):
            pass
    assert len(locks._client.pool.open) <= 3


def test_a_private_server_ends_with_close(url):
    with tidelock.connect(url) as locks:
        server = server_of(locks)
        assert is_alive(server)
    assert not is_alive(server)
    with pytest.raises(tidelock.Refused):
        locks.mutex("x").acquire()


PROGRAM = """
    import os, sys, tidelock
    locks = tidelock.connect(sys.argv[1])
    held = locks.mutex(sys.argv[2], ttl=30).acquire()
    print(locks._client.pool.place.server.pid, flush=True)
"""


def run(program, *arguments, **more):
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more)


@pytest.mark.parametrize("end", ["return", "exit", "kill"])
def test_a_private_server_ends_with_its_program(url, name, end, locks):
    last = {"return": "", "exit": "os._exit(3)", "kill": "sys.stdin.read()"}[end]
    program = run(PROGRAM + f"    {last}\n", url, name)
    server = int(program.stdout.readline())
    if end == "kill":
        program.kill()
    program.wait()
    until(lambda: not is_alive(server), "the end of the server")
    assert locks.mutex(name, wait=30).acquire() is not None


def test_a_private_server_that_was_killed_is_started_again(locks, name):
    held = locks.mutex(name, ttl=1).acquire()
    first = server_of(locks)
    os.kill(first, signal.SIGKILL)
    until(lambda: not held.is_held(), "the loss")
    with locks.mutex(name, wait=30):
        assert server_of(locks) != first


def test_a_child_does_not_inherit_holds_and_is_told(locks, name):
    with locks.mutex(name) as held:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            said = "nothing"
            try:
                assert not held.is_held()
                try:
                    held.release()
                except tidelock.Lost as lost:
                    said = lost.message
                # The client works in the child, with a server of its own.
                assert locks.mutex(name).try_acquire() is None
                with locks.mutex(name + "/child", wait=5):
                    pass
                locks.close()
            except BaseException as error:
                said = repr(error)
            os.write(write, said.encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as said:
            assert "parent process" in said.read()
        os.waitpid(child, 0)
        assert held.is_held()


def test_a_child_has_its_own_label(url, locks, name):
    lock = locks.mutex(name)
    lock.acquire().release()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with lock:
            os.write(write, locks.look(name).holders[0].label.encode())
        locks.close()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        assert f"(pid {child})" in said.read()
    os.waitpid(child, 0)


def test_a_child_does_not_keep_the_lock_of_a_killed_parent(url, name, locks):
    program = run(
        PROGRAM
        + """
    child = os.fork()
    if child == 0:
        sys.stdin.read()
        os._exit(0)
    print(child, flush=True)
    sys.stdin.read()
""",
        url,
        name,
    )
    server, child = int(program.stdout.readline()), int(program.stdout.readline())
    os.kill(program.pid, signal.SIGKILL)
    until(lambda: not is_alive(server), "the end of the server")
    with locks.mutex(name, wait=20):
        assert is_alive(child)
    program.stdin.close()
    program.wait()


def test_a_wrong_url_is_said_at_once():
    with pytest.raises(tidelock.Error) as caught:
        tidelock.connect("nosuchstore://x")
    assert "nosuchstore" in caught.value.message
    assert not caught.value.retryable


def test_a_server_that_is_not_there_is_said_at_once(tmp_path):
    with pytest.raises(tidelock.Unavailable) as caught:
        tidelock.connect(socket=str(tmp_path / "none.sock"))
    assert caught.value.retryable
    assert "none.sock" in caught.value.message


def test_a_url_is_not_an_argument_of_the_server(url):
    with tidelock.connect(url) as locks:
        with open(f"/proc/{server_of(locks)}/cmdline") as file:
            assert url not in file.read()


def test_waiters_are_told_their_place(locks, name):
    places = []
    with locks.mutex(name, label="first"):
        waiter = locks.mutex(name, wait=0.3, on_waiting=lambda ahead, behind: places.append((ahead, behind)))
        with pytest.raises(tidelock.TimedOut):
            waiter.acquire()
    assert "first" in str(places[0][1])


def test_a_ticket_outlives_the_program_that_acquired_it(url, name, locks):
    with tidelock.connect(url) as other:
        ticket = other.acquire_ticket(name, ttl=60)
        assert 0 < ticket.remaining <= 60
    assert locks.mutex(name).try_acquire() is None
    assert locks.renew_ticket(ticket.text).token == ticket.token
    locks.release_ticket(ticket)
    with pytest.raises(tidelock.Lost):
        locks.release_ticket(ticket)
    assert locks.mutex(name).try_acquire() is not None


def test_a_job_runs_once_per_period_and_again_after_a_failure(locks, name):
    with pytest.raises(ZeroDivisionError):
        with locks.once(name, every="1d", retry_failed=True):
            1 / 0
    with locks.once(name, every="1d", retry_failed=True) as turn:
        assert turn.is_held()
        with pytest.raises(tidelock.RunningNow):
            locks.once(name, every="1d").acquire()
    with pytest.raises(tidelock.DoneAlready):
        locks.once(name, every="1d").acquire()


def test_an_election_has_a_leader_that_watchers_see(locks, name):
    election = locks.election(name, advertise="http://here")
    assert election.leader() is None
    seen = locks.election(name).watch()
    assert next(seen) is None
    with election as term:
        leader = election.leader()
        assert leader is not None and leader.advertised == "http://here"
        assert leader.token == term.token
        told = next(seen)
        assert told is not None and told.token == term.token
    assert next(seen) is None
    seen.close()


def test_stock_is_sold_once_per_order(locks, name):
    stock = locks.stock(name).open(3, segments=1)
    assert stock.take("a", 2) is tidelock.Sale.TAKEN
    assert stock.take("a", 2) is tidelock.Sale.TAKEN
    assert stock.reserve("b", 1, ttl=60) is tidelock.Sale.RESERVED
    assert stock.take("c") is tidelock.Sale.SOLD_OUT
    assert stock.confirm("b")
    assert stock.remaining() == 0
    assert stock.give_back("a")
    assert stock.remaining() == 2


def test_look_all_lists_what_is_held(locks, name):
    with locks.mutex(f"{name}/a"), locks.shared(f"{name}/b"):
        assert {view.name for view in locks.look_all(prefix=name)} == {f"{name}/a", f"{name}/b"}


def test_asking_whether_it_is_held_does_not_wait(locks, name):
    with locks.mutex(name) as held:
        # Nothing comes from the server before a third of the ttl, ten seconds.
        asked = threading.Thread(target=held.is_held, daemon=True)
        asked.start()
        asked.join(8)
        assert not asked.is_alive()
