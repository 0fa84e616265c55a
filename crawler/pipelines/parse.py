"""Third stage: what the page says, and where it points; by the parser for its type."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from crawler.core.page import Flaw, Page
from crawler.core.parsed import Parsed, Source, Unreadable
from crawler.core.types import Candidate, Moved
from crawler.core.url import fetch_form
from crawler.pipelines.stage import Stage
from crawler.policy.admission import unreadable
from crawler.policy.following import followed, robots_header, with_headers
from crawler.policy.link_header import link_headers
from crawler.policy.redirects import Follow, onward
from crawler.policy.rows import MOST, base_of, resolved
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
        outlinks, elsewhere = resolved(parsed.links[:MOST], base)
        for reason, count in Counter(unreadable(link.url).reason for link in elsewhere).items():
            self.parts.tally.count(f"refused/{reason}", count)
        links = [*outlinks, *parsed.links[MOST:]]
        page = replace(
            page,
            parsed=parsed,
            title=parsed.title,
            text=parsed.text,
            outlinks=tuple(outlinks),
            links=followed(links, parsed.robots, rules),
            archive=not ("noindex" in parsed.robots and rules.respect_noindex),
        )
        target = self._identity(page, flight.lease.candidate)
        if target is None:
            return page
        flight.verdict = Moved(target)
        return replace(self.flawed(page, flight, Flaw.ALIAS), links=())

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

    def _identity(self, page: Page, candidate: Candidate) -> Candidate | None:
        """The URL that is its canonical one, if that counts and is another. None: it is itself."""
        written = page.parsed.canonical if page.parsed else ""
        if not written or not self.parts.config.sameness.canonical_identity:
            return None
        base = base_of(page.url, page.parsed or Parsed())
        leads = onward(
            candidate,
            301,
            (fetch_form(written, base) or "").encode(),
            lambda text, _: self.parts.doors.admission.candidate(
                text, depth=candidate.depth, level=candidate.level
            ),
            self.parts.config.limits.max_redirects,
        )
        if not isinstance(leads, Follow):
            return None
        # Two pages that name each other are two pages.
        is_other = leads.candidate.key not in (candidate.key, *candidate.chain)
        return leads.candidate if is_other else None
