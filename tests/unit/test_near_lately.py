"""Near pages of one worker: the second waits, and what was stored is known at once."""

from __future__ import annotations

import asyncio

import pytest

from crawler.core.types import Claim
from crawler.storage.redis.worker.near_lately import Flights, Lately


def claim(name):
    return Claim(name.encode(), f"http://a/{name}")


async def soon(story):
    task = asyncio.create_task(story)
    for _ in range(5):
        await asyncio.sleep(0)
    return task


@pytest.mark.parametrize(
    ("other", "waits"),
    [
        pytest.param(0b0, True, id="the same"),
        pytest.param(0b111, True, id="three bits apart"),
        pytest.param(0b1111, False, id="four bits apart"),
    ],
)
def test_who_is_near_to_a_page_in_flight_waits_for_it(other, waits):
    async def story():
        flights = Flights(3)
        await flights.board(0, 1)
        second = await soon(flights.board(other, 2))
        assert second.done() is not waits
        flights.land(1)
        await asyncio.wait_for(second, 1.0)

    asyncio.run(story())


def test_of_many_near_ones_one_at_a_time_goes_on():
    async def story():
        flights = Flights(3)
        waiting = {lease: await soon(flights.board(lease % 4, lease)) for lease in range(8)}
        gone = []
        while waiting:
            done = [lease for lease, task in waiting.items() if task.done()]
            assert len(done) == 1
            gone += done
            del waiting[done[0]]
            flights.land(done[0])
            await soon(asyncio.sleep(0))
        assert sorted(gone) == list(range(8))

    asyncio.run(asyncio.wait_for(story(), 5.0))


def test_who_goes_away_while_it_waits_holds_up_nobody():
    async def story():
        flights = Flights(3)
        await flights.board(0, 1)
        second = await soon(flights.board(0, 2))
        second.cancel()
        await asyncio.wait({second})
        flights.land(1)
        await asyncio.wait_for(flights.board(0, 3), 1.0)
        flights.land(2)
        assert flights.of(2) is None

    asyncio.run(story())


def test_what_was_stored_lately_is_near():
    lately = Lately()
    lately.add(0b1000, claim("x"))
    assert [(bits, one.url) for bits, one in lately.near(0b1011, 3)] == [(2, "http://a/x")]
    assert lately.near(0b0111, 3) == []


def test_nothing_stored_is_near_to_nothing():
    assert Lately().near(0, 3) == []


def test_the_oldest_make_room():
    lately = Lately(most=3)
    for number in range(5):
        lately.add(number << 8, claim(str(number)))
    found = [lately.near(number << 8, 0) for number in range(5)]
    assert [bool(each) for each in found] == [False, False, True, True, True]
