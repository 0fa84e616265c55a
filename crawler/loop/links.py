"""Which links of a page are followed: what admission accepts of them, and at which level.

Rule: pure; links are refused and counted, never dropped in silence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Final, Protocol

from msgspec.structs import replace

from crawler.config.arguments import Arguments
from crawler.config.settings import LinkSettings
from crawler.loop.life import DeadEnd
from crawler.model.page import EMBEDDED, FRAMES, Link, LinkKind, Page
from crawler.model.types import Candidate
from crawler.model.url import authority_of
from crawler.page.media_type import CSS, HTML_TYPES, MANIFEST_TYPES
from crawler.policy.admission import Admission, links_to_follow
from crawler.policy.operator_rules import OperatorRules
from crawler.policy.patterns import PatternStatsStore
from crawler.policy.priority import NO_CASH, Hints
from crawler.policy.refusal import Reason, Refusal

MAX_SITEMAPS: Final = 100
"""Sitemaps taken from a robots.txt (guess: big sites name a few dozen; an index counts as one)."""

MAX_REQUISITE_HOPS: Final = 5
"""A style sheet of a page may import another, and frames have their own; those of Python's own
documentation are four deep. Without a limit, a sheet that always imports new ones would never
end."""

MAX_INDEX_HOPS: Final = 3
"""Most indexes of sitemaps in a row (sitemaps.org: one is enough). Without a limit, an index that
always lists new ones would never end."""

_HINTED: Final = frozenset({LinkKind.LISTED, LinkKind.SITEMAP, LinkKind.ENTRY})
_READ: Final = FRAMES | {LinkKind.STYLE}  # for what they need in turn
_SHOWN: Final = MANIFEST_TYPES | {CSS}
_CHECKED: Final = (LinkKind.A, LinkKind.AREA, *EMBEDDED)
_MOST_LISTS: Final = 1_000_000
_LOOKED_AT: Final = 100  # links of a seed that leads no further
_BOUNDS: Final = frozenset({Reason.OUT_OF_SCOPE, Reason.NO_CONTACT, Reason.INSIDE_ADDRESS})


class LinkScope(Protocol):
    """What links are judged by; it changes with the seeds and the operator's rules."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def admission(self) -> Admission: ...

    @property
    def operator(self) -> OperatorRules: ...


class Tally(Protocol):
    def count(self, key: str, by: int = 1) -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class LinkSelection:
    scope: LinkScope
    pattern_stats: PatternStatsStore
    figures: Tally
    settings: LinkSettings
    arguments: Arguments | None  # None: a spider's own code chooses its requests
    since: float = 0.0  # epoch seconds: pages that a sitemap dates before are left out
    lists_again: bool = False  # sitemaps are fetched though an earlier run did, each once
    _lists: set[int] = field(default_factory=set)  # keys of those

    def sitemaps(self, written: Sequence[str], base: str) -> list[Candidate]:
        """Return the candidates of the sitemaps that the robots.txt *base* names."""
        if not self.settings.follow_sitemaps or not self.scope.is_complete:
            return []
        if self.arguments is None:
            return []  # a user's spider requests them itself, with its own callback
        if not self.scope.admission.lists(authority_of(base)):
            return []
        hints = Hints(is_sitemap=True)
        found = []
        for url in written[:MAX_SITEMAPS]:
            candidate = self.scope.admission.candidate(url, base, hints=hints, is_sitemap=True)
            if isinstance(candidate, Refusal):
                self.figures.count(f"refused/{candidate.reason}")
            else:
                found.append(candidate)
        return self._again(found)

    def _again(self, found: list[Candidate]) -> list[Candidate]:
        """Return *found*, the sitemaps of them without the seen test if they are fetched again."""
        if not self.lists_again:
            return found
        again = []
        for each in found:
            is_first = each.is_sitemap and each.key not in self._lists
            if is_first and len(self._lists) < _MOST_LISTS:
                self._lists.add(each.key)
                again.append(replace(each, needs_seen_test=False))
            else:
                again.append(each)
        return again

    def is_noindex(self, words: frozenset[str]) -> bool:
        """Return whether directives for crawlers with these *words* keep a page out."""
        return "noindex" in words and self.settings.respect_noindex

    def to_follow(self, url: str, links: Iterable[Link], words: frozenset[str]) -> tuple[Link, ...]:
        """Return those of *links* of the page *url* that settings, the operator's rules and its
        author allow to follow. *words*: its directives for crawlers."""
        settings, kinds = self.settings, self.scope.operator.of_url(url).follow_kinds
        if kinds is not None:
            settings = dataclasses.replace(settings, follow_kinds=kinds)
        return links_to_follow(links, words, settings)

    def select(
        self,
        links: Sequence[Link],
        base: str | None,
        page: Page,
        now: float,
        *,
        origin: Candidate,
        cash: int = NO_CASH,
    ) -> list[Candidate]:
        """Return the candidates of *links* of *page*, which are read against *base*. *origin*: what
        was fetched for it. *cash*: of each link. Those of patterns that bring nothing new any more
        are left out."""
        depth, index_hops = page.depth + 1, origin.index_hops
        beyond = self.scope.admission.beyond(origin)
        if not _HINTED.isdisjoint([link.kind for link in links]):
            index_hops += 1
            if self.since:
                dated = [not link.modified or link.modified >= self.since for link in links]
                self.figures.count(f"refused/{Reason.SINCE}", dated.count(False))
                links = list(compress(links, dated))
            if index_hops > MAX_INDEX_HOPS:
                links = [link for link in links if link.kind is not LinkKind.SITEMAP]
            selected = self.scope.admission.select_listed(
                links, base, depth, index_hops, cash, beyond
            )
        else:
            urls = [link.url for link in links]
            selected = self.scope.admission.select(urls, base, depth, cash, beyond)
        for reason, count in selected.refused.items():
            self.figures.count(f"refused/{reason}", count)
        found = self._again(self.scope.admission.with_start_cash(selected.candidates, page.url))
        if not self.pattern_stats.have_stopped({candidate.host for candidate in found}):
            return found
        wanted = [each for each in found if self.pattern_stats.refusal(each, now) is None]
        self.figures.count(f"refused/{Reason.PATTERN}", len(found) - len(wanted))
        return wanted

    def requisites(
        self,
        page: Page,
        origin: Candidate,
        followed: Sequence[Candidate],
        given: Collection[str] = (),
    ) -> list[Candidate]:
        """Return what *page* needs to be shown, or a style sheet or frame of it in turn, unless it
        is *followed* anyway, or the arguments do not ask for it. What was *given* to a browser that
        made the page is in the archive, but for what style sheets name and it did not ask for."""
        if self.arguments is None or not self.arguments.requisites:
            return []
        hops = origin.requisite + 1
        is_shown = page.media_type in HTML_TYPES or (page.media_type in _SHOWN and hops > 1)
        if not is_shown or hops > MAX_REQUISITE_HOPS or page.flaw or not page.archive:
            return []
        embedded = [link for link in page.outlinks if link.kind in EMBEDDED]
        urls = [each.url for each in embedded if each.kind in _READ or each.url not in given]
        if hops == 1 and not any("icon" in link.rel.split() for link in page.outlinks if link.rel):
            urls.append(f"{authority_of(page.url)}/favicon.ico")  # as browsers do
        selected = self.scope.admission.select_requisites(
            urls, page.depth + 1, origin.level, hops, origin.cash
        )
        for reason, count in selected.refused.items():
            self.figures.count(f"refused/{reason}", count)
        keys = {each.key for each in followed}
        needed = [each for each in selected.candidates if each.key not in keys]
        if origin.chosen or origin.attempts:
            return [replace(each, chosen=True) for each in needed]
        return needed

    def checks(
        self, page: Page, origin: Candidate, followed: Sequence[Candidate]
    ) -> list[Candidate]:
        """Return the links of *page* that lead out of the scope and are not *followed*, to be
        checked, if the arguments ask for it. Those of a page that is not kept, or is itself out of
        the scope, are not."""
        if not self._checks_external:
            return []
        if page.parsed is None or page.flaw or not page.archive or origin.is_sitemap:
            return []
        settings = dataclasses.replace(self.settings, follow_kinds=_CHECKED)
        urls = [each.url for each in links_to_follow(page.outlinks, page.parsed.robots, settings)]
        known = {each.url for each in followed}
        return self.checks_of(origin, [url for url in urls if url not in known])

    def checks_of(self, origin: Candidate, urls: Sequence[str]) -> list[Candidate]:
        """Return those of *urls*, fetch forms to which *origin* leads, that are out of the scope,
        to be checked, if the arguments ask for it. What is refused was counted as a link."""
        if not self._checks_external or origin.requisite or origin.beyond:
            return []
        return self.scope.admission.select_checks(urls, origin.depth + 1)

    @property
    def _checks_external(self) -> bool:
        return self.arguments is not None and self.arguments.check_external

    def sent_on(
        self, candidate: Candidate, links: Sequence[Link | str], found: Sequence[Candidate]
    ) -> list[Candidate]:
        """Return *found*, what was admitted of *links* of the page of *candidate*, as what its
        seed leads to, if all of it is where its refresh leads; else nothing."""
        seed = candidate.seed_url
        if not seed or len(links) > _LOOKED_AT:
            return []
        refreshes = {
            link.url for link in links if isinstance(link, Link) and link.kind is LinkKind.REFRESH
        }
        # A page that reloads itself is one.
        if any(each.url not in refreshes or each.key == candidate.key for each in found):
            return []
        return [replace(each, seed=seed) for each in found]

    def dead_end(
        self, page: Page, links: Sequence[Link | str], origin: Candidate
    ) -> DeadEnd | None:
        """Return why *page*, fetched for the seed *origin*, of which no link was admitted, leads no
        further; None if that is what the arguments ask for, or a page without links is all that it
        is. *links*: those to follow."""
        if not page.is_answered:
            return None
        if page.noindex:
            return DeadEnd("noindex")
        if not self.scope.admission.follows(origin.url, page.depth):
            return None
        if not links:
            kinds = frozenset(self.settings.follow_kinds)
            marked = any(link.kind in kinds for link in page.outlinks)
            return DeadEnd("nofollow") if marked else None
        refused: list[tuple[Link, Refusal]] = []
        beyond = self.scope.admission.beyond(origin)
        for link in links[:_LOOKED_AT]:
            if isinstance(link, Link):
                found = self.scope.admission.candidate(
                    link.url, page.url, depth=page.depth + 1, beyond=beyond
                )
                refused += [(link, found)] if isinstance(found, Refusal) else []
        if len(refused) < len(links[:_LOOKED_AT]):
            return None
        refreshes = [each for each in refused if each[0].kind is LinkKind.REFRESH]
        link, refusal = (refreshes or refused)[0]
        why = refusal.of_target(link.url)
        if refreshes:
            return DeadEnd("refresh", why, link.url)
        why = f"the first of {len(links)} {why}"
        return DeadEnd("links", why) if refusal.reason in _BOUNDS else None
