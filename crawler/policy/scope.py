"""The scope of a crawl: where its links may lead, by its seeds.

Rule: a URL belongs to the seed in whose scope it is, of several to the one with the narrowest (a
page, the longest folder, a host, a domain, a pattern, anywhere), whichever page it was found on. So
its terms are the same in whatever order pages are fetched, and by whichever worker. The user's
patterns decide, a denial over an allowance. A URL that a person named, as a seed or in a spider's
code, needs no allowance.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple

from xxhash import xxh3_64_hexdigest

from crawler.config.arguments import SeedTerms
from crawler.model.choices import ScopeChoice
from crawler.model.types import ConfigError
from crawler.model.url import CanonicalRules, authority_of, canonical, registered_domain, split
from crawler.policy.addresses import (
    MOST_ORIGINS,
    AddressKind,
    Origin,
    host_kind,
    loopback_origin,
    origin_text,
)
from crawler.policy.name_set import NameNumbers, NameSet
from crawler.policy.refusal import Reason, Refusal
from crawler.policy.seed_terms import TermsOfSeeds

# What is compared of a seed, its *unit*: `host` and `*.domain` stand for all that is there;
# `host/<hash>` for a folder, with `host/` for a host of which folders are in scope, and
# `host?<hash>` for a page, with `host?`.


def scope_unit(hostname: str, mode: ScopeChoice) -> str:
    """Return what a scope compares of *hostname*."""
    if mode is ScopeChoice.DOMAIN:
        return f"*.{registered_domain(hostname)}"
    # Most sites redirect one of the two to the other: a crawl of only one would end there.
    return hostname.rstrip(".").removeprefix("www.")


def place_of_seed(url: str, mode: ScopeChoice) -> str:
    """Return what *url*, the fetch form of a seed, brings into a scope: its hostname, and that of
    its folder behind it where folders count."""
    hostname = split(url).hostname
    return hostname + _of_folder(_path_of(url)) if mode is ScopeChoice.PREFIX else hostname


def _units_of_place(place: str, mode: ScopeChoice) -> tuple[str, ...]:
    """Return what a scope compares of a place of a seed: of a folder its host, too."""
    hostname, _, folder = place.partition("/")
    unit = _unit_of_host(hostname, mode)
    return (unit, unit + folder) if folder else (unit,)


def _unit_of_host(hostname: str, mode: ScopeChoice) -> str:
    """Return what is compared of the host of a seed."""
    of_parts = {ScopeChoice.PREFIX: "/", ScopeChoice.PAGE: "?"}
    return scope_unit(hostname, mode) + of_parts.get(mode, "")


def _unit_of_page(unit: str, url: str) -> str:
    """Return what is compared of a page, *url*, on a host of this *unit*."""
    found = canonical(url, _ESCAPES_ONLY)
    return f"{unit}?{xxh3_64_hexdigest(found[found.index('/', 8) :].encode())}"


def _path_of(url: str) -> str:
    """Return a path as it is compared: however its characters are escaped."""
    found = canonical(url, _ESCAPES_ONLY)
    return found[found.index("/", 8) :].partition("?")[0]


_ESCAPES_ONLY: Final = CanonicalRules(frozenset())


def _of_folder(path: str) -> str:
    """Return the folder of a path as a hash: places are kept where a purge does not look."""
    return "/" + xxh3_64_hexdigest(path[: path.rindex("/") + 1].encode())


class SeedPlace(NamedTuple):
    """The seeds that a URL belongs to: those of one unit."""

    unit: str  # empty: those that lead anywhere, or where a pattern is found
    terms: SeedTerms
    # For people: the page, or example.org/docs/, example.org, *.example.org; empty as the unit is.
    name: str = ""


_HALF: Final = 16  # of a byte: hops beyond the scope, as a candidate has them


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The bounds of one crawl. *terms*: of the crawl, then those of seeds that have other ones;
    *units*: what is compared of each seed of a list, which may be a million, with the number of its
    terms; *seeds*: the places of seeds that came otherwise, which have the terms of the crawl."""

    terms: tuple[SeedTerms, ...] = (SeedTerms(),)
    units: NameNumbers = field(default_factory=NameNumbers, repr=False)
    has_plain: bool = True  # whether a seed has the terms of the crawl
    seeds: frozenset[str] = frozenset()
    denied_types: frozenset[str] = frozenset()  # by the end of the path, in lower case
    _bounds: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        units = (_units_of_place(place, self.mode) for place in self.seeds)
        object.__setattr__(self, "_bounds", frozenset(chain.from_iterable(units)))

    def with_seeds(self, places: Iterable[str]) -> Scope:
        """Return the scope with further seeds. The bounds of earlier seeds are kept, not computed
        again, so 100,000 seeds cost a copy of a set."""
        wider = replace(self, seeds=frozenset(places))
        object.__setattr__(wider, "_bounds", self._bounds | wider._bounds)
        return wider

    @property
    def mode(self) -> ScopeChoice:
        """The scope of a seed without options."""
        return self.terms[0].scope

    @cached_property
    def _of_mode(self) -> dict[ScopeChoice, list[int]]:
        """The numbers of the terms by their scopes."""
        found: dict[ScopeChoice, list[int]] = {}
        for number, terms in enumerate(self.terms):
            if number or self.has_plain or self.seeds or len(self.terms) == 1:
                found.setdefault(terms.scope, []).append(number)
        return found

    @cached_property
    def judges_urls(self) -> bool:
        """Whether links to one host may be judged differently, by their paths or depths."""
        return len(self.terms) > 1 or self.mode in (ScopeChoice.PREFIX, ScopeChoice.PAGE)

    @cached_property
    def has_patterns(self) -> bool:
        """Whether some URLs are judged by patterns."""
        return any(terms.allow or terms.deny for terms in self.terms)

    @cached_property
    def has_limits(self) -> bool:
        """Whether a seed has limits of its own."""
        return any(terms.has_limits for terms in self.terms)

    @cached_property
    def deepest(self) -> int | None:
        """The most hops from a seed; None: no limit."""
        depths = [terms.max_depth for terms in self.terms]
        return None if None in depths else max(depth for depth in depths if depth is not None)

    @cached_property
    def most_beyond(self) -> int:
        """The most hops beyond the scope that the terms of a seed allow."""
        return max(terms.extra_hops for terms in self.terms)

    @cached_property
    def _leads_anywhere(self) -> bool:
        return ScopeChoice.ANY in self._of_mode or ScopeChoice.REGEX in self._of_mode

    def host_refusal(self, hostname: str) -> Refusal | None:
        """Judge a hostname, that of a seed too."""
        if self._leads_anywhere or self._has_host(hostname):
            return None
        only_domains = list(self._of_mode) == [ScopeChoice.DOMAIN]
        unit = ScopeChoice.DOMAIN if only_domains else ScopeChoice.HOST
        return Refusal(Reason.OUT_OF_SCOPE, f"{hostname} is no {unit} of a seed")

    def _has_host(self, hostname: str) -> bool:
        unit = scope_unit(hostname, ScopeChoice.HOST)
        found = (unit, f"{unit}/", f"{unit}?", scope_unit(hostname, ScopeChoice.DOMAIN))
        return any(self._number(each) is not None for each in found)

    def _number(self, unit: str) -> int | None:
        number = self.units.get(unit)
        return 0 if number is None and unit in self._bounds else number

    def place_of(self, url: str) -> SeedPlace | None:
        """Return the seeds that *url*, a fetch form, belongs to; None: it is out of the scope."""
        modes = self._of_mode
        hostname = split(url).hostname
        host = scope_unit(hostname, ScopeChoice.HOST)
        if ScopeChoice.PAGE in modes and len(self.terms) > 1:
            page = _unit_of_page(host, url)
            if (number := self._number(page)) is not None:
                return SeedPlace(page, self.terms[number], url)
        if ScopeChoice.PREFIX in modes and self._number(f"{host}/") is not None:
            path = _path_of(url)
            at = len(path)
            while (at := path.rfind("/", 0, at)) >= 0:
                folder = host + _of_folder(path[: at + 1])
                if (number := self._number(folder)) is not None:
                    return SeedPlace(folder, self.terms[number], host + path[: at + 1])
        domain = scope_unit(hostname, ScopeChoice.DOMAIN) if ScopeChoice.DOMAIN in modes else ""
        for unit in (host, domain):
            if (number := self._number(unit)) is not None:
                return SeedPlace(unit, self.terms[number], unit)
        for number in modes.get(ScopeChoice.REGEX, ()):
            if _first_match(self.terms[number].allow, url):
                return SeedPlace("", self.terms[number])
        anywhere = modes.get(ScopeChoice.ANY)
        return SeedPlace("", self.terms[anywhere[0]]) if anywhere else None

    def terms_of(self, url: str) -> SeedTerms | None:
        """Return the terms for *url*, a fetch form whose host is in scope; None: it is not."""
        if not self.judges_urls and self.mode is not ScopeChoice.REGEX:
            return self.terms[0]
        place = self.place_of(url)
        return place.terms if place else None

    def follows(self, url: str, depth: int) -> bool:
        """Return whether any link of the page *url*, of *depth*, may be admitted."""
        terms = self.terms_of(url) or self.terms[0]
        if terms.extra_hops:
            return True
        if terms.scope is ScopeChoice.PAGE:
            return False
        return terms.max_depth is None or depth < terms.max_depth

    def lists(self, hostname: str) -> bool:
        """Return whether the sitemaps of *hostname* may list URLs that are admitted."""
        if all(terms.scope is ScopeChoice.PAGE or terms.max_depth == 0 for terms in self.terms):
            return False
        host = scope_unit(hostname, ScopeChoice.HOST)
        wide = (host, f"{host}/", scope_unit(hostname, ScopeChoice.DOMAIN))
        return self._leads_anywhere or any(self._number(each) is not None for each in wide)

    def beyond(self, page: str, hops: int) -> int:
        """Return the hops, as a candidate has them, of a link that leads out of the scope from the
        *page*, a fetch form, which has *hops*; 0: it is not followed."""
        if hops:
            used, left = divmod(hops, _HALF)
            return (used + 1) * _HALF + left - 1 if left else 0
        if not self.most_beyond:
            return 0
        most = (self.terms_of(page) or self.terms[0]).extra_hops
        return _HALF + most - 1 if most else 0

    @property
    def has_outside(self) -> bool:
        """Whether a link can lead out of it."""
        return ScopeChoice.ANY not in self._of_mode

    def denial(self, url: str) -> Refusal | None:
        """Judge a URL out of the scope by what the crawl denies."""
        return _denial(self.terms[0], url)

    def beyond_refusal(self, url: str, path: str, hops: int) -> Refusal | None:
        """Judge a URL that is *hops* beyond the scope."""
        used = hops // _HALF
        if used > self.most_beyond:
            what = f"it is {used} hops beyond the scope, and extra_hops is {self.most_beyond}"
            return Refusal(Reason.OUT_OF_SCOPE, what)
        return self.denial(url) or self._type_refusal(path)

    def link_refusal(self, url: str, depth: int) -> Refusal | None:
        """Judge a link to a host in scope by place and depth."""
        terms = self.terms_of(url)
        return self._outside(url) if terms is None else _depth_refusal(terms, depth)

    def _outside(self, url: str) -> Refusal:
        match list(self._of_mode):
            case [ScopeChoice.PAGE]:
                why = "no link of a seed is followed"
            case [ScopeChoice.PREFIX]:
                why = f"{_path_of(url)[:80]} is in no folder of a seed"
            case [ScopeChoice.REGEX]:
                why = "no pattern of allow is found in it"
            case _:
                why = "it is in the scope of no seed"
        return Refusal(Reason.OUT_OF_SCOPE, why)

    def has_place(self, url: str) -> bool:
        """Return whether all that a seed brings into the scope is there."""
        if self.host_refusal(split(url).hostname):
            return False
        return self.mode is not ScopeChoice.PREFIX or self.place_of(url) is not None

    def refusal(self, url: str, path: str, depth: int, is_exempt: bool) -> Refusal | None:
        """Judge a URL whose host is in scope. *is_exempt* URLs need no allowance: else
        `allow=/blog/` could not begin at the home page, and a spider could not fetch the pictures
        it asks for. What a seed redirects to is fetched wherever it is on such a host."""
        terms = self.terms_of(url)
        if terms is None:
            if not is_exempt:
                return self._outside(url)
            terms = self.terms[0]
        refusal = _depth_refusal(terms, depth) or _denial(terms, url)
        if refusal or is_exempt:
            return refusal
        if terms.allow and not _first_match(terms.allow, url):
            return Refusal(Reason.NOT_ALLOWED, " or ".join(each.pattern for each in terms.allow))
        return self._type_refusal(path)

    def _type_refusal(self, path: str) -> Refusal | None:
        # Without a dot in its last segment, this is a whole path or holds a "/", and is no type.
        file_type = path[path.rfind(".") + 1 :].lower()
        if file_type in self.denied_types:
            return Refusal(Reason.FILE_TYPE, f".{file_type}")
        return None


def _depth_refusal(terms: SeedTerms, depth: int) -> Refusal | None:
    if terms.max_depth is None or depth <= terms.max_depth:
        return None
    return Refusal(Reason.MAX_DEPTH, f"depth {depth} is over {terms.max_depth}")


def _denial(terms: SeedTerms, url: str) -> Refusal | None:
    if terms.deny and (found := _first_match(terms.deny, url)):
        return Refusal(Reason.DENIED, f"the pattern is {found.pattern}")
    return None


def _first_match(patterns: tuple[re.Pattern[str], ...], url: str) -> re.Pattern[str] | None:
    for each in patterns:
        if each.search(url):
            return each
    return None


# From the narrowest to the widest. A pattern is that of its seed.
_WIDTHS: Final = (
    *(ScopeChoice.REGEX, ScopeChoice.PAGE, ScopeChoice.PREFIX, ScopeChoice.HOST),
    *(ScopeChoice.DOMAIN, ScopeChoice.ANY),
)


def widest_scope(scopes: Iterable[ScopeChoice]) -> ScopeChoice:
    """Return the widest of *scopes*, for a seed without a pattern."""
    widest = max(scopes, key=_WIDTHS.index)
    return ScopeChoice.HOST if widest is ScopeChoice.REGEX else widest


_KNOWN_AUTHORITIES: Final = 4096
"""The pages of one host often stand together in a list; an entry takes 150 bytes."""


class SeedHosts:
    """What the rules need to know of all seeds, in 10 bytes a host or folder: a scope that leads
    anywhere needs none."""

    def __init__(self, terms: TermsOfSeeds, urls: Iterable[str] = ()) -> None:
        """*urls*: fetch forms of seeds without options."""
        self.terms = terms
        self._hashes = array("q")
        self._numbers = array("H")
        self._known: set[tuple[str, int]] = set()  # authorities seen lately, with their terms
        # Their origins that are literally loopback: the first MOST_ORIGINS, and the hashes of all
        # others.
        self.loopback: set[Origin] = set()
        self._more_loopback = array("q")
        self.public = ""  # the first of their public hosts
        self.has_plain = False  # whether one has the terms of the crawl
        for url in urls:
            self.add(url)

    def add(self, url: str, number: int = 0) -> None:
        """Note the seed *url*, a fetch form, which has the terms of this *number*."""
        mode = self.terms.mode_of(number)
        self.has_plain |= not number
        if mode is ScopeChoice.PREFIX:
            self._note(_units_of_place(place_of_seed(url, mode), mode)[-1], number)
        elif mode is ScopeChoice.PAGE:
            self._note(_unit_of_page(scope_unit(split(url).hostname, mode), url), number)
        authority = authority_of(url)
        if (authority, number) in self._known:
            return
        if len(self._known) == _KNOWN_AUTHORITIES:
            self._known.clear()
        self._known.add((authority, number))
        hostname = authority.partition("://")[2]
        if ":" in hostname:
            hostname = split(url).hostname
        kind = host_kind(hostname)
        if kind is AddressKind.PUBLIC:
            self.public = self.public or hostname
        elif origin := loopback_origin(url):
            if len(self.loopback) < MOST_ORIGINS:
                self.loopback.add(origin)
            elif origin not in self.loopback:
                self._more_loopback.append(hash(origin_text(origin)))
        if mode in (ScopeChoice.HOST, ScopeChoice.DOMAIN):
            self._note(_unit_of_host(hostname, mode), number)
        elif mode in (ScopeChoice.PREFIX, ScopeChoice.PAGE):
            self._note(_unit_of_host(hostname, mode), 0)

    def _note(self, unit: str, number: int) -> None:
        self._hashes.append(hash(unit))
        self._numbers.append(number)

    def scope(self) -> Scope:
        """Return the scope of a crawl from these seeds. Raises ConfigError if
        two seeds have the same scope and other terms: no URL could be told to be of one of them."""
        terms = self.terms.all()
        anywhere = [
            number
            for number, each in enumerate(terms)
            if each.scope is ScopeChoice.ANY and (number or self.has_plain)
        ]
        units = NameNumbers(self._hashes, self._numbers)
        conflict = units.conflict or (anywhere[:2] if len(anywhere) > 1 else None)
        if conflict is not None:
            first, second = (self.terms.words_of(each) for each in conflict[:2])
            raise ConfigError(
                f"two seeds have the same scope and other options, {first} and {second}: give them"
                " the same ones, or only one of them"
            )
        if not self.has_plain and len(terms) > 1:
            # What comes while the crawl runs may lead as far as any of these, and no further.
            widest = widest_scope(each.scope for each in terms[1:])
            terms = (replace(terms[0], scope=widest), *terms[1:])
        return Scope(terms=terms, units=units, has_plain=self.has_plain)

    def in_conflict(self, seeds: Iterable[tuple[str, int]]) -> list[str]:
        """Return of *seeds*, with the numbers of their terms, two that have the same scope and
        other options."""
        if not any(self._numbers):
            return []  # they have no options
        units = NameNumbers(self._hashes, self._numbers)
        if units.conflict is None:
            return []
        *numbers, unit = units.conflict
        found: dict[int, str] = {}
        for url, number in seeds:
            if number in numbers and number not in found:
                alone = SeedHosts(self.terms)
                alone.add(url, number)
                if unit in alone._hashes:
                    found[number] = url
        return list(found.values())

    def more_loopback(self) -> NameSet:
        """Return the `origin_text` of each origin on loopback that is not in `loopback`."""
        return NameSet(self._more_loopback)
