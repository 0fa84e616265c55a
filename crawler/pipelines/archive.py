"""Fifth stage: the page's record on disk. From here on its content may be claimed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from crawler.archiving import archived_page, wire_sha1
from crawler.core.page import Flaw, Page
from crawler.core.types import Claim, Moved
from crawler.pipelines.stage import Stage
from crawler.scheduler.flights import Flight

_STATUS: Final = {Flaw.SOFT_404: 404, Flaw.ALIAS: 301, Flaw.LYING_TYPE: 406}
"""What a page with a flaw counts as: its bytes are kept once too, but no page is a copy of it."""


class ArchivePipeline(Stage):
    async def work(self, page: Page, flight: Flight) -> Page:
        body_sha1 = wire_sha1(page.exchange, page.body, page.digest)
        flight.record = await archived_page(page, self.parts.archive(), body_sha1)
        page = replace(page, record=flight.record)
        # Of a near-duplicate that is not wanted nothing is kept. A page whose author asked not to
        # be indexed is known by its bytes all the same: its links are followed once.
        is_dropped = page.near is not None and not page.archive
        if page.digest and not (page.is_repeat or is_dropped):
            flight.claim = self._claim(page, body_sha1)
            if isinstance(flight.verdict, Moved):  # to its canonical URL
                flight.verdict = replace(flight.verdict, claim=flight.claim)
        return page

    def _claim(self, page: Page, body_sha1: bytes) -> Claim:
        at = page.exchange.at if page.exchange else self.parts.clock.now()
        status = _STATUS.get(page.flaw, page.status)
        return Claim(page.digest, page.url, page.record, at, body_sha1, status, page.simhash)
