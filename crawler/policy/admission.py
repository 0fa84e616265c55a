"""Admission: every URL text that is found becomes a Candidate or a Refusal here.

Rule: seeds, links, redirects and a spider's own requests are all judged in this order: parse,
address, scope, operator, traps, calendar, compare. Robots.txt, budgets and the seen test come
later, elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

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
    authority_of,
    canonical,
    fetch_form,
    host_key,
    is_ip,
    key_of,
    registered_domain,
    split,
)
from crawler.policy.operator_rules import NO_RULES, OperatorRules
from crawler.policy.scope import AddressRules, CalendarRules, Reason, Refusal, Scope, TrapRules

_AUTHORITIES: Final = 16_384
"""Verdicts that are cached: 10 us to judge one again, 350 bytes to keep it."""

_scheme = re.compile(r"[\x00-\x20]*+([A-Za-z][A-Za-z0-9+.\-]*+):").match


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRules:
    """The rules by which one crawl admits URLs, and makes their keys and hosts."""

    addresses: AddressRules
    key_seed: int
    scope: Scope = field(default_factory=Scope)
    traps: TrapRules = field(default_factory=TrapRules)
    calendar: CalendarRules = field(default_factory=CalendarRules)
    canonical: CanonicalRules = field(default_factory=CanonicalRules)
    unit: HostUnit = HostUnit.HOST
    operator: OperatorRules = NO_RULES


@dataclass(frozen=True, slots=True)
class LinkVerdicts:
    """The verdicts on the links of one page. Arrow: links -> frontier."""

    candidates: list[Candidate]  # each key once, in the page's order
    refused: Mapping[Reason, int]


class _AuthorityVerdict(NamedTuple):
    """The verdict that is the same for all URLs of one authority."""

    host: HostKey
    domain: str
    address_refusal: Refusal | None  # by the address rules
    host_refusal: Refusal | None  # by the address rules or the scope


class Admission:
    """Applies the rules of one crawl. Its only state is a cache of verdicts on authorities."""

    def __init__(self, rules: AdmissionRules) -> None:
        self._rules = rules
        self._is_unsuspicious = _unsuspicious(rules)
        self._key_seed = rules.key_seed
        self._has_operator_rules = bool(rules.operator)
        self._authority = lru_cache(maxsize=_AUTHORITIES)(self._judge_authority)

    def candidate(
        self,
        text: str,
        base: str | None = None,
        *,
        depth: int = 0,
        level: int = 0,
        request: bytes = b"",
        key: int | None = None,  # of a request that is more than its URL (a POST)
        needs_seen_test: bool = True,
        requisite: int = 0,  # of what redirects here
    ) -> Candidate | Refusal:
        """Judge one URL: a seed, the target of a redirect, a spider's own request."""
        url = fetch_form(text, base)
        if url is None:
            return unreadable_refusal(text)
        if requisite:
            return self._admit_requisite(url, depth, level, requisite)
        found = self._admit(url, depth, level, is_exempt=depth == 0 or bool(request))
        if isinstance(found, Refusal) or (needs_seen_test and not request and key is None):
            return found
        return msgspec.structs.replace(
            found,
            key=found.key if key is None else key,
            request=request,
            needs_seen_test=needs_seen_test,
        )

    def select_seeds(
        self, urls: Iterable[str], level: int
    ) -> tuple[list[Candidate], list[tuple[str, Refusal]]]:
        """Judge *urls*, fetch forms of seeds. Returns the candidates, and the refused ones."""
        found: list[Candidate] = []
        refused: list[tuple[str, Refusal]] = []
        for url in urls:
            verdict = self._admit(url, 0, level, True)
            if isinstance(verdict, Refusal):
                refused.append((url, verdict))
            else:
                found.append(verdict)
        return found, refused

    def select(
        self, hrefs: Iterable[str], base: str | None, depth: int, level: int = 0
    ) -> LinkVerdicts:
        """Judge the links of a page. *depth* and *level* are those of the links, not of the page.
        If *base* is None, the links are fetch forms."""
        found: dict[int, Candidate] = {}
        refused: Counter[Reason] = Counter()
        for text in dict.fromkeys(hrefs):  # menus repeat their links verbatim
            url = text if base is None else fetch_form(text, base)
            verdict = (
                unreadable_refusal(text) if url is None else self._admit(url, depth, level, False)
            )
            if isinstance(verdict, Refusal):
                refused[verdict.reason] += 1
            elif verdict.key not in found:
                found[verdict.key] = verdict
        return LinkVerdicts(list(found.values()), refused)

    def select_listed(
        self, links: Iterable[Link], base: str | None, depth: int, level_of: Callable[[Link], int]
    ) -> LinkVerdicts:
        """Judge links like `select`, with the hints that sitemaps and feeds give."""
        found: dict[int, Candidate] = {}
        refused: Counter[Reason] = Counter()
        for link in links:
            url = fetch_form(link.url, base)
            is_exempt = link.kind is LinkKind.SITEMAP  # whatever its file type, .gz above all
            verdict = (
                unreadable_refusal(link.url)
                if url is None
                else self._admit(url, depth, level_of(link), is_exempt)
            )
            if isinstance(verdict, Refusal):
                refused[verdict.reason] += 1
            elif verdict.key not in found:
                modified = link.modified or 0.0
                hinted = msgspec.structs.replace(
                    verdict, modified=modified, from_sitemap_index=is_exempt
                )
                found[verdict.key] = hinted
        return LinkVerdicts(list(found.values()), refused)

    def select_requisites(
        self, urls: Iterable[str], depth: int, level: int, hops: int
    ) -> LinkVerdicts:
        """Judge what a page needs to be shown, given as fetch forms. Scope, depth, file types and
        the patterns of `allow` do not count. *hops*: from the page."""
        found: dict[int, Candidate] = {}
        refused: Counter[Reason] = Counter()
        for url in dict.fromkeys(urls):
            verdict = self._admit_requisite(url, depth, level, hops)
            if isinstance(verdict, Refusal):
                refused[verdict.reason] += 1
            else:
                found.setdefault(verdict.key, verdict)
        return LinkVerdicts(list(found.values()), refused)

    def robots_candidate(self, text: str, base: str | None, authority: str) -> Candidate | Refusal:
        """Judge a robots.txt of *authority*, or a hop of its redirects, by its address alone: it
        may lie outside the scope of the crawl."""
        url = fetch_form(text, base)
        if url is None:
            return unreadable_refusal(text)
        judged = self._authority(authority_of(url))
        refusal = judged.address_refusal or operator_refusal(self._rules.operator, url)
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
        refusal = operator_refusal(self._rules.operator, candidate.url)
        if refusal or candidate.purpose is Purpose.ROBOTS:
            return refusal or judged.address_refusal
        if candidate.requisite:
            return judged.address_refusal or self._refusal(candidate.url, authority, 0, True)
        is_exempt = candidate.from_sitemap_index or candidate.depth == 0 or bool(candidate.request)
        return judged.host_refusal or self._refusal(
            candidate.url, authority, candidate.depth, is_exempt
        )

    def cached_authorities(self) -> int:
        """Return how many verdicts on authorities are cached."""
        return self._authority.cache_info().currsize

    def _admit(self, url: str, depth: int, level: int, is_exempt: bool) -> Candidate | Refusal:
        authority = url[: url.index("/", 8)]  # as `authority_of`, whose call costs a tenth of this
        judged = self._authority(authority)
        if judged.host_refusal:
            return judged.host_refusal
        if self._has_operator_rules:
            refusal = operator_refusal(self._rules.operator, url)
            if refusal:
                return refusal
            wanted = self._rules.operator.of_url(url).level
            level = level if wanted is None else wanted
        if self._is_unsuspicious(url, depth):
            key = key_of(url, self._key_seed)
        else:
            refusal = self._refusal(url, authority, depth, is_exempt)
            if refusal:
                return refusal
            key = self._key(url)
        return Candidate(url, key, judged.host, judged.domain, depth, level)

    def _admit_requisite(self, url: str, depth: int, level: int, hops: int) -> Candidate | Refusal:
        authority = authority_of(url)
        judged = self._authority(authority)
        refusal = (
            judged.address_refusal
            or operator_refusal(self._rules.operator, url)
            or self._refusal(url, authority, 0, True)
        )
        if refusal:
            return refusal
        key, host, domain = self._key(url), judged.host, judged.domain
        return Candidate(url, key, host, domain, depth, level, requisite=hops)

    def _refusal(self, url: str, authority: str, depth: int, is_exempt: bool) -> Refusal | None:
        """Judge by all rules except those about the host."""
        path, _, query = url[len(authority) :].partition("?")
        rules = self._rules
        refusal = rules.scope.refusal(url, path, depth, is_exempt) or rules.traps.refusal(url, path)
        if refusal is None and not is_exempt:
            refusal = rules.calendar.refusal(path, query)
        return refusal

    def _key(self, url: str) -> int:
        return key_of(canonical(url, self._rules.canonical), self._rules.key_seed)

    def _judge_authority(self, authority: str) -> _AuthorityVerdict:
        parts = split(authority + "/")
        hostname = parts.hostname
        unreachable = _bad_host(hostname) or self._rules.addresses.refusal(hostname, parts.port)
        return _AuthorityVerdict(
            host_key(hostname, self._rules.unit),
            registered_domain(hostname),
            unreachable,
            unreachable or self._rules.scope.host_refusal(hostname),
        )


def _unsuspicious(rules: AdmissionRules) -> Callable[[str, int], bool]:
    """Return a function of a fetch form and its depth, that is true of nine links in ten: no rule
    but those about the host can refuse the URL, and it is its own canonical form. One expression
    takes a quarter of the time that all the rules take to find that."""
    scope, traps = rules.scope, rules.traps
    if scope.deny or scope.allow or not rules.canonical.plain_stays:
        return lambda url, depth: False
    deepest, longest = scope.max_depth, traps.max_url_chars
    segments = min(traps.max_repeats + 1, traps.max_path_segments, 100)
    # A year before "/" or "-" may be one of a calendar.
    is_plain = re.compile(
        r"https?://[^/:]*+(?<!\.)(?::[0-9]++)?+(?!.*/[12][0-9]{3}[/-])"
        rf"(?:/[A-Za-z0-9\-._~!$&'()*+,;:@]*+){{1,{segments}}}+"
    ).fullmatch
    denied_types = scope.denied_types

    def is_unsuspicious(url: str, depth: int) -> bool:
        if deepest is not None and depth > deepest:
            return False
        if len(url) > longest or not is_plain(url):
            return False
        return url[url.rfind(".") + 1 :].lower() not in denied_types

    return is_unsuspicious


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
