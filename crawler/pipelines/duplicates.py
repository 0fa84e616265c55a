"""Second stage: is this content stored already? By the hash of its bytes.

Rule: of every answer with a body, for the archive keeps no bytes twice; but an error page is the
original of error pages only.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha1

from crawler.core.page import Page
from crawler.pipelines.stage import Stage
from crawler.scheduler.flights import Flight


class DuplicatesPipeline(Stage):
    async def work(self, page: Page, flight: Flight) -> Page:
        if not page.body:
            return page
        digest = sha1(page.body, usedforsecurity=False).digest()
        original = await self.parts.digests.original(digest, page.url, page.lease_id)
        page = replace(page, digest=digest, duplicate_of=original)
        if original is not None and page.is_copy and not page.flaw:
            flight.reason, flight.original, flight.is_new = "duplicate", original.url, False
        return page
