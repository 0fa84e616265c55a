"""Where the user allows it, a host whose server stays fast is asked for several URLs at once, as
the log of its server says."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace
from scrapy import Request

from crawler.frontier.open import open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.model.types import Done, Pace, Pacing, Rest, Standing
from tests.harness.commands import PATIENCE_S
from tests.harness.crawling import crawl
from tests.harness.waiting import wait_until
from tests.servers.loopback import Ask, LoopbackWeb, Reply, Visit
from tests.servers.names import NameServer

HOST = "127.0.140.1"
PAGES = 36
FETCH_S = 0.1
RETRY_AFTER_S = 2
# The usual ones of tests would hold at each stage.
BY_ITSELF = dict.fromkeys(
    ("CRAWLER_MIN_DELAY_S", "CRAWLER_PACED_MIN_DELAY_S", "CRAWLER_DELAY_FACTOR")
)


def known_as_fast(data: Path, at_once: int) -> None:
    """Let the host of an earlier crawl be one whose server takes so many requests at once."""
    with closing(open_frontier(data, FrontierLimits(), time.time())) as frontier:
        (lease,) = wait_until(lambda: frontier.lease(time.time()), PATIENCE_S)
        now = time.time()
        pacing = Pacing(step=3, base_s=FETCH_S, probed_at=now, since=now, at_once=at_once)
        pace = Pace(gap_s=0.1, standing=Standing.ANSWERS, answered=True, pacing=pacing)
        frontier.release(lease, Rest(0.0, replace(pace, has_page=True)), now)
        frontier.finish(lease, Done(), now)
        frontier.commit()


def most_at_once(visits: list[Visit]) -> int:
    return max(sum(a.arrival_s <= b.arrival_s < a.end_s for a in visits) for b in visits)


def test_a_bundle_is_spread_and_ends_with_a_refusal(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(ask: Ask) -> Reply:
        if ask.path == "/robots.txt":
            return Reply(status=404)
        asked.append(ask.path)
        if len(asked) == PAGES - 8:
            return Reply(status=429, headers=(("Retry-After", str(RETRY_AFTER_S)),))
        return Reply("<p>A page", wait_s=FETCH_S)

    with LoopbackWeb(answer, [HOST]) as web:
        seeds = tmp_path / "seeds.txt"
        seeds.write_text("".join(web.url(HOST, f"/{n}") + "\n" for n in range(PAGES)))
        crawl(tmp_path / "data", settings=BY_ITSELF, seeds=str(seeds), max_pages="1")
        known_as_fast(tmp_path / "data", 3)
        web.settle()
        web.visits.clear()
        settings = {**BY_ITSELF, "CRAWLER_PACED_CONNECTIONS": 3}
        done = crawl(tmp_path / "data", settings=settings, seeds=str(seeds))
        web.settle()
    pages = sorted(web.visits, key=lambda visit: visit.arrival_s)
    (refused,) = [each for each in pages if each.status == 429]
    fates = [tries[-1] for tries in done.fates().values()]
    assert fates == ["done"] * (PAGES - 1), "one was leased and finished by hand"
    assert most_at_once(pages) in (2, 3)
    after = [each for each in pages if each.arrival_s > refused.end_s]
    assert after and min(each.arrival_s for each in after) >= refused.end_s + RETRY_AFTER_S
    assert most_at_once(after) < 3, "it is asked for fewer at once"


def page(ask: Ask) -> Reply:
    if ask.path == "/robots.txt":
        return Reply(status=404)
    return Reply(f"<p>A page {ask.path}", wait_s=FETCH_S)


def begun(data: Path, web: LoopbackWeb, urls: list[str], settings: dict[str, object]) -> str:
    """Fetch the first of *urls*, finish the second by hand, and let the host of both be one that
    takes four requests at once. Returns the list of all of them."""
    seeds = data.with_suffix(".txt")
    seeds.write_text("\n".join(urls))
    crawl(data, settings=settings, seeds=str(seeds), max_pages="1")
    known_as_fast(data, 4)
    web.settle()
    web.visits.clear()
    return str(seeds)


def rests(web: LoopbackWeb) -> list[tuple[str, float]]:
    """Return the path of each visit, and the time from its end to the next one."""
    web.settle()
    pages = sorted(web.visits, key=lambda each: each.arrival_s)
    assert len(pages) > 1
    return [(earlier.path, later.arrival_s - earlier.end_s) for earlier, later in pairwise(pages)]


def test_a_delay_for_some_urls_of_a_host_holds_in_a_bundle(tmp_path: Path) -> None:
    with LoopbackWeb(page, [HOST]) as web:
        rules = tmp_path / "rules.toml"
        rules.write_text(f'[[rule]]\nfor = "{web.url(HOST, "/slow/*")}"\ndelay_s = 1.0\n')
        settings = {**BY_ITSELF, "CRAWLER_RULES": str(rules), "CRAWLER_PACED_CONNECTIONS": 4}
        urls = [web.url(HOST, f"/slow/{number}") for number in range(5)]
        seeds = begun(tmp_path / "data", web, urls, settings)
        crawl(tmp_path / "data", settings=settings, seeds=seeds)
        assert min(rest for _, rest in rests(web)) >= 1.0


def test_a_crawl_delay_of_a_name_holds_in_a_bundle_of_its_domain(tmp_path: Path) -> None:
    def answer(ask: Ask) -> Reply:
        if ask.path != "/robots.txt":
            return page(ask)
        delay = "Crawl-delay: 2" if dict(ask.headers)["Host"].startswith("b.") else ""
        return Reply(f"User-agent: *\n{delay}\n", content_type="text/plain")

    names = dict.fromkeys(("a.d.example", "b.d.example"), (HOST,))
    with NameServer(names) as server, LoopbackWeb(answer, [HOST]) as web:
        settings = {
            **BY_ITSELF,
            "CRAWLER_CONTACT": "https://w3.org/bot",
            "CRAWLER_HOST_UNIT": "domain",
            "CRAWLER_NAME_SERVERS": server.address,
            "CRAWLER_PACED_CONNECTIONS": 4,
        }
        paths = ("a/0", "a/1", "b/0", "b/1", "a/2", "b/2", "b/3")
        urls = [f"http://{path[0]}.d.example:{web.port}/{path}" for path in paths]
        seeds = begun(tmp_path / "data", web, urls, settings)
        crawl(tmp_path / "data", settings=settings, seeds=seeds)
        after_b = [rest for path, rest in rests(web) if path.startswith("/b/")]
        assert len(after_b) >= 3 and min(after_b) >= 2.0


class WaitsForLate:
    """A middleware of the user's that lets some requests wait."""

    async def process_request(self, request: Request) -> None:
        await asyncio.sleep(0.6 if "late" in request.url else 0.0)


def test_what_is_handed_out_is_not_sent_inside_a_retry_after(tmp_path: Path) -> None:
    def answer(ask: Ask) -> Reply:
        if "stop" in ask.path and not ask.turn:
            return Reply(status=429, headers=(("Retry-After", str(RETRY_AFTER_S)),))
        return page(ask)

    with LoopbackWeb(answer, [HOST]) as web:
        settings = {
            **BY_ITSELF,
            "CRAWLER_PACED_CONNECTIONS": 4,
            "DOWNLOADER_MIDDLEWARES": {WaitsForLate: 10},
        }
        paths = ("/0", "/1", "/late/2", "/late/3", "/stop/4", "/5")
        urls = [web.url(HOST, path) for path in paths]
        seeds = begun(tmp_path / "data", web, urls, settings)
        done = crawl(tmp_path / "data", settings=settings, seeds=seeds)
        web.settle()
    pages = sorted(web.visits, key=lambda each: each.arrival_s)
    (refused,) = [each for each in pages if each.status == 429]
    after = [each for each in pages if each.arrival_s > refused.end_s]
    assert min(each.arrival_s for each in after) >= refused.end_s + RETRY_AFTER_S
    assert [tries[-1] for tries in done.fates().values()] == ["done"] * (len(paths) - 1)
