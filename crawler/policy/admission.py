"""Admission: every URL text that is found becomes a Candidate or a Refusal here.

Rule: seeds, links, redirects and a spider's own requests are all judged in this order: parse,
address, scope, operator, traps, calendar, compare. Traps and calendars are for found links, not
for what a spider's code names. Robots.txt, budgets and the seen test come later, elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from crawler.config.settings import Config, LinkSettings
from crawler.model.choices import HostUnit
from crawler.model.page import Link, LinkKind
from crawler.model.types import (
    Candidate,
    HostKey,
    Purpose,
)
from crawler.model.url import (
    MAX_TEXT_CHARS,
    CanonicalRules,
    UrlRule,
    authority_of,
    canonical,
    fetch_form,
    fetch_forms,
    host_key,
    is_ip,
    key_of,
    key_of_check,
    keys_of,
    registered_domain,
    split,
)
from crawler.policy.addresses import AllowedAddresses
from crawler.policy.operator_rules import NO_RULES, OperatorRules
from crawler.policy.priority import (
    NO_CASH,
    SEED_CASH,
    CashPrioritizer,
    Hints,
    Prioritizer,
    cash_of_weight,
)
from crawler.policy.ranks import Ranks
from crawler.policy.refusal import Reason, Refusal
from crawler.policy.scope import Scope, SeedPlace
from crawler.policy.traps import CalendarLimits, TrapLimits

if TYPE_CHECKING:
    from crawler.model.url_scan import PlainUrls

_AUTHORITIES: Final = 16_384
"""Verdicts that are cached: 10 us to judge one again, 350 bytes to keep it."""

_LEAVES: Final = frozenset({Reason.OUT_OF_SCOPE, Reason.NOT_ALLOWED})
"""Why a link leads out of the scope, and may be one of the hops beyond it."""

_UNFOLLOWED: Final = frozenset({"nofollow", "ugc", "sponsored"})

_scheme = re.compile(r"[\x00-\x20]*+([A-Za-z][A-Za-z0-9+.\-]*+):").match


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionSettings:
    """By what one crawl admits URLs, and makes their keys and hosts."""

    addresses: AllowedAddresses
    key_seed: int
    scope: Scope = field(default_factory=Scope)
    traps: TrapLimits = field(default_factory=TrapLimits)
    calendar: CalendarLimits = field(default_factory=CalendarLimits)
    canonical: CanonicalRules = field(default_factory=CanonicalRules)
    unit: HostUnit = HostUnit.HOST
    operator: OperatorRules = NO_RULES
    prioritizer: Prioritizer = CashPrioritizer(3)
    levels: int = 3  # that it has
    ranks: Ranks | None = None  # of domains or hosts, from outside


def admission_settings(
    config: Config,
    scope: Scope,
    addresses: AllowedAddresses,
    key_seed: int,
    now: float,
    ranks: Ranks | None = None,
) -> AdmissionSettings:
    return AdmissionSettings(
        addresses=addresses,
        key_seed=key_seed,
        scope=replace(scope, denied_types=frozenset(config.limits.deny_extensions)),
        traps=TrapLimits(
            max_url_chars=config.limits.max_url_length,
            max_path_segments=config.limits.max_path_segments,
        ),
        calendar=calendar_limits(config, now),
        canonical=canonical_rules(config),
        unit=config.politeness.host_unit,
        levels=len(config.frontier.level_shares),
        ranks=ranks,
    )


def calendar_limits(config: Config, now: float) -> CalendarLimits:
    today = datetime.fromtimestamp(now, UTC).date()
    try:
        last = today + timedelta(days=config.patterns.calendar_ahead_days)
    except OverflowError:
        last = date.max
    until = (last.year, last.month, last.day)
    return CalendarLimits(from_year=config.patterns.calendar_from_year, until=until)


def canonical_rules(config: Config) -> CanonicalRules:
    sameness = config.urls
    by_rule = {
        UrlRule.TRACKING: sameness.strip_tracking,
        UrlRule.SESSION: sameness.strip_session_ids,
        UrlRule.SORT: sameness.sort_query,
        UrlRule.SLASH: sameness.merge_trailing_slash,
        UrlRule.WWW: sameness.merge_www,
        UrlRule.HTTPS: sameness.merge_https,
    }
    return CanonicalRules(frozenset(rule for rule, is_on in by_rule.items() if is_on))


def identity_of_urls(config: Config) -> tuple[str, ...]:
    """Return the settings that URL keys depend on, which are fixed when the crawl begins. Where
    addresses are grouped, the queues are by name, as without."""
    unit = config.politeness.host_unit
    named = HostUnit.HOST if unit is HostUnit.ADDRESS else unit
    return (*sorted(canonical_rules(config).on), f"unit={named}")


class LinkVerdicts(msgspec.Struct, frozen=True):
    """The verdicts on the links of one page. Arrow: links -> frontier."""

    candidates: list[Candidate]  # each key once, in the page's order
    refused: Mapping[Reason, int]


class _AuthorityVerdict(NamedTuple):
    """The verdict that is the same for all URLs of one authority."""

    host: HostKey
    domain: str
    address_refusal: Refusal | None  # by the address rules
    host_refusal: Refusal | None  # by the address rules or the scope
    start_cash: int  # the least of a link from another host


class Admission:
    """Applies the rules of one crawl. Its only state is a cache of verdicts on authorities."""

    def __init__(self, settings: AdmissionSettings) -> None:
        self._settings = settings
        self._has_operator_rules = bool(settings.operator)
        self._authority = lru_cache(maxsize=_AUTHORITIES)(self._judge_authority)

    def candidate(
        self,
        text: str,
        base: str | None = None,
        *,
        depth: int = 0,
        level: int = 0,
        hints: Hints | None = None,
        request: bytes = b"",
        key: int | None = None,  # of a request that is more than its URL (a POST)
        needs_seen_test: bool = True,
        requisite: int = 0,  # of what redirects here
        is_sitemap: bool = False,  # named as one, by robots.txt or by what redirects here
        index_hops: int = 0,
        beyond: int = 0,  # as `Scope.beyond` returns; 0: it must be in the scope
    ) -> Candidate | Refusal:
        """Judge one URL: a seed, the target of a redirect, a spider's own request. *hints*: what
        decides its level; None: *level* is given."""
        url = fetch_form(text, base)
        if url is None:
            return unreadable_refusal(text)
        if hints is not None:
            level = self._level(hints)
        if requisite:
            return self._admit_requisite(url, depth, level, requisite)
        is_named = bool(request)
        is_exempt = depth == 0 or is_named or is_sitemap
        # A spider's own requests come in the order in which it made them.
        cash = SEED_CASH if depth == 0 and not (is_named or is_sitemap) else NO_CASH
        found = self._admit(url, depth, level, is_exempt, is_named, cash)
        if beyond and isinstance(found, Refusal):
            found = self._beyond(found, url, depth, level, beyond, cash)
        is_plain = needs_seen_test and not request and key is None and not is_sitemap
        if isinstance(found, Refusal) or is_plain:
            return found
        return msgspec.structs.replace(
            found,
            key=found.key if key is None else key,
            request=request,
            needs_seen_test=needs_seen_test,
            is_sitemap=is_sitemap,
            index_hops=index_hops,
        )

    def _level(self, hints: Hints) -> int:
        """Return the front level of a URL by its *hints*."""
        return self._settings.prioritizer.level(hints)

    def level_of(self, candidate: Candidate) -> int:
        """Return the front level of a URL that waits, by the rules of the operator or else its
        depth."""
        ruled = self._settings.operator.of_url(candidate.url).level
        if ruled is not None:
            return ruled
        if candidate.purpose is Purpose.CHECK:
            return self._settings.levels - 1
        return self._level(Hints(depth=candidate.depth, is_seed=not candidate.depth))

    def select_seeds(
        self, urls: Iterable[str]
    ) -> tuple[list[Candidate], list[tuple[str, Refusal]]]:
        """Judge *urls*, fetch forms of seeds. Returns the candidates, and the refused ones."""
        level = self._level(Hints(is_seed=True))
        found: list[Candidate] = []
        refused: list[tuple[str, Refusal]] = []
        for url in urls:
            verdict = self._admit(url, 0, level, True, cash=SEED_CASH)
            if isinstance(verdict, Refusal):
                refused.append((url, verdict))
            else:
                found.append(verdict)
        return found, refused

    def select(
        self,
        hrefs: Iterable[str],
        base: str | None,
        depth: int,
        cash: int = NO_CASH,
        beyond: int = 0,
    ) -> LinkVerdicts:
        """Judge the links of a page. *depth*, *cash* and *beyond*, as `Scope.beyond` returns it,
        are those of the links, not of the page. If *base* is None, the links are fetch forms."""
        level = self._level(Hints(depth=depth))
        found: dict[int, Candidate] = {}
        refused: Counter[Reason] = Counter()
        texts = list(dict.fromkeys(hrefs))  # menus repeat their links verbatim
        urls = texts if base is None else [url or "" for url in fetch_forms(texts, base)]
        scope = self._settings.scope
        deepest, are_plain = scope.deepest, bytes(len(urls))
        judges_urls = scope.judges_urls
        if self._plain_urls and (deepest is None or depth <= deepest):
            are_plain = self._plain_urls.verdicts(urls)
        keys = keys_of(urls, self._settings.key_seed)  # of those that are plain
        site, judged = "/", None  # "scheme://host/" of the last one, and the verdict on it
        verdict: Candidate | Refusal | None
        for text, url, is_plain, key in zip(texts, urls, are_plain, keys, strict=True):
            if is_plain:
                if judged is None or not url.startswith(site):
                    site = url[: url.index("/", 8) + 1]
                    judged = self._authority(site[:-1])
                verdict = judged.host_refusal
                if verdict is None and judges_urls:
                    verdict = scope.link_refusal(url, depth)
                if verdict is None:
                    if key not in found:
                        found[key] = Candidate(
                            url, key, judged.host, judged.domain, depth, level, cash=cash
                        )
                    continue
            else:
                verdict = (
                    self._admit(url, depth, level, False, cash=cash)
                    if url
                    else unreadable_refusal(text)
                )
            if beyond and url and isinstance(verdict, Refusal):
                verdict = self._beyond(verdict, url, depth, level, beyond, cash)
            if isinstance(verdict, Refusal):
                refused[verdict.reason] += 1
            else:
                found.setdefault(verdict.key, verdict)
        return LinkVerdicts(list(found.values()), refused)

    def select_listed(
        self,
        links: Iterable[Link],
        base: str | None,
        depth: int,
        index_hops: int = 0,
        cash: int = NO_CASH,
        beyond: int = 0,
    ) -> LinkVerdicts:
        """Judge links like `select`, with the hints that sitemaps and feeds give. A sitemap has the
        depth of its index, and *index_hops*."""
        found: dict[int, Candidate] = {}
        refused: Counter[Reason] = Counter()
        for link in links:
            url = fetch_form(link.url, base)
            is_exempt = link.kind is LinkKind.SITEMAP  # whatever its file type, .gz above all
            hints = Hints(
                depth=depth,
                sitemap_priority=link.priority,
                modified=link.modified,
                is_sitemap=is_exempt,
            )
            level = self._level(hints)
            verdict = (
                unreadable_refusal(link.url)
                if url is None
                else self._admit(url, depth - is_exempt, level, is_exempt, cash=cash)
            )
            if beyond and url and isinstance(verdict, Refusal):
                verdict = self._beyond(verdict, url, depth - is_exempt, level, beyond, cash)
            if isinstance(verdict, Refusal):
                refused[verdict.reason] += 1
            elif verdict.key not in found:
                modified = link.modified or 0.0
                found[verdict.key] = msgspec.structs.replace(
                    verdict,
                    modified=modified,
                    is_sitemap=is_exempt,
                    index_hops=index_hops if is_exempt else 0,
                )
        return LinkVerdicts(list(found.values()), refused)

    def select_requisites(
        self, urls: Iterable[str], depth: int, level: int, hops: int, cash: int = NO_CASH
    ) -> LinkVerdicts:
        """Judge what a page needs to be shown, given as fetch forms. Scope, depth, file types and
        the patterns of `allow` do not count. *hops*: from the page."""
        found: dict[int, Candidate] = {}
        refused: Counter[Reason] = Counter()
        for url in dict.fromkeys(urls):
            verdict = self._admit_requisite(url, depth, level, hops, cash)
            if isinstance(verdict, Refusal):
                refused[verdict.reason] += 1
            else:
                found.setdefault(verdict.key, verdict)
        return LinkVerdicts(list(found.values()), refused)

    def select_checks(self, urls: Iterable[str], depth: int) -> list[Candidate]:
        """Return those of the links of a page, given as fetch forms, that are out of the scope and
        may be checked."""
        found: dict[int, Candidate] = {}
        for url in dict.fromkeys(urls):
            verdict = self._admit_check(url, depth)
            if not isinstance(verdict, Refusal):
                found.setdefault(verdict.key, verdict)
        return list(found.values())

    def check(self, text: str, base: str, depth: int) -> Candidate | Refusal:
        """Judge where a redirect out of the scope leads, as what is only checked."""
        url = fetch_form(text, base)
        return unreadable_refusal(text) if url is None else self._admit_check(url, depth)

    def with_start_cash(self, found: list[Candidate], page_url: str) -> list[Candidate]:
        """Return *found*, what a page links to, with no less cash than the ranks from outside give
        to links from other hosts. Links of a host to itself have none of it: each of its pages
        would have as much, and their order be lost."""
        if self._settings.ranks is None:
            return found
        own, candidates = self._authority(authority_of(page_url)).host, list(found)
        for place, each in enumerate(candidates):
            if each.host != own:
                start = self._authority(authority_of(each.url)).start_cash
                if start > each.cash:
                    candidates[place] = msgspec.structs.replace(each, cash=start)
        return candidates

    def robots_candidate(self, text: str, base: str | None, authority: str) -> Candidate | Refusal:
        """Judge a robots.txt of *authority*, or a hop of its redirects, by its address alone: it
        may lie outside the scope of the crawl."""
        url = fetch_form(text, base)
        if url is None:
            return unreadable_refusal(text)
        judged = self._authority(authority_of(url))
        refusal = judged.address_refusal or operator_refusal(self._settings.operator, url)
        if refusal:
            return refusal
        return Candidate(
            url=url,
            key=self._key(url),
            host=judged.host,
            domain=judged.domain,
            purpose=Purpose.ROBOTS,
            authority=authority,
            needs_seen_test=False,
        )

    def refusal(self, candidate: Candidate) -> Refusal | None:
        """Judge a candidate that an earlier start admitted, or that came before all seeds were
        known."""
        authority = authority_of(candidate.url)
        judged = self._authority(authority)
        refusal = operator_refusal(self._settings.operator, candidate.url)
        if refusal or candidate.purpose is Purpose.ROBOTS:
            return refusal or judged.address_refusal
        if candidate.requisite:
            return judged.address_refusal or self._refusal(candidate.url, authority, 0, True)
        if candidate.purpose is Purpose.CHECK:
            return self._check_refusal(candidate.url, authority, judged)
        is_named = bool(candidate.request)
        is_exempt = candidate.is_sitemap or candidate.depth == 0 or is_named
        refusal = judged.host_refusal or self._refusal(
            candidate.url, authority, candidate.depth, is_exempt, is_named
        )
        if refusal is None or not candidate.beyond or refusal.reason not in _LEAVES:
            return refusal
        return judged.address_refusal or self._refusal(
            candidate.url, authority, candidate.depth, False, beyond=candidate.beyond
        )

    def follows(self, url: str, depth: int) -> bool:
        """Return whether any link of the page *url*, of *depth*, may be admitted."""
        return self._settings.scope.follows(url, depth)

    def lists(self, authority: str) -> bool:
        """Return whether the sitemaps of the host of *authority* may list URLs that are
        admitted."""
        return self._settings.scope.lists(split(f"{authority}/").hostname)

    def beyond(self, page: Candidate) -> int:
        """Return how far beyond the scope a link of *page* may lead, as a candidate has it."""
        return self._settings.scope.beyond(page.url, page.beyond)

    def place_of(self, url: str) -> SeedPlace | None:
        """Return the seeds that *url*, a fetch form, belongs to; None: it is out of the scope."""
        return self._settings.scope.place_of(url)

    def place_with_limits(self, url: str) -> SeedPlace | None:
        """Return the same, or None if these seeds have no limits."""
        place = self.place_of(url) if self._settings.scope.has_limits else None
        return place if place is not None and place.terms.has_limits else None

    def cached_authorities(self) -> int:
        """Return how many verdicts on authorities are cached."""
        return self._authority.cache_info().currsize

    def _admit(
        self,
        url: str,
        depth: int,
        level: int,
        is_exempt: bool,
        is_named: bool = False,
        cash: int = NO_CASH,
    ) -> Candidate | Refusal:
        authority = url[: url.index("/", 8)]  # as `authority_of`, whose call costs a tenth of this
        judged = self._authority(authority)
        if judged.host_refusal:
            return judged.host_refusal
        if self._has_operator_rules:
            refusal = operator_refusal(self._settings.operator, url)
            if refusal:
                return refusal
            wanted = self._settings.operator.of_url(url).level
            level = level if wanted is None else wanted
        refusal = self._refusal(url, authority, depth, is_exempt, is_named)
        if refusal:
            return refusal
        return Candidate(url, self._key(url), judged.host, judged.domain, depth, level, cash=cash)

    def _beyond(
        self, refusal: Refusal, url: str, depth: int, level: int, hops: int, cash: int
    ) -> Candidate | Refusal:
        """Judge *url* again, which was refused: as one that is *hops* beyond the scope, if it is
        out of that."""
        if refusal.reason not in _LEAVES:
            return refusal
        authority = authority_of(url)
        judged = self._authority(authority)
        refused = (
            judged.address_refusal
            or operator_refusal(self._settings.operator, url)
            or self._refusal(url, authority, depth, False, beyond=hops)
        )
        if refused:
            return refused
        key, host, domain = self._key(url), judged.host, judged.domain
        return Candidate(url, key, host, domain, depth, level, beyond=hops, cash=cash)

    @cached_property
    def _plain_urls(self) -> PlainUrls | None:
        """The URLs that no rule but those about hosts and depth can refuse, and that are their own
        canonical forms: nine links in ten. None: by these rules there are no such URLs."""
        from crawler.model.url_scan import PlainUrls  # noqa: PLC0415  # it imports numba: 0.4 s

        scope, traps = self._settings.scope, self._settings.traps
        if scope.has_patterns or self._settings.operator:
            return None
        if not self._settings.canonical.plain_stays:
            return None
        segments = min(traps.max_repeats + 1, traps.max_path_segments)
        return PlainUrls(traps.max_url_chars, segments, scope.denied_types)

    def _admit_requisite(
        self, url: str, depth: int, level: int, hops: int, cash: int = NO_CASH
    ) -> Candidate | Refusal:
        authority = authority_of(url)
        judged = self._authority(authority)
        refusal = (
            judged.address_refusal
            or operator_refusal(self._settings.operator, url)
            or self._refusal(url, authority, 0, True)
        )
        if refusal:
            return refusal
        key, host, domain = self._key(url), judged.host, judged.domain
        return Candidate(url, key, host, domain, depth, level, requisite=hops, cash=cash)

    def _admit_check(self, url: str, depth: int) -> Candidate | Refusal:
        authority = authority_of(url)
        judged = self._authority(authority)
        refusal = self._check_refusal(url, authority, judged)
        if refusal:
            return refusal
        return Candidate(
            url=url,
            key=key_of_check(self._key(url)),
            host=judged.host,
            domain=judged.domain,
            depth=depth,
            level=self._settings.levels - 1,  # pages come first
            purpose=Purpose.CHECK,
        )

    def _check_refusal(self, url: str, authority: str, judged: _AuthorityVerdict) -> Refusal | None:
        """Judge *url* as one that is only checked. File types do not count, as no body is
        fetched."""
        path, _, query = url[len(authority) :].partition("?")
        settings = self._settings
        if judged.address_refusal:
            return judged.address_refusal
        if judged.host_refusal is None and settings.scope.terms_of(url) is not None:
            return Refusal(Reason.IN_SCOPE, url[:80])
        return (
            operator_refusal(settings.operator, url)
            or settings.scope.denial(url)
            or settings.traps.refusal(url, path)
            or settings.calendar.refusal(path, query)
        )

    def _refusal(
        self,
        url: str,
        authority: str,
        depth: int,
        is_exempt: bool,
        is_named: bool = False,
        beyond: int = 0,
    ) -> Refusal | None:
        """Judge by all rules except those about the host. *is_named*: by a spider's code."""
        path, _, query = url[len(authority) :].partition("?")
        settings = self._settings
        refusal = (
            settings.scope.beyond_refusal(url, path, beyond)
            if beyond
            else settings.scope.refusal(url, path, depth, is_exempt)
        )
        if refusal is None and not is_named:
            refusal = settings.traps.refusal(url, path)
        if refusal is None and not is_exempt:
            refusal = settings.calendar.refusal(path, query)
        return refusal

    def _key(self, url: str) -> int:
        return key_of(canonical(url, self._settings.canonical), self._settings.key_seed)

    def _judge_authority(self, authority: str) -> _AuthorityVerdict:
        parts = split(authority + "/")
        hostname, ranks = parts.hostname, self._settings.ranks
        domain = registered_domain(hostname)
        weight = 0.0
        if ranks is not None:
            weight = ranks.weight_of(hostname.rstrip(".")) or ranks.weight_of(domain)
        unreachable = _bad_host(hostname) or self._settings.addresses.refusal(hostname, parts.port)
        return _AuthorityVerdict(
            host_key(hostname, self._settings.unit),
            domain,
            unreachable,
            unreachable or self._settings.scope.host_refusal(hostname),
            cash_of_weight(weight),
        )


def links_to_follow(
    links: Iterable[Link], robots: frozenset[str], settings: LinkSettings
) -> tuple[Link, ...]:
    """Return the links that the settings and the page's author allow to follow. *robots*: the
    page's directives for crawlers."""
    if settings.respect_nofollow and "nofollow" in robots:
        return ()
    kinds, respects = frozenset(settings.follow_kinds), settings.respect_nofollow
    return tuple(
        [
            link
            for link in links
            if link.kind in kinds
            and not (link.rel and respects and not _UNFOLLOWED.isdisjoint(link.rel.split()))
        ]
    )


def operator_refusal(rules: OperatorRules, url: str) -> Refusal | None:
    """Return the refusal by the operator's *rules*, if they refuse *url*, a fetch form."""
    if not rules.of_url(url).refuse:
        return None
    return Refusal(Reason.OPERATOR, f"rules.toml line {rules.explain(url)['refuse'].line}")


def _bad_host(hostname: str) -> Refusal | None:
    """Refuse names that WHATWG accepts but the DNS cannot hold (RFC 1035)."""
    name = hostname.removesuffix(".")
    if len(name) <= 63 and ".." not in name and not name.startswith("."):
        return None
    fits = len(name) <= 253 and all(0 < len(label) <= 63 for label in name.split("."))
    if fits or is_ip(hostname):
        return None
    return Refusal(Reason.BAD_HOST, f"{hostname[:80]!r} has an empty label or one too long")


def unreadable_refusal(text: str) -> Refusal:
    """Return the reason why *text* is no URL that could be fetched."""
    scheme = _scheme(text)
    if scheme and scheme[1].lower() not in {"http", "https"}:
        return Refusal(Reason.SCHEME, f"the scheme is {scheme[1][:20]}")
    if len(text) > MAX_TEXT_CHARS:
        return Refusal(Reason.URL_TOO_LONG, f"{len(text)} characters are over {MAX_TEXT_CHARS}")
    return Refusal(Reason.NOT_A_URL, repr(text[:80]))
