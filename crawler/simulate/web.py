"""The web of a simulation: its hosts, and what each of its URLs answers at a time.

Rule: pure, and drawn from a seed: what a URL answers depends on the seed, the URL and the time, on
nothing that happened before. When it answers is decided by its server (servers.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import exp, log
from random import Random
from statistics import NormalDist
from typing import Final, NamedTuple

from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from crawler.model.page import LinkKind
from crawler.model.url import authority_of, fetch_form, split

START: Final = 1_800_000_000.0  # epoch seconds at which simulated crawls begin: January 2027
DAY_S: Final = 86_400.0
ROBOTS_PATH: Final = "/robots.txt"
_CACHED: Final = 65_536  # answers
_TINY: Final = 1e-9
_normal: Final = NormalDist().inv_cdf
_HASHES: Final = 2.0**64
_NO_PAGE: Final = 1 << 40


class SeededDraws:
    """Random numbers by name: each is drawn from the seed and its name alone, so that one draw more
    in one place changes no other, and two policies meet the same web."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def unit(self, name: str) -> float:
        """Return a number from 0 to 1, 1 excluded."""
        return xxh3_64_intdigest(name.encode(), self._seed) / _HASHES

    def random(self, name: str) -> Random:
        """Return a generator for many draws."""
        return Random(xxh3_64_intdigest(name.encode(), self._seed))


class RobotsKind(StrEnum):
    """How a host answers the request for its robots.txt."""

    FILE = "file"
    ABSENT = "absent"  # 404
    PAGE = "page"  # a page in its place: no robots.txt
    ERROR = "error"  # 503 for some hours, then the file
    REFUSED = "refused"  # 429 for some hours, then the file
    MOVED = "moved"  # to a file on another host
    LOOP = "loop"  # redirects without an end: no robots.txt


class Feature(StrEnum):
    """What a host has beside its pages; its home page links to it."""

    FORBIDDEN = "forbidden"  # pages that its robots.txt forbids
    MISSING = "missing"  # 404 and 410
    SOFT_404 = "soft_404"  # status 200 for what is not there
    ERRORS = "errors"  # 500, always
    COPIES = "copies"  # the same page under another URL
    MOVED = "moved"  # redirects: to a page, over hops, to another host
    BOUNCES = "bounces"  # redirects back to the same page, with another spelling
    REDIRECT_LOOPS = "rounds"  # redirects without an end
    CALENDAR = "calendar"  # a page for each day, for ever
    DEEP = "deep"  # a path that grows for ever
    LISTS = "lists"  # pages of a list without an end, all alike
    SITEMAPS = "sitemaps"  # its robots.txt names an index of sitemaps, which list pages


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One host."""

    name: str
    pages: int
    features: frozenset[Feature] = frozenset()
    robots: RobotsKind = RobotsKind.FILE
    robots_host: str = ""  # MOVED: the host that has its robots.txt
    robots_from: float = 0.0  # ERROR, REFUSED: from then on it has one
    crawl_delay_s: int = 0
    forbids_from: float = float("inf")  # from then on its robots.txt forbids more
    changes_a_day: float = 0.0  # of one page, in the mean; pages differ


class Content(NamedTuple):
    """What a URL answers, once its server does."""

    status: int
    links: tuple[str, ...] = ()  # absolute
    text: str = ""
    location: str = ""  # of a redirect
    is_html: bool = True
    sitemaps: tuple[str, ...] = ()  # that a robots.txt names
    link_kind: LinkKind = LinkKind.A  # of its links


@dataclass(frozen=True, slots=True, kw_only=True)
class WebParameters:
    """The shape of a web."""

    hosts: int = 6
    largest: int = 40  # pages of the largest host
    zipf: float = 1.0  # the host of rank r has largest / r ** zipf pages
    links: int = 4  # of a page, beside those to the pages below it
    outward: float = 0.1  # share of these that lead to another host
    features: float = 0.3  # chance of each feature of a host
    odd_robots: float = 0.5  # chance that its robots.txt is one of these, no plain file
    robots_kinds: tuple[RobotsKind, ...] = tuple(RobotsKind)[1:]
    robots_trouble_s: float = 8 * 3600.0  # within which its ERROR or REFUSED ends
    crawl_delays: tuple[int, ...] = (0, 0, 0, 2, 20)  # one of these for each host
    changes_a_day: float = 0.1  # geometric mean over the hosts
    horizon_s: float = 3 * DAY_S  # what changes once changes within this time


class Web:
    """All hosts and pages. `content` is all that a server needs."""

    def __init__(
        self,
        seed: int,
        parameters: WebParameters,
        edges: Mapping[str, tuple[str, ...]] | None = None,
        changes_a_day: Mapping[str, float] | None = None,
    ) -> None:
        """*edges*: the links of a given graph, by URL, in place of drawn ones; *changes_a_day* the
        same of how often pages change."""
        self.parameters, self.draws = parameters, SeededDraws(seed)
        self._edges = edges or {}
        self._changes_a_day = changes_a_day or {}
        names = _hosts_of(edges) if edges else {f"h{n}.test": 0 for n in range(parameters.hosts)}
        self.sites = {
            name: self._draw(name, rank, pages, list(names))
            for rank, (name, pages) in enumerate(names.items())
        }
        self._names = list(self.sites)
        self._changes: dict[str, tuple[float, list[float]]] = {}  # rates, and times so far
        self._first_content = lru_cache(maxsize=_CACHED)(self._draw_content)

    @property
    def seeds(self) -> list[str]:
        """The home pages of every other host, or their first pages in a given graph; links lead to
        the others."""
        if not self._edges:
            return [f"http://{name}/" for name in self._names[::2]]
        first: dict[str, str] = {}
        for url in self._edges:
            first.setdefault(_parts(url)[0], url)
        return list(first.values())[::2]

    def content(self, url: str, now: float) -> Content:
        """Return what *url*, a fetch form, answers at *now*."""
        name, path = _parts(url)
        site = self.sites.get(name)
        if site is None:
            return Content(404)
        if is_robots(url):
            return self._robots(site, path, now)
        found = self._of_edges(url) if self._edges else self._first_content(name, path)
        if found.status != 200 or not site.changes_a_day:
            return found
        return found._replace(text=f"{found.text} v{self.version(url, now)}")

    def version(self, url: str, now: float) -> int:
        """Return how often the page *url* has changed since START: a Poisson process."""
        return bisect_right(self._changes_until(url, now), now)

    def next_change(self, url: str, now: float) -> float:
        """Return when the page *url* changes next after *now*."""
        times = self._changes_until(url, now)
        return times[bisect_right(times, now)]

    def _changes_until(self, url: str, now: float) -> list[float]:
        """Return when the page *url* changes, until after *now*."""
        known = self._changes.get(url)
        if known is None:
            a_day = self._changes_a_day.get(url)
            if a_day is None:
                spread = _normal(max(self.draws.unit(f"rate {url}"), _TINY))
                a_day = self.sites[_parts(url)[0]].changes_a_day * exp(spread)
            known = self._changes[url] = a_day / DAY_S, []
        rate, times = known
        while not times or times[-1] <= now:
            waits = -log(1.0 - self.draws.unit(f"change {len(times)} {url}"))
            times.append((times[-1] if times else START) + waits / rate)
        return times

    def _draw(self, name: str, rank: int, pages: int, names: list[str]) -> Site:
        parameters, random = self.parameters, self.draws.random(f"site {name}")
        robots, robots_host = RobotsKind.FILE, ""
        if random.random() < parameters.odd_robots:
            robots = random.choice(parameters.robots_kinds)
        if robots is RobotsKind.MOVED:
            robots_host = random.choice(names)
        changes_once = random.random() < 0.5
        return Site(
            name=name,
            pages=pages or max(1, round(parameters.largest / (rank + 1) ** parameters.zipf)),
            features=frozenset(each for each in Feature if random.random() < parameters.features),
            robots=robots,
            robots_host=robots_host,
            robots_from=START + random.uniform(0.0, parameters.robots_trouble_s),
            crawl_delay_s=random.choice(parameters.crawl_delays),
            forbids_from=START + random.uniform(0.0, parameters.horizon_s)
            if changes_once
            else 1e12,
            changes_a_day=parameters.changes_a_day * exp(random.gauss(0.0, 1.5)),
        )

    def _robots(self, site: Site, path: str, now: float) -> Content:
        if path != ROBOTS_PATH:
            _, _, name, hop = path.split("/")
            if self.sites[name].robots is RobotsKind.MOVED:
                return self._robots_file(self.sites[name], now)
            return Content(302, location=f"http://{site.name}/robots-of/{name}/{int(hop) + 1}")
        match site.robots:
            case RobotsKind.ABSENT:
                return Content(404)
            case RobotsKind.PAGE:
                return Content(200, text="<html><body>Welcome</body></html>")
            case RobotsKind.ERROR | RobotsKind.REFUSED if now < site.robots_from:
                return Content(503 if site.robots is RobotsKind.ERROR else 429)
            case RobotsKind.MOVED | RobotsKind.LOOP:
                host = site.robots_host or site.name
                return Content(302, location=f"http://{host}/robots-of/{site.name}/1")
        return self._robots_file(site, now)

    def _robots_file(self, site: Site, now: float) -> Content:
        lines = ["User-agent: *", "Disallow: /private/"]
        if site.crawl_delay_s:
            lines.insert(1, f"Crawl-delay: {site.crawl_delay_s}")
        if now >= site.forbids_from:
            lines.append("Disallow: /p/b")
        sitemaps = []
        if Feature.SITEMAPS in site.features and not self._edges:
            sitemaps = [f"http://{site.name}/sitemap.xml"]
        lines += [f"Sitemap: {url}" for url in sitemaps]
        text = "\n".join(lines) + "\n"
        return Content(200, text=text, is_html=False, sitemaps=tuple(sitemaps))

    def _draw_content(self, name: str, path: str) -> Content:
        site, base = self.sites[name], f"http://{name}"
        kind, _, rest = path[1:].partition("/")
        number = int(rest) if rest.isascii() and rest.isdigit() else 0
        match kind:
            case "":
                return self._page(site, 0, tuple(self._feature_links(site)))
            case "p" | "copy" | "private" if (page := _page_number(rest)) < site.pages:
                return self._page(site, page)
            case "old":
                return Content(301, location=f"{base}/p/{rest}")
            case "hops":
                onward = f"/hops/{number - 1}" if number else "/p/a"
                return Content(302, location=base + onward)
            case "away":
                return Content(302, location=f"http://{self._other(site, path)}/p/{rest}")
            case "inside":
                return Content(302, location="http://127.0.0.1/")
            case "bounce":
                return Content(302, location=f"{base}/bounced/{number}?utm_source=bounce")
            case kind if kind.startswith("bounced"):
                if "?" not in path:
                    return Content(302, location=f"{base}{path}?utm_source=bounce")
                return Content(200, (), _text(f"{site.name} {path}"))
            case "round":
                return Content(302, location=f"{base}/round/{(number + 1) % 3}")
            case "error":
                return Content(500)
            case "gone":
                return Content(410)
            case "soft":
                return Content(200, (), "Page not found. This page does not exist.")
            case "sitemap.xml":
                links = (f"{base}/sitemaps/1", f"{base}/sitemaps/2")
                return Content(200, links, base + path, is_html=False, link_kind=LinkKind.SITEMAP)
            case "sitemaps":
                links = (f"{base}/listed/{_page_name(number)}", f"{base}/p/a")
                return Content(200, links, base + path, is_html=False, link_kind=LinkKind.LISTED)
            case "listed":
                return Content(200, (), _text(f"{site.name} {path}"))
            case "events":
                return Content(200, _months(base, rest), _text(f"events {rest}"))
            case "deep":
                return Content(200, (f"{base}{path}/deep",), _text(path))
            case _ if kind.startswith("list?"):
                after = int(path.rpartition("=")[2]) + 1
                return Content(200, (f"{base}/list?page={after}",), _text(path))
            case _ if kind.startswith("same?"):
                return Content(200, (), _text(f"{site.name} the same"))
        if Feature.SOFT_404 in site.features:
            return Content(200, (), "Page not found. This page does not exist.")
        return Content(404, text="nothing")

    def _of_edges(self, url: str) -> Content:
        links = self._edges.get(url)
        return Content(404, text="nothing") if links is None else Content(200, links, _text(url))

    def _page(self, site: Site, number: int, more: tuple[str, ...] = ()) -> Content:
        """Return page *number*: it links to the two below it, so that all can be reached, and to
        others, of which the first have most links."""
        parameters, base = self.parameters, f"http://{site.name}"
        random = self.draws.random(f"page {site.name} {number}")
        below = (2 * number + 1, 2 * number + 2)
        links = [f"{base}/p/{_page_name(each)}" for each in below if each < site.pages]
        if number == 0:
            after = self._names[(self._names.index(site.name) + 1) % len(self._names)]
            links.append(f"http://{after}/")
        for _ in range(parameters.links):
            host = random.choice(self._names) if random.random() < parameters.outward else site.name
            pages = self.sites[host].pages if host in self.sites else 1
            links.append(f"http://{host}/p/{_page_name(int(pages * random.random() ** 3))}")
        return Content(200, (*links, *more), _text(f"{site.name} {number}"))

    def _feature_links(self, site: Site) -> Iterator[str]:
        base = f"http://{site.name}"
        last = _page_name(site.pages - 1)
        moved = ("/hops/4", "/hops/14", "/away/a", "/away/b", "/inside/1")
        paths = {
            Feature.FORBIDDEN: ("/private/a", f"/private/{last}"),
            Feature.MISSING: ("/missing/1", "/gone/1"),
            Feature.SOFT_404: ("/soft/1", "/soft/2"),
            Feature.ERRORS: ("/error/1", "/error/2"),
            Feature.COPIES: (f"/copy/{last}", *(f"/same?id={n}" for n in range(20))),
            Feature.MOVED: (f"/old/{last}", *moved),
            Feature.BOUNCES: ("/bounce/1", "/bounced/2"),
            Feature.REDIRECT_LOOPS: ("/round/0",),
            Feature.CALENDAR: ("/events/2027/02/",),
            Feature.DEEP: ("/deep/a",),
            Feature.LISTS: ("/list?page=1",),
        }
        for feature in Feature:  # in their order: that of a set differs from process to process
            if feature in site.features and feature in paths:
                yield from (base + path for path in paths[feature])

    def _other(self, site: Site, path: str) -> str:
        return self.draws.random(f"other {site.name}{path}").choice(self._names)


def is_robots(url: str) -> bool:
    """Return whether *url* is a robots.txt, or a hop of its redirects."""
    path = url[len(authority_of(url)) :]
    return path == ROBOTS_PATH or path.startswith("/robots-of/")


def read_edges(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Read a graph: on each line the URL of a page, a tab, and the URL of one that it links to.
    Lines of other forms are left out."""
    found: dict[str, list[str]] = {}
    for line in lines:
        texts = line.rstrip("\n").partition("\t")
        source, target = fetch_form(texts[0]), fetch_form(texts[2])
        if source and target:
            found.setdefault(source, []).append(target)
            found.setdefault(target, [])
    return {url: tuple(links) for url, links in found.items()}


def _hosts_of(edges: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """Return the hosts of a graph, each with the number of its pages."""
    hosts: dict[str, int] = {}
    for url in edges:
        name = split(url).hostname
        hosts[name] = hosts.get(name, 0) + 1
    return hosts


def _parts(url: str) -> tuple[str, str]:
    """Return host name and path of *url*, a fetch form without a port."""
    authority = authority_of(url)
    return authority.partition("://")[2], url[len(authority) :]


def _text(name: str) -> str:
    """Return the text of the page *name*. A number in it could be 404, as on pages of errors."""
    return f"page {xxh3_64_hexdigest(name.encode())}"


def _months(base: str, path: str) -> tuple[str, ...]:
    """Return the links of the calendar's page /events/YEAR/MONTH/."""
    year, month = int(path[:4]), int(path[5:7])
    after = [divmod(12 * year + month - 1 + ahead, 12) for ahead in (1, 6)]
    return tuple(f"{base}/events/{year:04}/{month + 1:02}/" for year, month in after)


def _page_name(number: int) -> str:
    """Return the name of page *number*: letters, as digits would make one pattern of all pages."""
    name = chr(97 + number % 26)
    return _page_name(number // 26 - 1) + name if number >= 26 else name


def _page_number(name: str) -> int:
    """Return the number of the page *name*; of another name a high one."""
    number = 0
    for letter in name:
        if not "a" <= letter <= "z":
            return _NO_PAGE
        number = 26 * number + ord(letter) - 96
    return number - 1 if 0 < number < _NO_PAGE else _NO_PAGE
