"""Questions asked together: each asker gets his own answer, and only that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from crawler.shared.client import Call
from crawler.shared.faults import Unreachable
from crawler.shared.worker.batcher import Batcher


def call(number: int) -> Call:
    return Call(number, "echo", ())


class Shards:
    """Answers each call with its shard, or with the given reply."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.replies: dict[int, Any] = {}
        self.bug: Exception | None = None

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        self.batches.append([each.shard for each in calls])
        if self.bug is not None:
            raise self.bug
        await asyncio.sleep(0)
        return [self.replies.get(each.shard, each.shard) for each in calls]


def test_simultaneous_queries_are_sent_together():
    async def scenario():
        shards = Shards()
        batcher = Batcher(shards.run)
        assert await asyncio.gather(*(batcher.ask(call(n)) for n in range(5))) == list(range(5))
        assert await batcher.ask(call(7)) == 7
        assert shards.batches == [[0, 1, 2, 3, 4], [7]]

    asyncio.run(scenario())


def test_questions_of_one_page_go_out_together():
    async def scenario():
        shards = Shards()
        batcher = Batcher(shards.run)
        both = batcher.ask_all([call(3), call(1)]), batcher.ask_all([call(2)])
        assert await asyncio.gather(*both) == [[3, 1], [2]]
        assert await batcher.ask_all([]) == []
        assert shards.batches == [[3, 1, 2]]

    asyncio.run(scenario())


def test_a_fault_is_an_answer_to_one():
    async def scenario():
        shards = Shards()
        shards.replies[1] = Unreachable("down")
        batcher = Batcher(shards.run)
        first, second = await asyncio.gather(batcher.ask(call(0)), batcher.ask(call(1)))
        assert (first, second) == (0, shards.replies[1])

    asyncio.run(scenario())


def test_a_bug_is_raised_for_all_waiting_callers_and_none_after():
    async def scenario():
        shards = Shards()
        shards.bug = RuntimeError("a bug")
        batcher = Batcher(shards.run)
        both = await asyncio.gather(
            batcher.ask(call(0)), batcher.ask(call(1)), return_exceptions=True
        )
        assert both == [shards.bug, shards.bug]
        shards.bug = None
        assert await batcher.ask(call(2)) == 2

    asyncio.run(scenario())


def test_a_cancelled_caller_is_not_asked_for():
    async def scenario():
        shards = Shards()
        batcher = Batcher(shards.run)
        gone = asyncio.create_task(batcher.ask(call(0)))
        stays = asyncio.create_task(batcher.ask(call(1)))
        await asyncio.sleep(0)
        gone.cancel()
        assert await stays == 1
        assert shards.batches == [[1]]
        alone = asyncio.create_task(batcher.ask(call(2)))
        await asyncio.sleep(0)
        alone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await alone
        assert await batcher.ask(call(3)) == 3

    asyncio.run(scenario())
