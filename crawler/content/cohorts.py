"""Pages that are ready together go through each step of their processing together.

Rule: a cohort is let in as soon as all pages before it are through, or wait for something else than
the loop; so a slow callback, pipeline or store holds up none but its own page. Until it is full, it
waits as long as more pages come at each turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

MOST_PAGES: Final = 32
"""In a cohort. With 16 a page costs 3 % more, and with 64 as much."""


class Cohorts:
    """Cohort scheduling (Larus and Parkes, "Using cohort scheduling to enhance server performance",
    USENIX 2002).

    The code and tables of one page's processing do not fit into a core's second-level cache. So
    they would be loaded again for each page, which takes longer than some of them need to run.
    Where many pages do the same step one after the other, only the first finds the cache cold.
    """

    def __init__(self, fetched_at_once: int) -> None:
        """At most half of the pages *fetched_at_once* are in a cohort: if all were, none would be
        fetched meanwhile, which is a tenth fewer pages a second."""
        self._most_pages = max(1, min(MOST_PAGES, fetched_at_once // 2))
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._waited = 0  # how many waited after the last look
        self._is_between_steps = False  # some page has ended a step since the last look
        self._were_many = False  # pages were let in together the last time

    async def join(self) -> None:
        """Wait to be let in with a cohort. O(1)."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            loop.call_soon(self._look)
        await turn

    async def end_step(self) -> None:
        """Let the others of the cohort do the step that this page has done."""
        if self._were_many:
            self._is_between_steps = True
            await asyncio.sleep(0)

    async def give_turn(self) -> None:
        """Let other pages do the step that this one has done, before it joins a cohort."""
        if self._were_many:
            await asyncio.sleep(0)

    def _look(self) -> None:
        """Let the next cohort in if the last one is through. Called at each turn of the loop while
        any page waits."""
        waiting, before, self._waited = len(self._waiting), self._waited, len(self._waiting)
        if self._is_between_steps:
            self._is_between_steps = False
        elif waiting == before or waiting >= self._most_pages:
            cohort = [
                self._waiting.popleft() for _ in range(min(self._most_pages, len(self._waiting)))
            ]
            for turn in cohort:
                if not turn.done():  # its task was cancelled
                    turn.set_result(None)
            self._were_many = self._is_between_steps = len(cohort) > 1
            self._waited = len(self._waiting)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._look)
