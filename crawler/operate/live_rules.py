"""The operator's rules in a crawl that runs: they are read again when they change.

Rule: rules with an error are not in force: the earlier ones stay, and the log says why.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import Final

from crawler.assembly.crawl import Crawl
from crawler.model.types import ConfigError, CrawlerError, HostKey
from crawler.policy.operator_rules import OperatorRules, read_rules

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.5
"""Between two looks whether the rules have changed: they are to be in force within two seconds."""
_ENDED_AT_ONCE: Final = 500  # rests, in one turn of the event loop: 10 ms


class LiveRules:
    """Keeps the rules of a running crawl up to date, and carries out what follows from them."""

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl
        self._began = crawl.leases.clock.now()
        self._looking = asyncio.Lock()

    async def work(self) -> None:
        """Look for changes for ever."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Put the rules in force if they have changed."""
        async with self._looking:
            try:
                written = await self._crawl.operator_store.changed()
                if written is None:
                    return
                levels = len(self._crawl.settings.config.frontier.level_shares)
                rules = await asyncio.to_thread(read_rules, written, levels)
            except ConfigError as error:
                logger.error("The rules stay as they were: %s", error)
            except CrawlerError as fault:
                logger.debug("The rules cannot be read now: %s", fault)
            else:
                await self._apply(rules)

    async def _apply(self, rules: OperatorRules) -> None:
        crawl = self._crawl
        ended_rests = crawl.loop.put_in_force(rules)
        logger.info("Rules in force: %d", len(rules.rules))
        await self._end_rests(ended_rests)
        crawl.lifecycle.wake()
        if rules.stopped is not None and rules.stopped > self._began:
            crawl.lifecycle.stop("operator")

    async def _end_rests(self, paused: dict[HostKey, float]) -> None:
        """End rests for pauses. Hosts that are still paused rest again at their next turn."""
        rests = iter(paused.items())
        while some := dict(islice(rests, _ENDED_AT_ONCE)):
            self._crawl.leases.frontier.end_rests(some, self._crawl.leases.clock.now())
            await asyncio.sleep(0)
