"""Which URLs are refused: by the scope of a crawl, as traps or calendars, by their address.

Rule: a refusal is a value that explains itself: it names the rule and the figure.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
)
from itertools import chain
from types import MappingProxyType
from typing import Final

import numpy as np
from xxhash import xxh3_64_hexdigest

from crawler.model.choices import ScopeChoice
from crawler.model.types import ConfigError
from crawler.model.url import (
    CanonicalRules,
    authority_of,
    canonical,
    is_ip,
    registered_domain,
    split,
)


class Reason(StrEnum):
    """The rule that refused a URL."""

    NOT_A_URL = "not_a_url"
    SCHEME = "scheme"
    BAD_HOST = "bad_host"
    NO_CONTACT = "no_contact"
    INSIDE_ADDRESS = "inside_address"
    OUT_OF_SCOPE = "out_of_scope"
    MAX_DEPTH = "max_depth"
    DENIED = "denied"
    NOT_ALLOWED = "not_allowed"
    FILE_TYPE = "file_type"
    URL_TOO_LONG = "url_too_long"
    PATH_TOO_DEEP = "path_too_deep"
    REPEATED_SEGMENTS = "repeated_segments"
    REPEATED_QUERY = "repeated_query"
    QUERY_TOO_LONG = "query_too_long"
    REPEATED_SESSION = "repeated_session"
    CALENDAR = "calendar"
    PATTERN = "pattern"
    HOST_BUDGET = "host_budget"
    DOMAIN_BUDGET = "domain_budget"
    OPERATOR = "operator"
    SINCE = "since"


RULES: Final = MappingProxyType(
    {
        Reason.NOT_A_URL: "it cannot be read as a URL",
        Reason.SCHEME: "only http and https are fetched",
        Reason.BAD_HOST: "no server can have this host name",
        Reason.NO_CONTACT: "without a contact address only loopback is crawled",
        Reason.INSIDE_ADDRESS: "addresses that are not public need a setting",
        Reason.OUT_OF_SCOPE: "the scope of this crawl is the seeds' own hosts, domains or folders",
        Reason.MAX_DEPTH: "it is too many links away from the seeds",
        Reason.DENIED: "it matches a pattern of what is denied",
        Reason.NOT_ALLOWED: "it matches no pattern of what is allowed",
        Reason.FILE_TYPE: "files of this type are not fetched",
        Reason.URL_TOO_LONG: "longer URLs are taken for a trap",
        Reason.PATH_TOO_DEEP: "deeper paths are taken for a trap",
        Reason.REPEATED_SEGMENTS: "a path that repeats itself is taken for a trap",
        Reason.REPEATED_QUERY: "a query that repeats itself is taken for a trap",
        Reason.QUERY_TOO_LONG: "a query with more parameters is taken for a trap",
        Reason.REPEATED_SESSION: "a session id inside another is taken for a trap",
        Reason.CALENDAR: "a date so far away is taken for that of a calendar without an end",
        Reason.SINCE: "its sitemap says that it has not changed since then",
        Reason.PATTERN: "URLs like it have brought enough",
        Reason.HOST_BUDGET: "its host has its full number of URLs",
        Reason.DOMAIN_BUDGET: "its registered domain has its full number of URLs",
        Reason.OPERATOR: "a rule of the operator refuses it",
    }
)


SETTINGS: Final = MappingProxyType(
    {
        Reason.NO_CONTACT: "CRAWLER_CONTACT",
        Reason.INSIDE_ADDRESS: "CRAWLER_ALLOW_INSIDE",
        Reason.OUT_OF_SCOPE: "the argument scope",
        Reason.MAX_DEPTH: "the argument max_depth",
        Reason.DENIED: "the argument deny",
    }
)
"""What sets the limit of a rule that may refuse what a spider's code names."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A URL that is not admitted. Arrow: links -> counters and `why`."""

    reason: Reason
    detail: str  # the figure of this URL, and the limit of the rule

    def explain(self) -> str:
        """Return the reason as one sentence."""
        return f"{RULES[self.reason]}: {self.detail}"

    def advise(self) -> str:
        """Return the reason, and what sets its limit."""
        setting = SETTINGS.get(self.reason)
        return f"{self.explain()} (set by {setting})" if setting else self.explain()

    def of_target(self, url: str) -> str:
        """Return why *url*, where a seed leads, is not fetched, and what can be done."""
        if self.reason is Reason.OUT_OF_SCOPE:
            return (
                f"leads to {url}, which is not in the scope: give {url} as a seed, or -a scope=any"
            )
        return f"leads to {url}, which is not fetched: {self.advise()}"


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


class NameSet:
    """A set of names in 8 bytes each: their hashes, sorted. A name outside of it is taken for one
    of a million inside with a probability of 5e-14; Python's key of the hash is secret."""

    def __init__(self, hashes: array[int] | None = None) -> None:
        """*hashes*: of the names, by `hash`; a name may occur again."""
        self._hashes = array("q")
        if hashes:
            self._hashes.frombytes(np.unique(np.frombuffer(hashes, np.int64)).tobytes())

    def __contains__(self, name: str) -> bool:
        number = hash(name)
        at = bisect_left(self._hashes, number)
        return at < len(self._hashes) and self._hashes[at] == number

    def __len__(self) -> int:
        return len(self._hashes)


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


# Traps: sites that make new URLs for ever. Judged by the URL alone, and first by its length, which
# bounds the rest.

# Names used for sessions only; `sid` may also choose what a page shows.
_sessions: Final = re.compile(
    r"jsessionid|phpsessid|aspsessionid[a-z]{8}|cftoken|sessionid"
).findall


@dataclass(frozen=True, slots=True, kw_only=True)
class TrapLimits:
    """The limits of one crawl. A limit out of reach switches its rule off."""

    max_url_chars: int = 2048  # Internet Explorer read 2,083: longer ones could not be published
    max_path_segments: int = 10  # guess, revisit: Heritrix allows 20 slashes
    max_repeats: int = 2  # as Heritrix: a third time in a row is a trap
    max_parameters: int = 50  # guess, revisit: a form of a search has 10 or 20

    def __post_init__(self) -> None:
        figures = (self.max_url_chars, self.max_path_segments, self.max_repeats)
        if min(*figures, self.max_parameters) < 1:
            raise ConfigError(f"want figures of 1 or more, got {self}")

    def refusal(self, url: str, path: str) -> Refusal | None:
        """Judge a fetch form and its path."""
        if len(url) > self.max_url_chars:
            return Refusal(
                Reason.URL_TOO_LONG, f"{len(url)} characters are over {self.max_url_chars}"
            )
        if "=" in url:
            refusal = self._query_refusal(url, url.partition("?")[2])
            if refusal:
                return refusal
        slashes = path.count("/")
        if slashes <= self.max_repeats + 1 and slashes <= self.max_path_segments:
            return None  # too short for anything below
        count = slashes - path.endswith("/")
        if count > self.max_path_segments:
            return Refusal(
                Reason.PATH_TOO_DEEP, f"{count} segments are over {self.max_path_segments}"
            )
        return self._path_refusal(path.split("/")[1:-1])

    def _query_refusal(self, url: str, query: str) -> Refusal | None:
        pairs = query.split("&")
        if len(pairs) > self.max_parameters:
            return Refusal(
                Reason.QUERY_TOO_LONG, f"{len(pairs)} parameters are over {self.max_parameters}"
            )
        if len(set(pairs)) + self.max_repeats <= len(pairs):
            pair, times = _most_often(pair for pair in pairs if pair.partition("=")[2])
            if times > self.max_repeats:
                return Refusal(Reason.REPEATED_QUERY, f"{pair[:80]!r} comes {times} times")
        if "sess" in (lower := url.lower()) or "cftoken" in lower:
            name, times = _most_often(_sessions(lower))
            if times > 1:
                return Refusal(Reason.REPEATED_SESSION, f"{name} comes {times} times")
        return None

    def _path_refusal(self, directories: list[str]) -> Refusal | None:
        if len(set(directories)) == len(directories):
            return None
        times = self.max_repeats + 1
        repeated = _in_a_row(directories, times) or _every_other(directories, times)
        if repeated is None:
            return None
        return Refusal(Reason.REPEATED_SEGMENTS, f"{repeated!r} comes {times} times")


def _most_often(words: Iterable[str]) -> tuple[str, int]:
    return next(iter(Counter(words).most_common(1)), ("", 0))


def _in_a_row(directories: list[str], times: int) -> str | None:
    """Return the first group of directories that comes *times* times in a row: a/b/a/b/a/b."""
    for size in range(1, len(directories) // times + 1):
        run = 0  # how many directories in a row equal the one a group further on
        for start in range(len(directories) - size):
            run = run + 1 if directories[start] == directories[start + size] else 0
            if run == size * (times - 1):
                return "/".join(directories[start + 1 : start + 1 + size]) + "/"
    return None


def _every_other(directories: list[str], times: int) -> str | None:
    """Return the first directory that comes *times* times, one other between: a/x/a/y/a (Nutch)."""
    for start in range(len(directories) - 2 * (times - 1)):
        stretch = directories[start : start + 2 * times - 1]
        if all(stretch) and len(set(stretch[::2])) == 1:
            return stretch[0] + "/"
    return None


# Calendars without an end: dates so far away that only such a calendar leads there. Judged by the
# URL alone, and only where it is a date beyond doubt: directories of year and month, a date as a
# whole name, or a parameter named like one. /product/2099 is no date.

# A calendar leaves its range step by step. A year further away is more likely a number:
# /pull/4099/12/.
_FAR_YEARS: Final = 100
_YEAR: Final = "[12][0-9]{3}"
_MONTH, _DAY = "0[1-9]|1[0-2]", "0[1-9]|[12][0-9]|3[01]"
_may_have_year: Final = re.compile(_YEAR).search
_in_path: Final = re.compile(
    rf"/(?P<y>{_YEAR})/(?P<m>{_MONTH})(?:/(?P<d>{_DAY}))?(?=/|$)"
    rf"|/(?P<Y>{_YEAR})-(?P<M>{_MONTH})(?:-(?P<D>{_DAY}))?(?=/|\.[a-z]{{2,5}}$|$)"
).search
# A parameter whose name is one of these words, or ends in it: tribe-bar-date, cal[month].
_parameter: Final = re.compile(
    r"(?:^|&)(?:[^&=]*(?:[_.\-\[]|%5B))?(date|day|month|year)(?:\]|%5D)?=([^&]{1,20})(?=&|$)", re.I
)
_of_year_first: Final = re.compile(
    rf"({_YEAR})(?:-(1[0-2]|0?[1-9])(?:-([12][0-9]|3[01]|0?[1-9]))?|({_MONTH})({_DAY}))"
).fullmatch
# Whether the day or the month comes first differs from country to country.
_of_year_last: Final = re.compile(rf"[0-3]?[0-9](?:[./-]|%2F)[0-3]?[0-9](?:[./-]|%2F)({_YEAR})",
                                  re.I).fullmatch  # fmt: skip
_year: Final = re.compile(_YEAR).fullmatch
_month: Final = re.compile(r"0?[1-9]|1[0-2]").fullmatch

_Date = tuple[int, int, int]
"""Year, month and day; 1 where the URL names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarLimits:
    """The dates that one crawl admits: from a year to the last day that is not too far ahead."""

    from_year: int = 0
    until: _Date = (9999, 12, 31)

    def refusal(self, path: str, query: str) -> Refusal | None:
        """Judge the path and query of a fetch form."""
        if _may_have_year(path) and (found := _in_path(path)):
            year, month, day = (found[low] or found[high] for low, high in ("yY", "mM", "dD"))
            if refusal := self._date_refusal((int(year), int(month), int(day or 1)), found[0][1:]):
                return refusal
        if query and _may_have_year(query):
            return self._query_refusal(query)
        return None

    def _query_refusal(self, query: str) -> Refusal | None:
        found = {name.lower(): value for name, value in _parameter.findall(query)}
        year, month = found.get("year", ""), found.get("month", "")
        if _year(year) and _month(month):
            return self._date_refusal((int(year), int(month), 1), f"{year}-{month}")
        dates = ((_date(value), value) for value in found.values())
        refusals = (self._date_refusal(day, value) for day, value in dates if day)
        return next(filter(None, refusals), None)

    def _date_refusal(self, day: _Date, text: str) -> Refusal | None:
        year = day[0]
        if self.from_year - _FAR_YEARS <= year < self.from_year:
            return Refusal(Reason.CALENDAR, f"{text} is before {self.from_year}")
        if day > self.until and year <= self.until[0] + _FAR_YEARS:
            last = "-".join(f"{part:02}" for part in self.until)
            return Refusal(Reason.CALENDAR, f"{text} is after {last}")
        return None


def _date(text: str) -> _Date | None:
    if found := _of_year_first(text):
        year, month, day, joined_month, joined_day = found.groups("")
        return int(year), int(month or joined_month or 1), int(day or joined_day or 1)
    found = _of_year_last(text)
    return (int(found[1]), 1, 1) if found else None


# Addresses: public, loopback, or inside (a private network, or none at all), by the registries of
# special-purpose addresses (IANA, RFC 6890). A name is public until it is resolved; then its
# address is judged again, so that a public name cannot lead inside.

Network = IPv4Network | IPv6Network


class AddressKind(StrEnum):
    """The kind of network that an address belongs to."""

    PUBLIC = "public"
    LOOPBACK = "loopback"
    INSIDE = "inside"


_LOOPBACK: Final[tuple[Network, ...]] = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))

_INSIDE: Final[tuple[Network, ...]] = (
    IPv4Network("0.0.0.0/8"),  # "this network"; 0.0.0.0 reaches the machine itself
    IPv4Network("10.0.0.0/8"),
    IPv4Network("100.64.0.0/10"),  # carrier-grade NAT, RFC 6598
    IPv4Network("168.63.129.16/32"),  # a public address, but a cloud's host agent answers on it
    IPv4Network("169.254.0.0/16"),  # link-local, and the clouds' metadata service
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.0.0.0/24"),  # protocol assignments
    IPv4Network("192.0.2.0/24"),  # documentation
    IPv4Network("192.88.99.0/24"),  # 6to4 relays, withdrawn by RFC 7526
    IPv4Network("192.168.0.0/16"),
    IPv4Network("198.18.0.0/15"),  # benchmarks
    IPv4Network("198.51.100.0/24"),  # documentation
    IPv4Network("203.0.113.0/24"),  # documentation
    IPv4Network("224.0.0.0/3"),  # multicast, reserved, broadcast
    IPv6Network("2001::/23"),  # protocol assignments, Teredo among them
    IPv6Network("2001:db8::/32"),  # documentation
    IPv6Network("3fff::/20"),  # documentation
)

_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
"""All that IANA has allocated. Unique-local, link-local, multicast and the rest lie outside."""

_CARRIES_IPV4: Final = (
    (IPv6Network("::ffff:0:0/96"), 0),  # mapped
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64, RFC 6052
    (IPv6Network("2002::/16"), 80),  # 6to4, RFC 3056
)
"""IPv6 networks whose addresses hold an IPv4 address, and how many bits follow it."""


@lru_cache(maxsize=4096)  # called at each fetch of a host that is an address: 17 us a call
def address_kind(ip: str) -> AddressKind:
    """Return the kind of *ip*. Text that is no address counts as INSIDE, so that an error admits
    nothing."""
    try:
        address = ip_address(ip.partition("%")[0])  # a zone ("fe80::1%eth0") changes nothing
    except ValueError:
        return AddressKind.INSIDE
    if isinstance(address, IPv6Address):
        return _place_of_ipv6(address)
    return _place_of_ipv4(address)


def host_kind(hostname: str) -> AddressKind:
    """Return the kind of a hostname's address, as far as it is known without resolving it."""
    if is_ip(hostname):
        return address_kind(hostname.strip("[]"))
    name = hostname.rstrip(".")
    local = name == "localhost" or name.endswith(".localhost")  # RFC 6761
    return AddressKind.LOOPBACK if local else AddressKind.PUBLIC


_KNOWN_AUTHORITIES: Final = 4096
"""The pages of one host often stand together in a list; an entry takes 150 bytes."""

MOST_ORIGINS: Final = 1000
"""Loopback origins that are kept by name, 200 bytes each: of seeds, and of start requests for the
next start of their spider."""

Origin = tuple[str, int]
"""A hostname without brackets and last dot, and a port."""


def loopback_origin(url: str) -> Origin | None:
    """Return the host and port of *url*, a fetch form, or None unless its host is literally
    loopback."""
    parts = split(url)
    is_loopback = host_kind(parts.hostname) is AddressKind.LOOPBACK
    return (_bare_name(parts.hostname), parts.port) if is_loopback else None


def origin_text(origin: Origin) -> str:
    hostname, port = origin
    return f"{hostname}:{port}"


def _bare_name(hostname: str) -> str:
    return hostname.strip("[]").rstrip(".")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedAddresses:
    """The addresses that one crawl may contact."""

    allow_public: bool  # if there is a contact address
    opened: frozenset[Origin] = frozenset()  # loopback that a person named
    listed: NameSet = field(default_factory=NameSet, repr=False)  # by `origin_text`: so did a list
    inside: tuple[Network, ...] = ()  # admitted though not public

    def refusal(self, hostname: str, port: int) -> Refusal | None:
        """Judge the host of a URL."""
        place = host_kind(hostname)
        if place is AddressKind.PUBLIC:
            if self.allow_public:
                return None
            return Refusal(Reason.NO_CONTACT, f"{hostname} is not loopback")
        if self._is_opened(hostname, port):
            return None
        if self._is_admitted_inside(hostname if is_ip(hostname) else "127.0.0.1"):
            return None
        where = f"{hostname}:{port}" if place is AddressKind.LOOPBACK else hostname
        return Refusal(Reason.INSIDE_ADDRESS, f"{where} is not public but {place}")

    def admits(self, ip: str, hostname: str, port: int) -> bool:
        """Return whether an address that *hostname* resolved to may be contacted. Loopback must be
        opened by that name: a public name that leads there may be an attack (DNS rebinding)."""
        place = address_kind(ip)
        if place is AddressKind.PUBLIC:
            return self.allow_public
        if place is AddressKind.LOOPBACK and self._is_opened(hostname, port):
            return True
        return self._is_admitted_inside(ip)

    def _is_opened(self, hostname: str, port: int) -> bool:
        origin = _bare_name(hostname), port
        return origin in self.opened or origin_text(origin) in self.listed

    def _is_admitted_inside(self, ip: str) -> bool:
        try:
            address = ip_address(ip.strip("[]").partition("%")[0])
        except ValueError:
            return False
        return any(address in network for network in self.inside)


def _place_of_ipv4(address: IPv4Address) -> AddressKind:
    if any(address in network for network in _LOOPBACK):
        return AddressKind.LOOPBACK
    return (
        AddressKind.INSIDE if any(address in network for network in _INSIDE) else AddressKind.PUBLIC
    )


def _place_of_ipv6(address: IPv6Address) -> AddressKind:
    if any(address in network for network in _LOOPBACK):
        return AddressKind.LOOPBACK
    for network, bits in _CARRIES_IPV4:
        if address in network:
            carried = IPv4Address(int(address) >> bits & 0xFFFF_FFFF)
            public = _place_of_ipv4(carried) is AddressKind.PUBLIC
            return AddressKind.PUBLIC if public else AddressKind.INSIDE
    if address not in _GLOBAL_UNICAST or any(address in network for network in _INSIDE):
        return AddressKind.INSIDE
    return AddressKind.PUBLIC
