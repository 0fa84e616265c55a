"""Fifty requests at once meet a host whose robots.txt is not known: what the host sees of them.

Rule: each kind of robots.txt has a host of its own, and all are crawled at once: once through the
frontier, once past it (`engine.download_async`). The server's books say what came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import inf
from pathlib import Path

import pytest
from scrapy import Request, Spider

from crawler.assembly.build import crawl_of
from crawler.model.url import authority_of
from crawler.policy.robots_cache import RobotsFetchResult
from tests.harness.crawling import Crawled, crawl
from tests.servers.judge import ROBOTS, Gap, Kind, Rules, judge
from tests.servers.loopback import Ask, LoopbackWeb, Reply, Visit

FRONT, RULER, SILENT = "127.0.6.1", "127.0.6.2", "127.0.6.3"
MIN_DELAY_S = 0.01
OPEN = [f"/open/{number}" for number in range(25)]
PRIVATE = [f"/private/{number}" for number in range(25)]
ALL, NONE = OPEN + PRIVATE, list[str]()
RULES = Rules(disallow=("/private/",))
DELAYED = Rules(disallow=("/private/",), crawl_delay_s=0.2)


def moved(target: str) -> Reply:
    return Reply(status=301, headers=(("Location", target),))


def file(rules: Rules, wait_s: float = 0.0) -> Reply:
    return Reply(rules.text().encode(), content_type="text/plain", wait_s=wait_s)


@dataclass(frozen=True)
class Case:
    """A host: what it answers for its robots.txt, and which pages may be asked for then."""

    robots: Mapping[str, Reply]
    arrive: list[str]
    asks: int = 1  # for robots.txt, of this host, if each is asked for once
    rules: Rules = RULES


SLOW = file(RULES, wait_s=0.5)
CASES = {
    "a slow robots.txt": Case({ROBOTS: SLOW}, OPEN),
    "one with a crawl-delay": Case({ROBOTS: file(DELAYED, 0.5)}, OPEN, rules=DELAYED),
    "none: all is allowed": Case({ROBOTS: Reply(status=404)}, ALL),
    "503: nothing is": Case({ROBOTS: Reply(status=503)}, NONE),
    "429: nothing is": Case({ROBOTS: Reply(status=429)}, NONE),
    "challenged: nothing is": Case(
        {ROBOTS: Reply(status=403, headers=(("cf-mitigated", "challenge"),))}, NONE
    ),
    "a page that challenges": Case({ROBOTS: Reply('<p id="anubis_challenge">')}, NONE),
    "a page for all: all is allowed": Case({ROBOTS: Reply("<p>Disallow: /")}, ALL),
    "no answer in time": Case({ROBOTS: Reply(wait_s=60)}, NONE),
    "moved on its host": Case({ROBOTS: moved("/r.txt"), "/r.txt": SLOW}, OPEN, asks=2),
    "moved to another host": Case({ROBOTS: moved(f"http://{RULER}:PORT/r.txt")}, OPEN),
    "moved to a closed port": Case({ROBOTS: moved(f"http://{SILENT}:1/")}, NONE),
    "moved where we may not go": Case({ROBOTS: moved("http://192.0.2.1/")}, NONE),
    # RFC 9309 2.3.1.2: after five redirects it counts as unavailable, which allows all.
    "moved in a circle": Case({ROBOTS: moved("/a"), "/a": moved(ROBOTS)}, ALL, asks=6),
}
HOSTS = {name: f"127.0.6.{number}" for number, name in enumerate(CASES, start=11)}
BY_HOST = {HOSTS[name]: case for name, case in CASES.items()}


def web(ask: Ask) -> Reply:
    case = BY_HOST.get(ask.host)
    if ask.host == RULER and ask.path == "/r.txt":
        return SLOW
    if case is not None and ask.path in case.robots:
        reply = case.robots[ask.path]
        target = reply.header("Location")
        return moved(target.replace("PORT", str(ask.port))) if target else reply
    return Reply(f"<p>{ask.path} of {ask.host}".encode(), 404 if ask.path == ROBOTS else 200)


class Fifty(Spider):
    """Asks each host for fifty pages at once."""

    front: str

    async def start(self):
        self.arrived: list[str] = []
        self.refused: dict[str, str] = {}
        yield Request(self.front)

    def urls(self) -> Iterator[str]:
        for path in chain.from_iterable(zip(OPEN, PRIVATE, strict=True)):
            for host in BY_HOST:
                yield self.front.replace(FRONT, host) + path

    def keep(self, response):
        self.arrived.append(response.url)


class YieldingFifty(Fifty):
    name = "yields"

    def parse(self, response):
        for url in self.urls():
            yield Request(url, callback=self.keep)


class Downloads(Fifty):
    name = "downloads"

    async def parse(self, response):
        await asyncio.gather(*map(self.download, self.urls()))

    async def download(self, url):
        try:
            self.keep(await self.crawler.engine.download_async(Request(url)))
        except Exception as refused:
            self.refused[url] = str(refused)


@dataclass(frozen=True)
class Life:
    done: Crawled
    visits: list[Visit]
    root: str

    def url(self, host: str, path: str) -> str:
        return self.root.replace(FRONT, host) + path

    def reasons(self) -> dict[str, str]:
        """Return why a URL was not fetched, from the outcome log or the error of its caller."""
        logged = {one.url: one.reason for one in self.done.outcomes if one.status is None}
        return {**logged, **self.done.spider.refused}


SETTINGS = {
    "CRAWLER_MIN_DELAY_S": MIN_DELAY_S,
    "CRAWLER_ROBOTS_TRIES": 1,
    "CRAWLER_TOTAL_TIMEOUT_S": 4,
    "CRAWLER_CONNECT_TIMEOUT_S": 4,
}


@pytest.fixture(scope="module")
def lives(tmp_path_factory) -> dict[type[Fifty], Life]:
    return {
        spider: lived(spider, tmp_path_factory.mktemp("robots"))
        for spider in (YieldingFifty, Downloads)
    }


def lived(spider: type[Fifty], folder: Path) -> Life:
    with LoopbackWeb(web, [FRONT, RULER, *BY_HOST]) as served:
        root = served.url(FRONT, "")
        return Life(crawl(folder / "data", spider, SETTINGS, front=root), served.visits, root)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "way",
    [
        pytest.param(YieldingFifty, id="by the frontier"),
        pytest.param(Downloads, id="by download_async"),
    ],
)
def test_fifty_at_once(lives, way, name):
    life, case, host = lives[way], CASES[name], HOSTS[name]
    at_host = [visit for visit in life.visits if visit.host == host]
    pages = [visit for visit in at_host if visit.path not in case.robots]
    robots = [visit for visit in at_host if visit.path in case.robots]
    assert sorted(visit.path for visit in pages) == sorted(case.arrive), "each once, no other"
    assert len(robots) == case.asks, "however many wait for it"
    elsewhere = [visit for visit in life.visits if visit.host == RULER and "another" in name]
    read_s = max(visit.end_s for visit in robots + elsewhere)
    assert read_s < min((visit.arrival_s for visit in pages), default=inf)
    manners = judge(at_host, {host: Rules(robots_paths=tuple(case.robots))}, Gap(0.0, 0.0))
    assert not manners.of(Kind.OVERLAP), str(manners)
    assert {life.url(host, path) for path in case.arrive} <= set(life.done.spider.arrived)
    for path in set(ALL) - set(case.arrive):
        reason = life.reasons()[life.url(host, path)]
        assert ("robots.txt unreachable" if case.arrive is NONE else "Disallow") in reason


@pytest.mark.parametrize("name", CASES)
def test_requests_through_the_frontier_keep_the_pace_from_robots_txt_on(lives, name):
    at_host = [visit for visit in lives[YieldingFifty].visits if visit.host == HOSTS[name]]
    rules = Rules(CASES[name].rules.crawl_delay_s, robots_paths=tuple(CASES[name].robots))
    found = judge(at_host, {HOSTS[name]: rules}, Gap(MIN_DELAY_S, 1.0))
    assert not found.of(Kind.GAP), str(found)


class Forgets:
    """What was known about a host runs out between its lease and its fetch; once."""

    @classmethod
    def from_crawler(cls, crawler):
        forgets = cls()
        forgets.crawler, forgets.times = crawler, 0
        return forgets

    def process_request(self, request):
        if request.url.endswith("/open/0") and not self.times:
            self.times += 1
            crawl = crawl_of(self.crawler)
            authority = authority_of(request.url)
            trouble = RobotsFetchResult(authority + ROBOTS, error="timeout")
            crawl.loop.precheck.robots.store_result(authority, trouble, crawl.leases.clock.now())


def test_a_robots_verdict_that_expires_meanwhile_refuses_nothing(tmp_path):
    name = "none: all is allowed"
    with LoopbackWeb(web, [HOSTS[name]]) as served:
        settings = {"DOWNLOADER_MIDDLEWARES": {Forgets: 100}}
        done = crawl(tmp_path / "data", settings=settings, seeds=served.url(HOSTS[name], "/open/0"))
        asked = [visit.path for visit in served.visits]
    assert asked == [ROBOTS, ROBOTS, "/open/0"], "robots.txt again, and then the page"
    assert done.fates() == {"/open/0": ["done"]}
