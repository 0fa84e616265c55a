"""Last stage: the page's links, judged, onto its flight. They reach the frontier in one call
when it lands; of a sitemap, which may list 50,000, in many calls before that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from crawler.core.page import Page
from crawler.core.parsed import Link, LinkKind
from crawler.core.types import Candidate
from crawler.pipelines.stage import Stage
from crawler.policy.priority import Hints
from crawler.policy.refusal import Reason
from crawler.policy.rows import base_of
from crawler.scheduler.flights import Flight

_AT_ONCE: Final = 500  # links between two turns of the loop: 10 ms
_HINTED: Final = frozenset({LinkKind.LISTED, LinkKind.SITEMAP, LinkKind.ENTRY})
_CONGESTED_S: Final = 0.05

MOST_INDEXES: Final = 3
"""So many hops from robots.txt or a seed sitemaps may list sitemaps (sitemaps.org: one is enough).
An index that makes new ones for ever would have no other end."""


class LinksPipeline(Stage):
    async def work(self, page: Page, flight: Flight) -> Page:
        if self.parts.arguments is None:
            return page  # of a spider whose own code says where to go
        links = _links(page)
        # Those of the page itself are absolute already; a user's pipeline may have put others.
        absolute = set(map(id, page.outlinks))
        own = [link for link in links if id(link) in absolute]
        others = [link for link in links if id(link) not in absolute]
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
        admission, depth = self.parts.doors.admission, depth + 1
        if any(link.kind in _HINTED for link in links):
            selected = admission.listed(links, base, depth, lambda link: self._level(link, depth))
        else:
            level = self.parts.prioritizer.level(Hints(depth=depth))
            selected = admission.select([link.url for link in links], base, depth, level)
        for reason, count in selected.refused.items():
            self.parts.tally.count(f"refused/{reason}", count)
        return self._wanted(selected.candidates)

    def _wanted(self, found: list[Candidate]) -> list[Candidate]:
        """Without those of patterns that have brought enough."""
        yields, now = self.parts.yields, self.parts.clock.now()
        if not any(map(yields.has_stopped, {candidate.host for candidate in found})):
            return found
        wanted = [candidate for candidate in found if yields.refusal(candidate, now) is None]
        self.parts.tally.count(f"refused/{Reason.PATTERN}", len(found) - len(wanted))
        return wanted

    def _level(self, link: Link, depth: int) -> int:
        hints = Hints(
            depth=depth,
            sitemap_priority=link.priority,
            modified=link.modified,
            is_sitemap=link.kind is LinkKind.SITEMAP,
        )
        return self.parts.prioritizer.level(hints)

    async def _add(self, found: list[Candidate]) -> None:
        """Before the verdict of their page, as it must be, and not all in one go."""
        parts = self.parts
        added = parts.frontier.add(found, parts.clock.now())
        parts.tally.added(added)
        await asyncio.sleep(0)
        while parts.frontier.is_congested() and not parts.failure:
            await asyncio.sleep(_CONGESTED_S)


def _links(page: Page) -> list[Link]:
    links = [Link(each) if isinstance(each, str) else each for each in page.links]
    if page.depth < MOST_INDEXES:
        return links
    return [link for link in links if link.kind is not LinkKind.SITEMAP]
