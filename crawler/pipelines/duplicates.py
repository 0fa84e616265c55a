"""First stage: is this content stored already? By the hash of its bytes."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha1

from crawler.core.page import Page
from crawler.pipelines.stage import Stage
from crawler.scheduler.flights import Flight


class DuplicatesPipeline(Stage):
    async def work(self, page: Page, flight: Flight) -> Page:
        # Error pages and empty bodies are all alike and prove nothing.
        if page.status != 200 or not page.body:
            return page
        digest = sha1(page.body, usedforsecurity=False).digest()
        original = await self.parts.digests.original(digest, page.url, page.lease_id)
        if original is not None:
            flight.reason = "duplicate"
        return replace(page, digest=digest, duplicate_of=original)
