"""Fourth stage: its text as 64 bits. Is nearly the same stored already, or is it what its host
says of anything it does not know?"""

from __future__ import annotations

from dataclasses import replace

from crawler.core.choices import NearDuplicates
from crawler.core.page import Flaw, Page
from crawler.core.types import PutBack
from crawler.pipelines.stage import Stage
from crawler.policy.simhash import fingerprint
from crawler.policy.soft404 import looks_like_error
from crawler.scheduler.flights import Flight
from crawler.scheduler.probes import Judgement, Said


class FingerprintPipeline(Stage):
    async def work(self, page: Page, flight: Flight) -> Page:
        if page.flaw or not page.is_answered or page.is_copy:
            return page
        page = replace(
            page, simhash=fingerprint(page.text, self.parts.config.content.near_min_words)
        )
        match self._judged(page, flight):
            case Judgement.ASK:
                # Fetched again when its host has said what it says of other names.
                flight.verdict = PutBack()
                return replace(page, links=(), archive=False, flaw=Flaw.SOFT_404)
            case Judgement.SOFT_404:
                # Its links are followed: should we be wrong, no more than its text is lost.
                return self.flawed(page, flight, Flaw.SOFT_404)
        return await self._noted(page, flight)

    async def _noted(self, page: Page, flight: Flight) -> Page:
        if page.alias_of:
            return page  # neither new nor anybody's original
        # What a sitemap lists counts for its pages, not for more sitemaps.
        is_list = page.parsed is not None and page.parsed.parser == "sitemap"
        flight.is_new = None if is_list else True
        return await self._compared(page, flight)

    def _judged(self, page: Page, flight: Flight) -> Judgement:
        if not looks_like_error(page.title, page.text):
            return Judgement.PAGE
        host, now = flight.lease.candidate.host, self.parts.clock.now()
        said = Said(page.status, page.digest, page.title, page.text)
        return self.parts.probes.judge(page.url, host, said, now)

    async def _compared(self, page: Page, flight: Flight) -> Page:
        rule = self.parts.config.content.near_duplicates
        if page.simhash is None or rule is NearDuplicates.OFF:
            return page
        near = await self.parts.nearest.original(page.simhash, page.digest, page.url, page.lease_id)
        if near is None:
            return page
        page = replace(page, near=near)
        flight.reason = "near-duplicate"
        flight.original, flight.bits, flight.is_new = near.original.url, near.bits, False
        self.parts.tally.count("near_duplicates")
        if rule is NearDuplicates.FOLLOW:
            return page
        return replace(page, links=(), archive=page.archive and rule is NearDuplicates.STORE)
