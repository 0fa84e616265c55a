"""Where the user allows it, a host whose server stays fast is asked for several URLs at once, as
the log of its server says."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from crawler.frontier.open import open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.model.types import Done, Pace, Pacing, Rest, Standing
from tests.harness.commands import PATIENCE_S
from tests.harness.crawling import crawl
from tests.harness.waiting import wait_until
from tests.servers.loopback import Ask, LoopbackWeb, Reply, Visit

HOST = "127.0.140.1"
PAGES = 36
FETCH_S = 0.1
RETRY_AFTER_S = 2
# The usual ones of tests would hold at each stage.
BY_ITSELF = {"CRAWLER_MIN_DELAY_S": None, "CRAWLER_DELAY_FACTOR": None}


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
