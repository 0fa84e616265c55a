"""Fifth stage: the page's record on disk. From here on its content may be claimed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from msgspec import structs

from crawler.archiving import archived_page, wire_sha1
from crawler.core.page import Flaw, Page
from crawler.core.types import Claim
from crawler.pipelines.stage import Stage
from crawler.scheduler.flights import Flight

NO_PAGE: Final = 0
"""What nobody's page is a copy of counts as; its bytes are kept once all the same."""
_STATUS: Final = {Flaw.SOFT_404: 404, Flaw.LYING_TYPE: NO_PAGE}


class ArchivePipeline(Stage):
    async def work(self, page: Page, flight: Flight) -> Page:
        body_sha1 = wire_sha1(page.exchange, page.body, page.digest)
        if flight.lease.candidate.lost:
            page = replace(page, may_repeat=True)
        flight.record = await archived_page(page, self.parts.archive(), body_sha1)
        page = replace(page, record=flight.record)
        # Of a near-duplicate that is not wanted nothing is kept.
        if page.near is None or page.archive:
            flight.claim = self._claimed(page, body_sha1)
        return page

    def _claimed(self, page: Page, body_sha1: bytes) -> Claim | None:
        if page.is_again:
            return self._completed(page)
        return None if page.is_repeat or not page.digest else self._claim(page, body_sha1)

    def _completed(self, page: Page) -> Claim | None:
        """One made after a crash may know no fingerprint: its record was cut off from what was
        noted. None: it is well as it is."""
        claim = page.duplicate_of
        # Of a shared crawl a claim stands for ever, and its fingerprint is elsewhere.
        is_whole = self.parts.shared is not None or page.simhash is None or page.alias_of
        if claim is None or claim.simhash is not None or is_whole:
            return None
        return structs.replace(claim, simhash=page.simhash)

    def _claim(self, page: Page, body_sha1: bytes) -> Claim:
        """Of a page that was stored others are copies. Not of one whose author asked not to be
        indexed: its twin may stand where nobody asked so."""
        at = page.exchange.at if page.exchange else self.parts.clock.now()
        is_original = page.archive and not page.alias_of and not page.flaw
        status = page.status if is_original else _STATUS.get(page.flaw, NO_PAGE)
        simhash = page.simhash if is_original else None
        return Claim(page.digest, page.url, page.record, at, body_sha1, status, simhash)
