"""Fifth stage: the page's record on disk. From here on its content may be claimed."""

from __future__ import annotations

from dataclasses import replace

from crawler.archiving import archived, wire_sha1
from crawler.core.page import Page
from crawler.core.types import Claim
from crawler.pipelines.stage import Stage
from crawler.scheduler.flights import Flight


class ArchivePipeline(Stage):
    async def work(self, page: Page, flight: Flight) -> Page:
        body_sha1 = wire_sha1(page.exchange, page.body, page.digest)
        if page.archive:
            # A revisit record has no place for "cut this time": such an answer is kept as it is.
            is_cut = page.exchange is not None and bool(page.exchange.truncated)
            same = None if is_cut else page.duplicate_of
            record = await archived(page.exchange, self.parts.archive(), same, body_sha1)
            page = replace(page, record=record)
            flight.record = record
        if page.digest and page.duplicate_of is None and not _is_dropped(page):
            at = page.exchange.at if page.exchange else self.parts.clock.now()
            flight.claim = Claim(
                page.digest, page.url, page.record, at, body_sha1, page.status, page.simhash
            )
        return page


def _is_dropped(page: Page) -> bool:
    """It is no page, or not wanted: nothing can be a copy of it. (A page whose author asked not
    to be indexed can: its links are followed once.)"""
    return bool(page.flaw) or (page.near is not None and not page.archive)
