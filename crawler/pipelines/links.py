"""Last stage: the page's links, judged, onto its flight. They reach the frontier in one call
when it lands."""

from __future__ import annotations

from crawler.core.page import Page
from crawler.core.url import fetch_form
from crawler.pipelines.stage import Stage
from crawler.policy.priority import Hints
from crawler.scheduler.flights import Flight


class LinksPipeline(Stage):
    async def work(self, page: Page, flight: Flight) -> Page:
        if not page.links:
            return page
        depth = page.depth + 1
        level = self.parts.prioritizer.level(Hints(depth=depth))
        written = page.parsed.base if page.parsed else ""
        base = (fetch_form(written, page.url) if written else None) or page.url
        urls = [link.url for link in page.links]
        selected = self.parts.doors.admission.select(urls, base, depth, level)
        flight.links = selected.candidates
        for reason, count in selected.refused.items():
            self.parts.tally.count(f"refused/{reason}", count)
        return page
