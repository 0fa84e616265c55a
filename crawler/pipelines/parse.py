"""Third stage: what the page says, and where it points; by the parser for its type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from crawler.core.page import Page
from crawler.core.parsed import Link, LinkKind, Parsed, Source, Unreadable
from crawler.core.url import fetch_form
from crawler.pipelines.stage import Stage
from crawler.policy.admission import unreadable
from crawler.policy.following import followed, robots_header, with_headers
from crawler.policy.link_header import link_headers
from crawler.policy.refusal import Refusal
from crawler.policy.rows import base_of, most_kept, resolved
from crawler.scheduler.flights import Flight


class ParsePipeline(Stage):
    async def work(self, page: Page, flight: Flight) -> Page:
        if page.flaw or not page.is_answered or self._known(page):
            return page
        headers = page.exchange.headers if page.exchange else []
        parsed = with_headers(
            await self._parsed(page, headers), link_headers(headers), robots_header(headers)
        )
        rules, base = self.parts.config.links, base_of(page.url, parsed)
        kept = most_kept(base)
        outlinks = self._outlinks(parsed.links[:kept], base)
        links = [*outlinks, *parsed.links[kept:]]
        page = replace(
            page,
            parsed=parsed,
            title=parsed.title,
            text=parsed.text,
            outlinks=tuple(outlinks),
            links=followed(links, parsed.robots, rules),
            archive=not ("noindex" in parsed.robots and rules.respect_noindex),
        )
        return self._identified(page, flight)

    def _outlinks(self, links: Sequence[Link], base: str) -> list[Link]:
        found, elsewhere = resolved(links, base)
        for reason, count in Counter(unreadable(link.url).reason for link in elsewhere).items():
            self.parts.tally.count(f"refused/{reason}", count)
        return found

    def _known(self, page: Page) -> bool:
        """Its links were followed when its content was first met."""
        return page.is_copy and not self.parts.config.links.follow_duplicates

    async def _parsed(self, page: Page, headers: list[tuple[bytes, bytes]]) -> Parsed:
        parser = self.parts.parsers.of(page.media_type)
        if parser is None:
            return Parsed()
        source = Source(page.url, page.content_type, page.body, tuple(headers))
        try:
            return await self.parts.parsers.parse(source, parser)
        except Unreadable as error:
            self.parts.tally.count(f"parse/unreadable/{parser.name}")
            return Parsed(parser=parser.name, notes=(f"unreadable: {error}",))

    def _identified(self, page: Page, flight: Flight) -> Page:
        """Where it counts that a page names another URL as its canonical one: that is fetched, and
        this one stored as its copy. With its text: it may be all that there is."""
        parsed = page.parsed
        if parsed is None or not parsed.canonical or not self._counts_canonical:
            return page
        url = fetch_form(parsed.canonical, base_of(page.url, parsed)) or ""
        candidate = flight.lease.candidate
        found = self.parts.doors.admission.candidate(url, depth=candidate.depth)
        if isinstance(found, Refusal) or found.key in (candidate.key, *candidate.chain):
            return page
        self.parts.tally.count("aliases")
        flight.reason, flight.original, flight.is_new = "alias", found.url, False
        link = Link(found.url, LinkKind.CANONICAL)
        return replace(page, alias_of=found.url, links=(link, *page.links))

    @property
    def _counts_canonical(self) -> bool:
        return self.parts.config.sameness.canonical_identity
