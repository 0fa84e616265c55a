"""The scope of a crawl: where its links may lead, by its seeds."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from xxhash import xxh3_64_hexdigest

from crawler.model.choices import ScopeChoice
from crawler.model.url import CanonicalRules, authority_of, canonical, registered_domain, split
from crawler.policy.addresses import (
    MOST_ORIGINS,
    AddressKind,
    Origin,
    host_kind,
    loopback_origin,
    origin_text,
)
from crawler.policy.name_set import NameSet
from crawler.policy.refusal import Reason, Refusal

# Scope: the user's patterns decide, a denial over an allowance. A URL that a person named, as a
# seed or in a spider's code, needs no allowance.


def scope_unit(hostname: str, mode: ScopeChoice) -> str:
    """Return what a scope compares of *hostname*."""
    if mode is ScopeChoice.DOMAIN:
        return registered_domain(hostname)
    # Most sites redirect one of the two to the other: a crawl of only one would end there.
    return hostname.rstrip(".").removeprefix("www.")


def place_of_seed(url: str, mode: ScopeChoice) -> str:
    """Return what *url*, the fetch form of a seed, brings into a scope: its hostname, and that of
    its folder behind it where folders count."""
    hostname = split(url).hostname
    return hostname + _of_folder(_path_of(url)) if mode is ScopeChoice.PREFIX else hostname


def _units_of_place(place: str, mode: ScopeChoice) -> tuple[str, ...]:
    """Return what a scope compares of a place of a seed: of a folder its host, too."""
    hostname, slash, folder = place.partition("/")
    unit = scope_unit(hostname, mode)
    return (unit, unit + slash + folder) if folder else (unit,)


def _path_of(url: str) -> str:
    """Return a path as it is compared: however its characters are escaped."""
    found = canonical(url, _ESCAPES_ONLY)
    return found[found.index("/", 8) :].partition("?")[0]


_ESCAPES_ONLY: Final = CanonicalRules(frozenset())


def _of_folder(path: str) -> str:
    """Return the folder of a path as a hash: places are kept where a purge does not look."""
    return "/" + xxh3_64_hexdigest(path[: path.rindex("/") + 1].encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The bounds of one crawl. *seeds*: the places of seeds; *units*: what is compared of each seed
    of a list, which may be a million."""

    mode: ScopeChoice = ScopeChoice.ANY
    seeds: frozenset[str] = frozenset()
    units: NameSet = field(default_factory=NameSet, repr=False)
    allow: tuple[re.Pattern[str], ...] = ()  # if any, one must be found in the URL
    deny: tuple[re.Pattern[str], ...] = ()
    max_depth: int | None = None  # hops from a seed; None: no limit
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

    def host_refusal(self, hostname: str) -> Refusal | None:
        """Judge a hostname, that of a seed too."""
        if self.mode is ScopeChoice.ANY:
            return None
        if self._has(scope_unit(hostname, self.mode)):
            return None
        unit = self.mode if self.mode is ScopeChoice.DOMAIN else ScopeChoice.HOST
        return Refusal(Reason.OUT_OF_SCOPE, f"{hostname} is no {unit} of a seed")

    def _has(self, unit: str) -> bool:
        return unit in self._bounds or unit in self.units

    @property
    def judges_paths(self) -> bool:
        """Whether a link to a host in scope may be out of it."""
        return self.mode in (ScopeChoice.PREFIX, ScopeChoice.PAGE)

    def follows(self, depth: int) -> bool:
        """Return whether any link of a page of *depth* may be in scope."""
        if self.mode is ScopeChoice.PAGE:
            return False
        return self.max_depth is None or depth < self.max_depth

    def path_refusal(self, url: str) -> Refusal | None:
        """Judge a link to a host in scope. What a seed redirects to is fetched wherever it is on
        such a host."""
        if self.mode is ScopeChoice.PAGE:
            return Refusal(Reason.OUT_OF_SCOPE, "no link of a seed is followed")
        if self._has_folder(url):
            return None
        return Refusal(Reason.OUT_OF_SCOPE, f"{_path_of(url)[:80]} is in no folder of a seed")

    def _has_folder(self, url: str) -> bool:
        if self.mode is not ScopeChoice.PREFIX:
            return True
        unit, path, at = scope_unit(split(url).hostname, self.mode), _path_of(url), 0
        while (at := path.find("/", at) + 1) > 0:
            if self._has(unit + _of_folder(path[:at])):
                return True
        return False

    def has_place(self, url: str) -> bool:
        """Return whether all that a seed brings into the scope is there."""
        return self.host_refusal(split(url).hostname) is None and self._has_folder(url)

    def refusal(self, url: str, path: str, depth: int, is_exempt: bool) -> Refusal | None:
        """Judge a URL whose host is in scope. *is_exempt* URLs need no allowance: else
        `allow=/blog/` could not begin at the home page, and a spider could not fetch the pictures
        it asks for."""
        if self.max_depth is not None and depth > self.max_depth:
            return Refusal(Reason.MAX_DEPTH, f"depth {depth} is over {self.max_depth}")
        if self.deny and (found := _first_match(self.deny, url)):
            return Refusal(Reason.DENIED, f"the pattern is {found.pattern}")
        if is_exempt:
            return None
        if self.judges_paths and (refusal := self.path_refusal(url)):
            return refusal
        if self.allow and not _first_match(self.allow, url):
            return Refusal(Reason.NOT_ALLOWED, " or ".join(each.pattern for each in self.allow))
        # Without a dot in its last segment, this is a whole path or holds a "/", and is no type.
        file_type = path[path.rfind(".") + 1 :].lower()
        if file_type in self.denied_types:
            return Refusal(Reason.FILE_TYPE, f".{file_type}")
        return None


def _first_match(patterns: tuple[re.Pattern[str], ...], url: str) -> re.Pattern[str] | None:
    for each in patterns:
        if each.search(url):
            return each
    return None


_KNOWN_AUTHORITIES: Final = 4096
"""The pages of one host often stand together in a list; an entry takes 150 bytes."""


class SeedHosts:
    """What the rules need to know of the hosts of all seeds, in 8 bytes a host: a scope that leads
    anywhere needs none."""

    def __init__(self, mode: ScopeChoice, urls: Iterable[str] = ()) -> None:
        """*urls*: fetch forms of seeds."""
        self._mode = mode
        self._hashes = array("q")
        self._known: set[str] = set()  # authorities seen lately
        # Their origins that are literally loopback: the first MOST_ORIGINS, and the hashes of all
        # others.
        self.loopback: set[Origin] = set()
        self._more_loopback = array("q")
        self.public = ""  # the first of their public hosts
        for url in urls:
            self.add(url)

    def add(self, url: str) -> None:
        """Note the host of *url*, a fetch form."""
        if self._mode is ScopeChoice.PREFIX:
            units = _units_of_place(place_of_seed(url, self._mode), self._mode)
            self._hashes.append(hash(units[-1]))  # that of the host follows
        authority = authority_of(url)
        if authority in self._known:
            return
        if len(self._known) == _KNOWN_AUTHORITIES:
            self._known.clear()
        self._known.add(authority)
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
        if self._mode is not ScopeChoice.ANY:
            self._hashes.append(hash(scope_unit(hostname, self._mode)))

    def units(self) -> NameSet:
        """Return the `scope_unit` of each seed; none of them in a scope that leads anywhere."""
        return NameSet(self._hashes)

    def more_loopback(self) -> NameSet:
        """Return the `origin_text` of each origin on loopback that is not in `loopback`."""
        return NameSet(self._more_loopback)
