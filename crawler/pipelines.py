"""What the pipelines share: which items are theirs, and what a full disk means."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha1
from typing import Final, Self, TypeVar

from msgspec import structs
from scrapy.crawler import Crawler

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.content.to_capture import archive_page, wire_sha1
from crawler.crawl.in_flight import Fetch
from crawler.crawl.precheck import ProbeResult, SoftErrorVerdict
from crawler.model.choices import NearDuplicates
from crawler.model.page import (
    Flaw,
    Link,
    LinkKind,
    Page,
    Parsed,
    Source,
    Unreadable,
)
from crawler.model.types import Candidate, Claim, PutBack, StoreUnavailable
from crawler.model.url import fetch_form
from crawler.policy.admission import unreadable
from crawler.policy.links import (
    base_of,
    followed,
    link_headers,
    most_kept,
    resolved,
    robots_header,
    with_headers,
)
from crawler.policy.media_type import actual_type
from crawler.policy.priority import Hints
from crawler.policy.scope import Reason, Refusal
from crawler.policy.simhash import fingerprint
from crawler.policy.soft404 import looks_like_error

Item = TypeVar("Item")


class PipelineStage(ABC):
    """One stage of the content line. Items that are no pages of a lease pass untouched."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawl_of(crawler))

    def __init__(self, crawl: Crawl) -> None:
        self.crawl = crawl

    async def process_item(self, item: Item) -> Item | Page:
        if not isinstance(item, Page):
            return item
        flight = self.crawl.leases.flights.by_id(item.lease_id)
        if flight is None:
            return item
        try:
            return await self.work(item, flight)
        except StoreUnavailable as error:
            # Not this page's fault: it is fetched again when there is room.
            flight.verdict = PutBack()
            self.crawl.lifecycle.fail(error)
            raise

    def flawed(self, page: Page, flight: Fetch, flaw: Flaw) -> Page:
        """*page*, known to be none; counted, and said in the outcome log."""
        self.crawl.tally.count(f"flaw/{flaw}")
        flight.reason = flaw
        flight.is_new = False if flaw is Flaw.SOFT_404 else None
        return replace(page, flaw=flaw)

    @abstractmethod
    async def work(self, page: Page, flight: Fetch) -> Page:
        """The page with what this stage found out."""


# First stage: is this a page at all? Told by its bytes, not by what its header says.
#
# Rule: what is no page is archived as the answer it is, and read no further.


class ChecksPipeline(PipelineStage):
    async def work(self, page: Page, flight: Fetch) -> Page:
        if not page.body:
            # An error may well be empty; a page may not.
            return self.flawed(page, flight, Flaw.EMPTY) if page.is_answered else page
        sniffed = actual_type(page.content_type, page.url, page.body)
        page = replace(page, media_type=sniffed.media_type)
        if sniffed.lies and page.is_answered:
            return self.flawed(page, flight, Flaw.LYING_TYPE)
        return page


# Second stage: is this content stored already? By the hash of its bytes.
#
# Rule: of every answer with a body, for the archive keeps no bytes twice; but an error page is the
# original of error pages only.


class DuplicatesPipeline(PipelineStage):
    async def work(self, page: Page, flight: Fetch) -> Page:
        if not page.body:
            return page
        digest = sha1(page.body, usedforsecurity=False).digest()
        original = await self.crawl.content.digests.original(digest, page.url, page.lease_id)
        page = replace(page, digest=digest, duplicate_of=original)
        if original is not None and page.is_copy and not page.flaw:
            flight.reason, flight.original, flight.is_new = "duplicate", original.url, False
        return page


# Third stage: what the page says, and where it points; by the parser for its type.


class ParsePipeline(PipelineStage):
    async def work(self, page: Page, flight: Fetch) -> Page:
        if page.flaw or not page.is_answered or self._known(page):
            return page
        headers = page.exchange.headers if page.exchange else []
        parsed = with_headers(
            await self._parsed(page, headers), link_headers(headers), robots_header(headers)
        )
        rules, base = self.crawl.settings.config.links, base_of(page.url, parsed)
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
            self.crawl.tally.count(f"refused/{reason}", count)
        return found

    def _known(self, page: Page) -> bool:
        """Its links were followed when its content was first met."""
        return page.is_copy and not self.crawl.settings.config.links.follow_duplicates

    async def _parsed(self, page: Page, headers: list[tuple[bytes, bytes]]) -> Parsed:
        parser = self.crawl.content.parsers.of(page.media_type)
        if parser is None:
            return Parsed()
        source = Source(page.url, page.content_type, page.body, tuple(headers))
        try:
            return await self.crawl.content.parsers.parse(source, parser)
        except Unreadable as error:
            self.crawl.tally.count(f"parse/unreadable/{parser.name}")
            return Parsed(parser=parser.name, notes=(f"unreadable: {error}",))

    def _identified(self, page: Page, flight: Fetch) -> Page:
        """Where it counts that a page names another URL as its canonical one: that is fetched, and
        this one stored as its copy. With its text: it may be all that there is."""
        parsed = page.parsed
        if parsed is None or not parsed.canonical or not self._counts_canonical:
            return page
        url = fetch_form(parsed.canonical, base_of(page.url, parsed)) or ""
        candidate = flight.lease.candidate
        found = self.crawl.admission.doors.admission.candidate(url, depth=candidate.depth)
        if isinstance(found, Refusal) or found.key in (candidate.key, *candidate.chain):
            return page
        self.crawl.tally.count("aliases")
        flight.reason, flight.original, flight.is_new = "alias", found.url, False
        link = Link(found.url, LinkKind.CANONICAL)
        return replace(page, alias_of=found.url, links=(link, *page.links))

    @property
    def _counts_canonical(self) -> bool:
        return self.crawl.settings.config.sameness.canonical_identity


# Fourth stage: its text as 64 bits. Is nearly the same stored already, or is it what its host
# says of anything it does not know?


class FingerprintPipeline(PipelineStage):
    async def work(self, page: Page, flight: Fetch) -> Page:
        if page.flaw or not page.is_answered or page.is_copy:
            return page
        page = replace(
            page, simhash=fingerprint(page.text, self.crawl.settings.config.content.near_min_words)
        )
        match self._judged(page, flight):
            case SoftErrorVerdict.ASK:
                # Fetched again when its host has said what it says of other names.
                flight.verdict = PutBack()
                return replace(page, links=(), archive=False, flaw=Flaw.SOFT_404)
            case SoftErrorVerdict.SOFT_404:
                # Its links are followed: should we be wrong, no more than its text is lost.
                return self.flawed(page, flight, Flaw.SOFT_404)
        return await self._noted(page, flight)

    async def _noted(self, page: Page, flight: Fetch) -> Page:
        if page.alias_of:
            return page  # neither new nor anybody's original
        # What a sitemap lists counts for its pages, not for more sitemaps.
        is_list = page.parsed is not None and page.parsed.parser == "sitemap"
        flight.is_new = None if is_list else True
        return await self._compared(page, flight)

    def _judged(self, page: Page, flight: Fetch) -> SoftErrorVerdict:
        if not looks_like_error(page.title, page.text):
            return SoftErrorVerdict.PAGE
        host, now = flight.lease.candidate.host, self.crawl.leases.clock.now()
        said = ProbeResult(page.status, page.digest, page.title, page.text)
        return self.crawl.admission.probes.judge(page.url, host, said, now)

    async def _compared(self, page: Page, flight: Fetch) -> Page:
        rule = self.crawl.settings.config.content.near_duplicates
        if page.simhash is None or rule is NearDuplicates.OFF:
            return page
        near = await self.crawl.content.nearest.original(
            page.simhash, page.digest, page.url, page.lease_id
        )
        if near is None:
            return page
        page = replace(page, near=near)
        flight.reason = "near-duplicate"
        flight.original, flight.bits, flight.is_new = near.original.url, near.bits, False
        self.crawl.tally.count("near_duplicates")
        if rule is NearDuplicates.FOLLOW:
            return page
        return replace(page, links=(), archive=page.archive and rule is NearDuplicates.STORE)


# Fifth stage: the page's record on disk. From here on its content may be claimed.

NO_PAGE: Final = 0
"""What nobody's page is a copy of counts as; its bytes are kept once all the same."""
_STATUS: Final = {Flaw.SOFT_404: 404, Flaw.LYING_TYPE: NO_PAGE}


class ArchivePipeline(PipelineStage):
    async def work(self, page: Page, flight: Fetch) -> Page:
        body_sha1 = wire_sha1(page.exchange, page.body, page.digest)
        if flight.lease.candidate.lost:
            page = replace(page, may_repeat=True)
        flight.record = await archive_page(page, self.crawl.storage.keeping.archive(), body_sha1)
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
        is_whole = self.crawl.leases.shared is not None or page.simhash is None or page.alias_of
        if claim is None or claim.simhash is not None or is_whole:
            return None
        return structs.replace(claim, simhash=page.simhash)

    def _claim(self, page: Page, body_sha1: bytes) -> Claim:
        """Of a page that was stored others are copies. Not of one whose author asked not to be
        indexed: its twin may stand where nobody asked so."""
        at = page.exchange.at if page.exchange else self.crawl.leases.clock.now()
        is_original = page.archive and not page.alias_of and not page.flaw
        status = page.status if is_original else _STATUS.get(page.flaw, NO_PAGE)
        simhash = page.simhash if is_original else None
        return Claim(page.digest, page.url, page.record, at, body_sha1, status, simhash)


# Last stage: the page's links, judged, onto its flight. They reach the frontier in one call
# when it lands; of a sitemap, which may list 50,000, in many calls before that.

_AT_ONCE: Final = 500  # links between two turns of the loop: 10 ms
_HINTED: Final = frozenset({LinkKind.LISTED, LinkKind.SITEMAP, LinkKind.ENTRY})
_CONGESTED_S: Final = 0.05

MOST_INDEXES: Final = 3
"""So many hops from robots.txt or a seed sitemaps may list sitemaps (sitemaps.org: one is enough).
An index that makes new ones for ever would have no other end."""


class LinksPipeline(PipelineStage):
    async def work(self, page: Page, flight: Fetch) -> Page:
        if self.crawl.settings.arguments is None:
            return page  # of a spider whose own code says where to go
        links = _links(page)
        # Those of the page itself are absolute already; a user's pipeline may have put others.
        absolute = set(page.outlinks)
        own = [link for link in links if link in absolute]
        others = [link for link in links if link not in absolute]
        base = base_of(page.url, page.parsed) if page.parsed else page.url
        flight.links = [
            *await self._judged(own, None, page.depth),
            *await self._judged(others, base, page.depth),
        ]
        return page

    async def _judged(self, links: list[Link], base: str | None, depth: int) -> list[Candidate]:
        """The last of them; all before are in the frontier by then."""
        while len(links) > _AT_ONCE:
            await self._add(self._selected(links[:_AT_ONCE], base, depth))
            links = links[_AT_ONCE:]
        return self._selected(links, base, depth) if links else []

    def _selected(self, links: Sequence[Link], base: str | None, depth: int) -> list[Candidate]:
        admission, depth = self.crawl.admission.doors.admission, depth + 1
        if any(link.kind in _HINTED for link in links):
            selected = admission.listed(links, base, depth, lambda link: self._level(link, depth))
        else:
            level = self.crawl.admission.prioritizer.level(Hints(depth=depth))
            selected = admission.select([link.url for link in links], base, depth, level)
        for reason, count in selected.refused.items():
            self.crawl.tally.count(f"refused/{reason}", count)
        return self._wanted(selected.candidates)

    def _wanted(self, found: list[Candidate]) -> list[Candidate]:
        """Without those of patterns that have brought enough."""
        yields, now = self.crawl.admission.yields, self.crawl.leases.clock.now()
        if not any(map(yields.has_stopped, {candidate.host for candidate in found})):
            return found
        wanted = [candidate for candidate in found if yields.refusal(candidate, now) is None]
        self.crawl.tally.count(f"refused/{Reason.PATTERN}", len(found) - len(wanted))
        return wanted

    def _level(self, link: Link, depth: int) -> int:
        hints = Hints(
            depth=depth,
            sitemap_priority=link.priority,
            modified=link.modified,
            is_sitemap=link.kind is LinkKind.SITEMAP,
        )
        return self.crawl.admission.prioritizer.level(hints)

    async def _add(self, found: list[Candidate]) -> None:
        """Before the verdict of their page, as it must be, and not all in one go."""
        crawl = self.crawl
        added = crawl.leases.frontier.add(found, crawl.leases.clock.now())
        crawl.tally.added(added)
        await asyncio.sleep(0)
        while crawl.leases.frontier.is_congested() and not crawl.lifecycle.failure:
            await asyncio.sleep(_CONGESTED_S)


def _links(page: Page) -> list[Link]:
    links = [Link(each) if isinstance(each, str) else each for each in page.links]
    if page.depth < MOST_INDEXES:
        return links
    return [link for link in links if link.kind is not LinkKind.SITEMAP]
