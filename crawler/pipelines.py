"""The item pipelines of a page: checks, duplicates, parsing, fingerprint, archive, links.

Rule: an item that is no page of a lease passes unchanged. If a store is unavailable, the page is
put back and the crawl ends.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final, Self, TypeVar

from msgspec.structs import replace
from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem

from crawler.archive.record_bytes import sha1_label, sha1_of_parts
from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.content.to_capture import AskedColumns, archive_beside, archive_page, wire_sha1
from crawler.loop.life import ArchivedPage, Life
from crawler.loop.outcome import claim_of
from crawler.loop.precheck import ProbeResult, SoftErrorVerdict
from crawler.loop.visit import has_changed, seen_of, visits_so_far
from crawler.model.choices import (
    ColumnGroup,
    LaterVisits,
    NearDuplicateChoice,
    RevisitChoice,
)
from crawler.model.page import (
    NO_PREFERENCES,
    Flaw,
    Link,
    LinkKind,
    Page,
    Parsed,
    Source,
    Unreadable,
)
from crawler.model.types import Candidate, Claim, StoreUnavailable
from crawler.model.url import fetch_form
from crawler.page.links import (
    base_of,
    link_headers,
    max_links,
    resolve_links,
    robots_header,
    with_headers,
)
from crawler.page.media_type import HTML_TYPES, actual_type, type_by_content
from crawler.page.row import is_row
from crawler.page.simhash import fingerprint
from crawler.page.soft404 import looks_like_error
from crawler.policy.admission import unreadable_refusal
from crawler.policy.preferences import combined, may_state_preference, of_page, price_asked
from crawler.policy.priority import cash_of_links
from crawler.policy.refusal import Refusal

logger = logging.getLogger(__name__)

_NOTHING: Final = Parsed()
PAYMENT_REQUIRED: Final = 402
_LOGGED_SITEMAPS: Final = 20  # that cannot be read, one by one
Item = TypeVar("Item")


class PipelineStage(ABC):
    """An item pipeline that handles pages of leases only."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawl_of(crawler))

    def __init__(self, crawl: Crawl) -> None:
        self.crawl = crawl
        self.end_step = crawl.fetching.cohorts.end_step

    async def process_item(self, item: Item) -> Item | Page:
        if not isinstance(item, Page):
            return item
        life = self.crawl.loop.lives.of_lease(item.lease_id)
        if life is None:
            return item
        try:
            page = await self.process_page(item, life)
            life.note_page(page)
            return page
        except StoreUnavailable as error:
            # The failure is not the page's, so it is put back and fetched again later.
            life.put_back()
            self.crawl.lifecycle.fail(error)
            raise DropItem(str(error)) from error

    def mark_flaw(self, page: Page, flaw: Flaw) -> Page:
        """Mark *page* with *flaw*, and count it."""
        self.crawl.stats.count(f"flaw/{flaw}")
        return replace(page, flaw=flaw)

    @property
    def _later_visits(self) -> LaterVisits:
        return self.crawl.selection.allowed_origins.later_visits

    @abstractmethod
    async def process_page(self, page: Page, life: Life) -> Page:
        """Return the page with the results of this stage."""


class ChecksPipeline(PipelineStage):
    """First stage: decides by its bytes whether an answer is a page. One that is not is archived,
    but not parsed."""

    async def process_page(self, page: Page, life: Life) -> Page:
        if life.is_challenged:
            return self.mark_flaw(page, Flaw.CHALLENGE)
        if not page.body:
            # An error answer may be empty, but a page may not.
            return self.mark_flaw(page, Flaw.EMPTY) if page.is_answered else page
        if life.candidate.is_sitemap:
            return replace(
                page, is_sitemap=True, media_type=type_by_content(page.body, page.content_type)
            )
        sniffed = actual_type(page.content_type, page.url, page.body)
        page = replace(page, media_type=sniffed.media_type)
        if sniffed.is_mislabelled and page.is_answered:
            return self.mark_flaw(page, Flaw.WRONG_TYPE)
        return page


class DuplicatesPipeline(PipelineStage):
    """Second stage: looks for the same bytes under another URL.

    Every answer with a body is looked up, because the archive stores no bytes twice; but an error
    page is the original of error pages only.
    """

    async def process_page(self, page: Page, life: Life) -> Page:
        if not page.body:
            return page
        digest = sha1_of_parts(page.body)
        original = await self.crawl.content.duplicates.original(digest, page.url, page.lease_id)
        return replace(page, digest=digest, duplicate_of=original)


class ParsePipeline(PipelineStage):
    """Third stage: takes text and links from the page with the parser for its type."""

    def __init__(self, crawl: Crawl) -> None:
        super().__init__(crawl)
        config = crawl.settings.config
        self._asked = frozenset(config.content.column_groups)
        if not config.archive.columns:
            self._asked &= {ColumnGroup.MARKDOWN}  # for feeds
        self._unread_sitemaps = 0

    async def process_page(self, page: Page, life: Life) -> Page:
        headers = page.exchange.headers if page.exchange else []
        if page.status == PAYMENT_REQUIRED:
            life.note_price(price_asked(headers, page.body))
        page, parsed = await self._parsed(page, life, headers)
        return self._with_preferences(page, headers, parsed)

    def _with_preferences(
        self, page: Page, headers: list[tuple[bytes, bytes]], parsed: Parsed
    ) -> Page:
        """Return *page* with what its publisher says of its use, in *parsed* among others. It is
        not stored if a use that is required is disallowed."""
        sources, in_page = self.crawl.content.preferences, ""
        if parsed.rsl:
            in_page = fetch_form(parsed.rsl, base_of(page.url, parsed)) or ""
        said = sources.statements(page.url, headers, in_page)
        preferences = combined((*said, *of_page(parsed)))
        refused = sources.refused(preferences, sources.named(page.url, headers, in_page))
        if preferences is NO_PREFERENCES and refused is None:
            return page
        if refused is None:
            return replace(page, preferences=preferences)
        return replace(
            page, preferences=preferences, disallowed=refused, archive=False, noindex=False
        )

    async def _parsed(
        self, page: Page, life: Life, headers: list[tuple[bytes, bytes]]
    ) -> tuple[Page, Parsed]:
        """Return *page* with text and links, and what its parser found, without its headers."""
        if (page.flaw and page.flaw is not Flaw.EMPTY) or not page.is_answered:
            return page, _NOTHING
        if page.flaw:
            return self._with_refresh(page, headers), _NOTHING
        if self._is_parsed_copy(page):
            # Whatever its original is.
            is_noindex = self.crawl.loop.links.is_noindex(robots_header(headers))
            page = self._with_refresh(page, headers)
            page = replace(page, archive=not is_noindex, noindex=is_noindex)
            # What it says of its use is read of a copy as well: it may be stored for its bytes.
            says = page.media_type in HTML_TYPES and may_state_preference(page.body)
            return page, await self._parse(page, headers) if says else _NOTHING
        await self.end_step()
        found = await self._parse(page, headers)
        parsed = with_headers(found, link_headers(headers, page.url), robots_header(headers))
        await self.end_step()
        selection, base = self.crawl.loop.links, base_of(page.url, parsed)
        is_noindex = selection.is_noindex(parsed.robots)
        kept = max_links(base)
        if page.rendered is not None and page.rendered.moved_to:
            moved = Link(page.rendered.moved_to, LinkKind.REFRESH)
            parsed = replace(parsed, links=(moved, *parsed.links))
        outlinks = self._outlinks(parsed.links[:kept], base)
        links = (*outlinks, *parsed.links[kept:])
        page = replace(
            page,
            parsed=parsed,
            title=parsed.title,
            text=parsed.text,
            outlinks=outlinks,
            links=selection.to_follow(page.url, links, parsed.robots),
            archive=not is_noindex,
            noindex=is_noindex,
        )
        return self._with_canonical(page, life), found

    def _with_refresh(self, page: Page, headers: list[tuple[bytes, bytes]]) -> Page:
        """Return *page*, which is empty or has the body of another, with the one link that is its
        own: where its Refresh header leads."""
        found = [each for each in link_headers(headers, page.url) if each.kind is LinkKind.REFRESH]
        selection = self.crawl.loop.links
        return replace(page, links=selection.to_follow(page.url, found, robots_header(headers)))

    def _outlinks(self, links: Sequence[Link], base: str) -> tuple[Link, ...]:
        found, elsewhere = resolve_links(links, base)
        if elsewhere:
            reasons = Counter(unreadable_refusal(link.url).reason for link in elsewhere)
            for reason, count in reasons.items():
                self.crawl.stats.count(f"refused/{reason}", count)
        return tuple(found)

    def _is_parsed_copy(self, page: Page) -> bool:
        """Whether *page* is a copy whose links were followed from its original."""
        return page.is_copy and not self.crawl.settings.config.links.follow_duplicates

    async def _parse(self, page: Page, headers: list[tuple[bytes, bytes]]) -> Parsed:
        parser = self.crawl.content.parsers.parser_for(page.media_type)
        if parser is None:
            self._log_unread(page, f"it is {page.media_type}")
            return Parsed()
        source = Source(
            *(page.url, page.content_type, page.body, tuple(headers), page.is_sitemap), self._asked
        )
        try:
            return await self.crawl.content.parsers.parse(source, parser)
        except Unreadable as error:
            self.crawl.stats.count(f"parse/unreadable/{parser.name}")
            self._log_unread(page, str(error))
            return Parsed(parser=parser.name, notes=(f"unreadable: {error}",))

    def _log_unread(self, page: Page, why: str) -> None:
        """Log that what robots.txt or an index names as a sitemap cannot be read: *why*."""
        if not page.is_sitemap:
            return
        self._unread_sitemaps += 1
        if self._unread_sitemaps <= _LOGGED_SITEMAPS:
            logger.warning(
                "The sitemap %s cannot be read, so the URLs that only it lists are not found: %s",
                page.url,
                why,
            )

    def _with_canonical(self, page: Page, life: Life) -> Page:
        """If canonical URLs count and *page* names another one, let that be fetched, and store
        *page* as its copy. It keeps its text, in case the canonical page cannot be fetched. A
        frame is no copy: it is fetched for another page, and its links are not followed."""
        parsed, candidate = page.parsed, life.candidate
        if parsed is None or not parsed.canonical or not self._counts_canonical:
            return page
        if candidate.requisite:
            return page
        url = fetch_form(parsed.canonical, base_of(page.url, parsed)) or ""
        found = self.crawl.selection.allowed_origins.admission.candidate(url, depth=candidate.depth)
        if isinstance(found, Refusal) or found.key in (candidate.key, *candidate.chain):
            return page
        self.crawl.stats.count("aliases")
        link = Link(found.url, LinkKind.CANONICAL)
        return replace(page, alias_of=found.url, links=(link, *page.links))

    @property
    def _counts_canonical(self) -> bool:
        return self.crawl.settings.config.urls.canonical_identity


class FingerprintPipeline(PipelineStage):
    """Fourth stage: compares the 64-bit fingerprint of the text with those of other pages, and
    detects the host's page for URLs that do not exist (soft 404)."""

    async def process_page(self, page: Page, life: Life) -> Page:
        if page.flaw or not page.is_answered or page.is_copy:
            return page
        await self.end_step()
        page = replace(
            page, simhash=fingerprint(page.text, self.crawl.settings.config.content.near_min_words)
        )
        match self._soft_error_verdict(page, life):
            case SoftErrorVerdict.PROBE:
                # The page is fetched again after the host was probed for a name that cannot exist.
                life.put_back()
                return replace(page, links=(), archive=False, flaw=Flaw.SOFT_404)
            case SoftErrorVerdict.SOFT_404:
                # Its links are followed, so that a wrong verdict loses only its text.
                return self.mark_flaw(page, Flaw.SOFT_404)
        # A page that names another as its own is neither new nor an original.
        return page if page.alias_of else await self._compare(page, life)

    def _soft_error_verdict(self, page: Page, life: Life) -> SoftErrorVerdict:
        if not looks_like_error(page.title, page.text):
            return SoftErrorVerdict.PAGE
        host, now = life.candidate.host, self.crawl.leases.clock.now()
        result = ProbeResult(page.status, page.digest, page.title, page.text)
        return self.crawl.loop.precheck.probes.judge(page.url, host, result, now)

    async def _compare(self, page: Page, life: Life) -> Page:
        rule = self.crawl.settings.config.content.near_duplicates
        is_requisite = life.candidate.requisite  # it is shown, whatever it resembles
        if page.simhash is None or rule is NearDuplicateChoice.OFF or is_requisite:
            return page
        await self.end_step()
        near = await self.crawl.content.near_duplicates.original(
            page.simhash, page.digest, page.url, page.lease_id
        )
        if near is None:
            return page
        page = replace(page, near=near)
        self.crawl.stats.count("near_duplicates")
        if rule is NearDuplicateChoice.FOLLOW:
            return page
        return replace(page, links=(), archive=page.archive and rule is NearDuplicateChoice.STORE)


class ArchivePipeline(PipelineStage):
    """Fifth stage: archives the page and prepares the claim on its content."""

    def __init__(self, crawl: Crawl) -> None:
        super().__init__(crawl)
        config, nothing = crawl.settings.config, frozenset[ColumnGroup]()
        self._asked_columns = AskedColumns(
            frozenset(config.content.column_groups) if config.archive.columns else nothing,
            crawl.storage.archive.crawl_id,
        )

    async def process_page(self, page: Page, life: Life) -> Page:
        await self.end_step()
        if page.noindex and not page.flaw:
            self.crawl.stats.count("noindex")
        if page.disallowed is not None:
            self.crawl.stats.count(f"disallowed/{page.disallowed}")
        body_sha1 = wire_sha1(page.exchange, page.body, page.digest)
        if life.candidate.may_be_archived:
            page = replace(page, may_repeat=True)
        mode, visits = (
            self.crawl.loop.revisit_mode(life.candidate.url),
            self.crawl.loop.limits.visits,
        )
        changed, seen, before = None, None, life.candidate.history
        if mode is not RevisitChoice.ONCE:
            if before is not None and before.visits:
                seen = seen_of(page, visits.change)
                changed = has_changed(before, seen, visits.similar_bits)
            if is_row(page):
                at = int(life.began_at)
                page = replace(page, visits=visits_so_far(before, changed, mode, at))
        page = replace(page, archived_elsewhere=self._elsewhere(page, body_sha1))
        is_left_out = changed is False and self._later_visits is LaterVisits.EACH
        if is_left_out:
            page = replace(page, archive=False)
        archive = self.crawl.storage.archive.open_writer()
        bodies = self.crawl.content.archived_bodies
        if page.archive:
            others = self.crawl.content.preferences.storable(life.exchanges[:-1])
            await archive_beside(others, archive, bodies, may_repeat=page.may_repeat)
            life.end_carrying()
        record = await archive_page(page, archive, body_sha1, self._asked_columns, bodies)
        page = replace(page, record=record)
        # A near-duplicate that is not stored claims nothing.
        is_stored = (page.near is None and not is_left_out) or page.archive
        # In a shared crawl a claim never changes, and its fingerprint is stored elsewhere.
        may_change = self.crawl.leases.shared is None
        claim = claim_of(page, body_sha1, self.crawl.leases.clock.now(), may_change=may_change)
        announced = None
        if self.crawl.storage.consumers is not None and is_row(page):
            announced = ArchivedPage(sha1_label(page.digest), page.media_type)
        life.archive(record, claim if is_stored else None, announced)
        if mode is not RevisitChoice.ONCE:
            if seen is None or not is_left_out:
                seen = seen_of(page, visits.change)  # with its record
            is_first_sight = changed is not False or before is None or before.validators is None
            if is_first_sight and self._later_visits is LaterVisits.EACH:
                # Its links wait: the next visit must get the page, not that it is as it was.
                seen = replace(seen, validators=None)
            life.note_seen(seen)
        if page.is_answered:
            language = page.parsed.language if page.parsed else ""
            self.crawl.stats.count_page(page.media_type, language)
        return page

    def _elsewhere(self, page: Page, body_sha1: bytes) -> Claim | None:
        """Return the record of an earlier crawl that has the bytes of *page*, if this crawl has
        none."""
        earlier, same = self.crawl.content.earlier, page.duplicate_of
        if earlier is None or page.exchange is None or not page.archive:
            return None
        if page.rendered is not None:
            return None  # its content is its DOM
        if (page.is_repeat and same is not None and same.record) or page.exchange.truncated:
            return None
        found = earlier.original(body_sha1)
        if found is not None:
            self.crawl.stats.count("archived_elsewhere")
        return found


_LINKS_PER_TURN: Final = 500  # links in one iteration of the event loop: 10 ms
_CONGESTED_S: Final = 0.05


class LinksPipeline(PipelineStage):
    """Last stage: selects the links that are followed.

    They are added to the frontier in one call when the fetch is complete; those of a sitemap, which
    may list 50,000, in many calls before that.
    """

    async def process_page(self, page: Page, life: Life) -> Page:
        if self._later_visits is LaterVisits.EACH:
            return page  # new links wait for another run
        if self.crawl.settings.arguments is None:
            return page  # the spider's own code chooses its requests
        await self.end_step()
        selection = self.crawl.loop.links
        links = () if life.candidate.requisite else page.links
        own: Sequence[Link] = page.outlinks
        if links != own:
            absolute = set(map(id, own))
            own = [each for each in links if isinstance(each, Link) and id(each) in absolute]
        cash = cash_of_links(life.candidate.cash, len(links))
        found = await self._select(own, None, page, life, cash)
        if not (found or life.dead_end) and life.candidate.seed_url:
            life.note_dead_end(selection.dead_end(page, links, life.candidate))
        if len(own) < len(links):
            # The page's own links are absolute already; a user's pipeline has added others.
            others = [each for each in links if id(each) not in absolute]
            added = [Link(each) if isinstance(each, str) else each for each in others]
            base = base_of(page.url, page.parsed) if page.parsed else page.url
            found += await self._select(added, base, page, life, cash)
        if sent_on := selection.sent_on(life.candidate, links, found):
            life.note_sent_on()
            found = sent_on
        found += selection.requisites(page, life.candidate, found, life.given)
        life.add_links(found + selection.checks(page, life.candidate, found))
        return page

    async def _select(
        self, links: Sequence[Link], base: str | None, page: Page, life: Life, cash: int
    ) -> list[Candidate]:
        """Return the candidates of the last links; those of all before are added to the
        frontier."""
        now = self.crawl.leases.clock.now
        select = partial(self.crawl.loop.links.select, origin=life.candidate, cash=cash)
        while len(links) > _LINKS_PER_TURN:
            part = links[:_LINKS_PER_TURN]
            await self._add(select(part, base, page, now()), life)
            links = links[_LINKS_PER_TURN:]
        return select(links, base, page, now()) if links else []

    async def _add(self, found: list[Candidate], life: Life) -> None:
        """Add *found* to the frontier, before the verdict of their page, and wait while the
        frontier is congested."""
        crawl = self.crawl
        is_again = life.candidate.history is not None
        added = crawl.leases.frontier.add(
            *(found, crawl.leases.clock.now()), at_once=is_again, source=life.link_source
        )
        life.note_new_links(added.new)
        crawl.stats.count_added(added)
        await asyncio.sleep(0)
        while crawl.leases.frontier.is_congested() and not crawl.lifecycle.failure:
            await asyncio.sleep(_CONGESTED_S)
