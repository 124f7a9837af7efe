"""What asyncio adds: cancellation in both directions, and several event loops."""

import asyncio
import os
import signal
import threading
import uuid

import pytest
import stage
import tidelock


@pytest.fixture
def name():
    return f"test/{uuid.uuid4().hex}"


def play(url, work):
    """Runs a coroutine function with a client."""

    async def run():
        async with await tidelock.aio.connect(url) as locks:
            await asyncio.wait_for(work(locks), stage.LIMIT)

    asyncio.run(run())


async def evict(locks, name):
    await locks.evict(name, (await locks.look(name)).holders[0].claim, "test")


def test_a_task_is_cancelled_when_its_lock_is_lost_and_gets_lost(url, name):
    async def work(locks):
        with pytest.raises(tidelock.Lost):
            async with locks.mutex(name):
                await evict(locks, name)
                await asyncio.Event().wait()
        # The cancellation is used up.
        await asyncio.sleep(0)

    play(url, work)


def test_a_task_that_others_cancel_stays_cancelled_and_releases(url, name):
    async def work(locks):
        inside = asyncio.Event()

        async def hold():
            async with locks.mutex(name):
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(hold())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with locks.mutex(name, wait=30):
            pass

    play(url, work)


def test_a_waiter_that_is_cancelled_leaves_the_queue(url, name):
    async def work(locks):
        async with locks.mutex(name):
            waiter = asyncio.ensure_future(locks.mutex(name, label="a waiter of its own").acquire())
            while len((await locks.look(name)).waiters) != 1:
                pass
            waiter.cancel()
            while len((await locks.look(name)).waiters) != 0:
                pass

    play(url, work)


def test_many_tasks_exclude_each_other(url, name):
    async def work(locks):
        inside, total = [0], [0]
        lock = locks.mutex(name)

        async def go():
            for _ in range(10):
                async with lock:
                    inside[0] += 1
                    assert inside[0] == 1
                    await asyncio.sleep(0)
                    total[0] += 1
                    inside[0] -= 1

        await asyncio.gather(*(go() for _ in range(20)))
        assert total == [200]

    play(url, work)


def test_several_event_loops_share_a_client(url, name):
    locks = asyncio.run(tidelock.aio.connect(url))
    inside, total, broken = [0], [0], []

    async def go():
        for _ in range(20):
            async with locks.mutex(name):
                inside[0] += 1
                assert inside[0] == 1
                total[0] += 1
                inside[0] -= 1

    def loop():
        try:
            asyncio.run(go())
        except BaseException as error:
            broken.append(error)

    threads = [threading.Thread(target=loop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not broken
    assert total == [80]
    asyncio.run(locks.close())


def test_a_loop_that_was_busy_does_not_believe_what_it_held(url, name):
    async def work(locks):
        with tidelock.connect(url) as other:
            held = await locks.mutex(name).acquire()
            # The loop does not run while this thread waits.
            other.evict(name, other.look(name).holders[0].claim)
            with other.mutex(name, wait=30):
                while held.is_held():
                    pass
            with pytest.raises(tidelock.Lost):
                await held.release()

    play(url, work)


def test_a_child_does_not_inherit_holds(url, name):
    async def work(locks):
        async with locks.mutex(name) as held:
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(write, b"held" if held.is_held() else str(held.lost).encode())
                os._exit(0)
            os.close(write)
            with os.fdopen(read) as said:
                assert "parent process" in said.read()
            os.waitpid(child, 0)
            assert held.is_held()

    play(url, work)


def test_a_private_server_that_was_killed_is_a_loss_and_is_started_again(url, name):
    async def work(locks):
        with pytest.raises(tidelock.Lost):
            async with locks.mutex(name, ttl=1):
                os.kill(locks._client.links.place.server.pid, signal.SIGKILL)
                await asyncio.Event().wait()
        async with locks.mutex(name, wait=30):
            pass

    play(url, work)


def test_once_election_tickets_and_stock(url, name):
    async def work(locks):
        async with locks.once(name, every="1d") as turn:
            assert turn.is_held()
        with pytest.raises(tidelock.DoneAlready):
            await locks.once(name, every="1d").acquire()
        election = locks.election(name + "/e", advertise="here")
        assert await election.leader() is None
        async with election as term:
            leader = await election.leader()
            assert leader is not None and leader.token == term.token
        ticket = await locks.acquire_ticket(name + "/t", ttl=60)
        await locks.release_ticket(await locks.renew_ticket(ticket))
        stock = await locks.stock(name).open(1)
        assert await stock.take("a") is tidelock.Sale.TAKEN
        assert await stock.take("b") is tidelock.Sale.SOLD_OUT

    play(url, work)


def test_many_holds_are_confirmed_together_over_few_connections(url, name):
    async def work(locks):
        count = 150
        helds = await asyncio.gather(*(locks.mutex(f"{name}/{n}", ttl=3).acquire() for n in range(count)))
        first = [held._window.deadline for held in helds]
        open_before = len(locks._client.links.open)
        while not all(held._window.deadline > before for held, before in zip(helds, first)):
            assert all(held.is_held() for held in helds)
            await asyncio.sleep(0.01)
        # Each hold has its own, and those for confirmations carry many.
        assert len(locks._client.links.open) <= open_before + count // 64 + 1
        await asyncio.gather(*(held.release() for held in helds))

    play(url, work)


def test_a_client_is_used_by_one_event_loop_after_the_other(url, name):
    locks = asyncio.run(tidelock.aio.connect(url))

    async def pair():
        async with locks.mutex(name, wait=30) as held:
            return held.token

    tokens = [asyncio.run(pair()) for _ in range(3)]
    assert tokens == sorted(set(tokens))
    # The loops that have ended are forgotten.
    assert len(locks._client.links._locals) == 1
    asyncio.run(locks.close())
