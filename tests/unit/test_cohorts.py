"""Pages that are ready together do each step together, and hold up none that come later."""

from __future__ import annotations

import asyncio

from crawler.content.cohorts import Cohorts

STEPS = 3


async def page(cohorts: Cohorts, number: int, done: list[tuple[int, int]]) -> None:
    await cohorts.join()
    for step in range(STEPS):
        if step:
            await cohorts.end_step()
        done.append((step, number))


async def run(pages: int, most: int) -> list[tuple[int, int]]:
    cohorts, done = Cohorts(2 * most), list[tuple[int, int]]()
    await asyncio.gather(*(page(cohorts, number, done) for number in range(pages)))
    return done


def test_each_step_is_done_by_all_of_a_cohort() -> None:
    done = asyncio.run(run(pages=4, most=4))
    assert done == [(step, number) for step in range(STEPS) for number in range(4)]


def test_the_next_cohort_waits_until_the_last_one_is_through() -> None:
    done = asyncio.run(run(pages=5, most=2))
    cohorts = [(0, 1), (2, 3), (4,)]
    assert done == [
        (step, number) for pages in cohorts for step in range(STEPS) for number in pages
    ]


def test_pages_that_come_one_after_the_other_are_gathered() -> None:
    async def crawl() -> list[tuple[int, int]]:
        cohorts, done = Cohorts(8), list[tuple[int, int]]()
        tasks = []
        for number in range(7):
            tasks.append(asyncio.create_task(page(cohorts, number, done)))
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        return done

    done = asyncio.run(crawl())
    assert [number for step, number in done if not step] == list(range(7))
    assert done[:8] == [(step, number) for step in range(2) for number in range(4)]


def test_a_page_that_waits_for_something_else_holds_up_no_other() -> None:
    async def crawl() -> None:
        cohorts, may_go_on, through = Cohorts(4), asyncio.Event(), list[int]()

        async def slow(number: int) -> None:
            await cohorts.join()
            await may_go_on.wait()
            through.append(number)

        async def quick(number: int) -> None:
            await page(cohorts, number, [])
            through.append(number)
            if len(through) == 4:
                may_go_on.set()

        await asyncio.gather(slow(0), slow(1), *map(quick, range(2, 6)))
        assert through == [2, 3, 4, 5, 0, 1]

    asyncio.run(asyncio.wait_for(crawl(), 60))


def test_pages_that_are_in_no_cohort_hold_up_none() -> None:
    async def crawl() -> None:
        cohorts, is_over = Cohorts(4), asyncio.Event()

        async def keep_coming() -> None:
            while not is_over.is_set():
                await cohorts.give_turn()
                await asyncio.sleep(0)

        coming = asyncio.create_task(keep_coming())
        await asyncio.gather(*(page(cohorts, number, []) for number in range(6)))
        is_over.set()
        await coming

    asyncio.run(asyncio.wait_for(crawl(), 60))


def test_a_page_that_is_cancelled_while_it_waits_takes_no_other_with_it() -> None:
    async def crawl() -> list[tuple[int, int]]:
        cohorts, done = Cohorts(4), list[tuple[int, int]]()
        tasks = [asyncio.create_task(page(cohorts, number, done)) for number in range(6)]
        await asyncio.sleep(0)
        for number in (1, 2, 3):
            tasks[number].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return done

    done = asyncio.run(asyncio.wait_for(crawl(), 60))
    assert {number for _, number in done} == {0, 4, 5} and len(done) == 3 * STEPS


def test_a_page_alone_gives_up_no_turn_of_the_loop() -> None:
    async def crawl() -> None:
        cohorts, turns = Cohorts(64), list[None]()

        async def count_turns() -> None:
            while True:
                await asyncio.sleep(0)
                turns.append(None)

        counting = asyncio.create_task(count_turns())
        await cohorts.join()
        before = len(turns)
        for _ in range(100):
            await cohorts.end_step()
        assert len(turns) == before
        counting.cancel()

    asyncio.run(crawl())
