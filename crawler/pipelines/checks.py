"""First stage: is this a page at all? Told by its bytes, not by what its header says.

Rule: what is no page is archived as the answer it is, and read no further.
"""

from __future__ import annotations

from dataclasses import replace

from crawler.core.page import Flaw, Page
from crawler.pipelines.stage import Stage
from crawler.policy.sniff import actual_type
from crawler.scheduler.flights import Flight


class ChecksPipeline(Stage):
    async def work(self, page: Page, flight: Flight) -> Page:
        if not page.body:
            # An error may well be empty; a page may not.
            return self.flawed(page, flight, Flaw.EMPTY) if page.is_answered else page
        sniffed = actual_type(page.content_type, page.url, page.body)
        page = replace(page, media_type=sniffed.media_type)
        if sniffed.lies and page.is_answered:
            return self.flawed(page, flight, Flaw.LYING_TYPE)
        return page
