"""The fetches under way, so that a stop can end them all.

Rule: a fetch that we end fails with DownloadCancelledError; its host has no part in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from scrapy.exceptions import DownloadCancelledError

T = TypeVar("T")


class Transfers:
    """Of one download handler. O(1) a fetch."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()
        self._ended: set[asyncio.Task[object]] = set()

    async def run(self, fetch: Awaitable[T]) -> T:
        """Await *fetch* in the present task, which Scrapy gave to this one request."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine that awaits runs in a task"
        self._tasks.add(task)
        try:
            return await fetch
        except asyncio.CancelledError as error:
            if task not in self._ended:
                raise
            raise DownloadCancelledError("the crawl stops") from error
        finally:
            self._tasks.discard(task)
            self._ended.discard(task)

    def cancel_all(self) -> None:
        """End those under way. Later ones are not concerned."""
        for task in self._tasks - self._ended:
            self._ended.add(task)
            task.cancel()

    def __len__(self) -> int:
        return len(self._tasks)
