"""kill -9 of workers inside rounds: by the log of the web server no round has more than its caps,
and nothing is lost. `make rounds` runs it."""

from __future__ import annotations

import os
import random
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from crawler.data.outcomes import read_outcomes
from tests.harness.workers import QUICK_LEASES, Workers
from tests.servers.judged_web import Judge, JudgedWeb
from tests.servers.redis import RedisServer

FIRST = int(os.environ.get("FIRST", "0"))
KILLED = int(os.environ.get("KILLED", "4"))  # one takes over a minute
SETTINGS = {
    **QUICK_LEASES,
    "CRAWLER_MIN_DELAY_S": 0.05,
    "CRAWLER_DELAY_FACTOR": 1.0,
    "CRAWLER_BACKOFF_BASE_S": 0.1,
    "CRAWLER_FRONTIER_SHARDS": 8,
}


@pytest.mark.parametrize("seed", range(FIRST, FIRST + KILLED))
def test_no_round_has_more_than_its_caps(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    caps = {"round": dice.randint(15, 40), "round_per_host": dice.randint(4, 8)}
    with (
        RedisServer() as server,
        Judge(JudgedWeb(hosts=10, pages=10, crawl_delay_s=0.2)) as judge,
        Workers(
            *(tmp_path, server, judge, SETTINGS),
            **{name: str(cap) for name, cap in caps.items()},
            rounds="1000",
        ) as crawl,
    ):
        crawl.start_together(dice.choice((2, 3)))
        for _ in range(dice.randint(1, 3)):
            crawl.wait_for_visits(dice.randint(1, 30))
            victim = dice.choice(crawl.all)
            victim.kill()
            crawl.wait_for_visits(dice.choice((0, 1, 5)))
            victim.start()
        crawl.finish()
    urls, requests = results_of(crawl), logged(crawl)
    by_round = rounds_of(urls, requests)
    assert len(by_round) > 2
    ended_s = 0.0
    for number, arrivals in sorted(by_round.items()):
        begun_s = min(arrivals)
        assert begun_s > ended_s, f"round {number} begins before the one before is over"
        ended_s = max(arrivals)
        # What a killed worker had asked for has no result: between two requests of a round it is
        # of that, else of this one or the next.
        within = Counter(host for at_s, host, _ in requests if begun_s <= at_s <= ended_s)
        until = Counter(host for at_s, host, _ in requests if at_s <= ended_s)
        for asked, rounds in ((within, 1), (until, number)):
            assert asked.total() <= rounds * caps["round"], f"round {number}"
            assert max(asked.values()) <= rounds * caps["round_per_host"], f"round {number}"


def results_of(crawl: Workers) -> dict[str, list[tuple[float, int]]]:
    """Return when each URL of the crawl had a result, in epoch seconds, and in which round. A
    robots.txt and a probe have none."""
    found = defaultdict(list)
    for worker in crawl.all:
        for each in read_outcomes(worker.data / "outcomes.jsonl"):
            found[each.url].append((each.at, each.round))
    return found


def logged(crawl: Workers) -> list[tuple[float, str, str]]:
    """Return all requests: when they came, by the monotonic clock, the host and the URL."""
    urls, url = results_of(crawl), crawl.judge.url
    found = [(each.arrival_s, each.host, url(each.host, each.path)) for each in crawl.judge.visits]
    return [each for each in found if each[2] in urls]


def rounds_of(
    results: dict[str, list[tuple[float, int]]], requests: list[tuple[float, str, str]]
) -> dict[int, list[float]]:
    """Return when the requests of each round came that had a result: the last one before it."""
    since_s = time.time() - time.monotonic()
    arrivals, found = defaultdict(list), defaultdict(list)
    for at_s, _, url in requests:
        arrivals[url].append(at_s)
    for url, ends in results.items():
        for at, number in ends:
            asked = [each for each in arrivals[url] if each + since_s <= at]
            if asked:
                found[number].append(max(asked))
    return found
