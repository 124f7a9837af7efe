"""One timer for all holds and waits of an event loop."""

import asyncio

from tidelock._alarm import Alarm, Timed


class Item(Timed):
    def __init__(self, rung=None):
        self.rung = rung if rung is not None else asyncio.get_running_loop().create_future()

    def ring(self):
        self.rung.set_result(None)


def test_what_is_due_rings_and_nothing_else():
    async def main():
        alarm = Alarm(asyncio.get_running_loop())
        late, later, gone, first, second = Item(), Item(), Item(), Item(), Item()
        alarm.set(late, 1_000)
        alarm.set(later, 2_000, early=2_000)
        alarm.set(gone, 0.001)
        alarm.set(second, 0.02)
        # Earlier than what the timer was set for.
        alarm.set(first, 0.001)
        alarm.discard(gone)
        await first.rung
        # What may be early goes along.
        await later.rung
        await second.rung
        assert not late.rung.done() and not gone.rung.done()

    asyncio.run(main())


def test_an_item_that_is_set_again_rings_once_at_its_new_time():
    async def main():
        alarm = Alarm(asyncio.get_running_loop())
        moved, other = Item(), Item()
        alarm.set(moved, 0.001)
        alarm.set(moved, 1_000)
        alarm.set(other, 0.02)
        await other.rung
        assert not moved.rung.done()
        alarm.set(moved, 0)
        await moved.rung

    asyncio.run(main())


def test_an_item_may_set_itself_when_it_rings():
    async def main():
        alarm = Alarm(asyncio.get_running_loop())
        done = asyncio.get_running_loop().create_future()
        rings = []

        class Again(Timed):
            def ring(self):
                rings.append(self)
                if len(rings) < 3:
                    alarm.set(self, 0.001)
                else:
                    done.set_result(None)

        alarm.set(Again(), 0.001)
        await done
        assert len(rings) == 3

    asyncio.run(main())
