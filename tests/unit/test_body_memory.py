"""Bodies share one memory: which fetches wait for room, which never do, and that all end."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.content.body_memory import FREE_BYTES
from tests.harness.body_memory import Memory
from tests.harness.waiting import run_in_virtual_time

MOST = 10 * FREE_BYTES
CHUNK = FREE_BYTES // 2


class Body:
    """One of a lease, that grows."""

    def __init__(self, memory: Memory, lease_id: int) -> None:
        self.memory = memory
        _, self.fetch = memory.leased(lease_id)
        self.share = memory.share_of(self.fetch)

    def add(self, by_bytes: int) -> Body:
        self.memory.add(self.share, by_bytes)
        return self

    def has_room(self, by_bytes: int = CHUNK) -> bool:
        return self.memory.has_room(self.share, by_bytes)

    async def grow(self, to_bytes: int, by_bytes: int = CHUNK) -> None:
        """As a download does."""
        while self.share.bytes < to_bytes:
            if not self.has_room(by_bytes):
                await self.memory.wait_for_room(self.share, by_bytes)
            self.add(by_bytes)
            await asyncio.sleep(0)

    def end(self) -> None:
        self.memory.end(self.fetch)


def full() -> tuple[Memory, Body, Body]:
    """Return a memory and the leases that hold it."""
    memory = Memory(MOST)
    return memory, Body(memory, 1).add(MOST // 2), Body(memory, 2).add(MOST // 2)


def test_up_to_the_maximum_all_may_grow() -> None:
    memory = Memory(MOST)
    one, other = Body(memory, 1).add(MOST // 2), Body(memory, 2).add(FREE_BYTES)
    assert one.has_room(MOST // 2 - FREE_BYTES) and other.has_room(MOST // 2 - FREE_BYTES)
    assert not other.has_room(MOST // 2 - FREE_BYTES + 1)


def test_the_oldest_large_one_never_waits() -> None:
    _, oldest, other = full()
    assert oldest.has_room(100 * MOST) and not other.has_room(1)
    oldest.end()
    assert other.has_room(100 * MOST), "it is the oldest now"


def test_the_body_that_has_been_large_longest_has_room() -> None:
    memory = Memory(MOST)
    small, large = Body(memory, 1).add(1), Body(memory, 2).add(MOST)
    assert large.has_room()
    assert not small.add(FREE_BYTES).has_room()


def test_small_bodies_pass_a_full_memory() -> None:
    memory, *_ = full()
    late = Body(memory, 3)
    assert late.has_room(FREE_BYTES) and not late.has_room(FREE_BYTES + 1)
    assert late.add(FREE_BYTES - 1).has_room(1) and not late.has_room(2)


def test_a_page_that_ends_gives_back_all_it_had() -> None:
    memory, one, other = full()
    for body in (one, other, Body(memory, 3).add(7)):
        body.end()
        body.end()
    assert memory.used_bytes == 0


def test_bytes_after_the_end_of_a_lease_do_not_count() -> None:
    memory = Memory(MOST)
    body = Body(memory, 1).add(7)
    body.end()
    body.add(7)
    assert memory.used_bytes == 0 and body.has_room(100 * MOST)


def test_two_fetches_under_one_lease_have_one_share() -> None:
    memory = Memory(MOST)
    body = Body(memory, 1)
    assert memory.share_of(body.fetch) is body.share


def test_requests_beside_a_page_neither_count_nor_wait() -> None:
    """It may be what the page waits for that holds the memory."""
    memory, *_ = full()
    share = memory.share_of(None)
    memory.add(share, MOST)
    assert memory.used_bytes == MOST
    assert memory.has_room(share, MOST) and memory.is_lease_safe(share)


def test_room_goes_to_the_oldest_that_waits() -> None:
    order: list[int] = []

    async def taken(body: Body, by_bytes: int) -> None:
        await body.memory.wait_for_room(body.share, by_bytes)
        body.add(by_bytes)
        order.append(body.fetch.lease.id)

    async def life() -> None:
        memory, oldest, other = full()
        late = [Body(memory, n).add(FREE_BYTES + 1) for n in (3, 4, 5)]  # to 13 of 10
        waiting = [asyncio.ensure_future(taken(body, FREE_BYTES)) for body in reversed(late)]
        await asyncio.sleep(0)
        other.end()  # 8 of 10, and three bytes
        await asyncio.sleep(0.1)
        assert order == [3], "there is no room for two"
        oldest.end()
        await asyncio.gather(*waiting)

    run_in_virtual_time(life())
    assert order == [3, 4, 5]


def test_a_wait_for_memory_is_counted_with_its_time() -> None:
    memory, oldest, other = full()
    checks: list[float] = []

    async def life() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(2.5, oldest.end)
        await memory.wait_for_room(other.share, 1, lambda: checks.append(loop.time()))

    run_in_virtual_time(life())
    assert checks == pytest.approx([0.0, 1.0, 2.0])
    assert memory.counted == {"memory/pauses": 1, "memory/paused_ms": 2_500}
    assert other.fetch.paused_s == pytest.approx(2.5)
    assert other.fetch.fetched_s(10.0) == pytest.approx(7.5)


@pytest.mark.parametrize("is_called_before", [True, False], ids=["called", "still waiting"])
def test_a_cancelled_fetch_lets_the_next_one_continue(is_called_before: bool) -> None:
    async def life() -> None:
        memory, _, other = full()
        late = [Body(memory, n).add(FREE_BYTES) for n in (3, 4)]
        first, second = (
            asyncio.ensure_future(memory.wait_for_room(body.share, FREE_BYTES)) for body in late
        )
        await asyncio.sleep(0)
        if is_called_before:
            other.end()
        first.cancel()
        await asyncio.wait([first])
        other.end()
        await second
        assert first.cancelled()

    run_in_virtual_time(life())


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    max_bytes=st.sampled_from([1, FREE_BYTES, MOST]),
    caps=st.lists(st.integers(1, 3 * MOST), min_size=1, max_size=20),
)
def test_all_get_to_their_end_within_the_bound(seed: int, max_bytes: int, caps: list[int]) -> None:
    random, memory = Random(seed), Memory(max_bytes)
    most_bytes = max_bytes + 2 * max(caps) + len(caps) * (FREE_BYTES + CHUNK)

    async def page(lease_id: int, cap: int) -> None:
        await asyncio.sleep(random.random())
        body = Body(memory, lease_id)
        await body.grow(cap)
        if random.random() < 0.3:  # decoded at once, to a size not known before
            if not body.has_room(cap):
                await memory.wait_for_room(body.share, cap)
            body.add(random.randrange(cap + 1))
        assert memory.used_bytes <= most_bytes
        await asyncio.sleep(random.random())  # in the pipelines
        body.end()

    async def life() -> None:
        async with asyncio.TaskGroup() as pages:
            for number, cap in enumerate(caps):
                pages.create_task(page(number, cap))

    run_in_virtual_time(life())
    assert memory.used_bytes == 0
