"""Third stage: the page's record on disk. From here on its content may be claimed."""

from __future__ import annotations

from dataclasses import replace

from crawler.archiving import archived
from crawler.core.page import Page
from crawler.core.types import Claim
from crawler.pipelines.stage import Stage
from crawler.scheduler.flights import Flight


class ArchivePipeline(Stage):
    async def work(self, page: Page, flight: Flight) -> Page:
        if page.archive:
            original = page.duplicate_of
            # A revisit record stands for the same bytes on the wire, not for the same page in
            # another compression; without a record of the original there is nothing to stand for.
            same = original if original is not None and original.record else None
            record = await archived(page.exchange, self.parts.archive(), same)
            page = replace(page, record=record)
            flight.record = record
        if page.digest and page.duplicate_of is None:
            now = self.parts.clock.now()
            flight.claim = Claim(page.digest, page.url, page.record, now)
        return page
