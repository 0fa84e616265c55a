"""Second stage: what the page says, and where it points."""

from __future__ import annotations

from dataclasses import replace

from crawler.core.page import Page
from crawler.core.parsed import Link, Parsed
from crawler.pipelines.stage import Stage
from crawler.policy.html import is_html, read_html, robots_words
from crawler.scheduler.flights import Flight


class ParsePipeline(Stage):
    async def work(self, page: Page, flight: Flight) -> Page:
        if page.status >= 300 or not is_html(page.content_type) or self._known(page):
            return page
        rules = self.parts.config.links
        parsed = read_html(page.body, page.content_type, skip_nofollow=rules.respect_nofollow)
        header = _robots_header(page)
        follow = not rules.respect_nofollow or not (parsed.nofollow or "nofollow" in header)
        noindex = parsed.noindex or "noindex" in header
        links = tuple(Link(url) for url in parsed.links)
        return replace(
            page,
            parsed=Parsed(title=parsed.title, base=parsed.base, links=links),
            links=links if follow else (),
            archive=not (noindex and rules.respect_noindex),
        )

    def _known(self, page: Page) -> bool:
        """Its links were followed when its content was first met."""
        return page.duplicate_of is not None and not self.parts.config.links.follow_duplicates


def _robots_header(page: Page) -> set[str]:
    """What X-Robots-Tag says to everybody (a value "bot: word" speaks to another)."""
    headers = page.exchange.headers if page.exchange else []
    return robots_words(
        [value.decode("latin-1") for name, value in headers if name.lower() == b"x-robots-tag"]
    )
