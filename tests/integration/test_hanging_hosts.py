"""Hosts that hang take nothing from hosts that answer. (`python -m bench.hanging` in small.)

Rule: no time-out of a fetch ever comes, so that what is brought is brought beside those that hang.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from bench import hanging
from bench.hanging import DRIP, DROPPED, KINDS, SILENT, addresses
from tests.harness.crawling import crawl
from tests.servers.redis import RedisServer

NEVER_S = 600.0
SLOTS = 4
GOOD, HANGING = 4, 60
PAGES = 15  # of each good host
SETTINGS = {
    "CONCURRENT_REQUESTS": SLOTS,
    "CRAWLER_SLOW_AFTER_S": 0.05,
    "CRAWLER_CONNECT_TIMEOUT_S": NEVER_S,
    "CRAWLER_TOTAL_TIMEOUT_S": NEVER_S,
    "CRAWLER_LEASE_S": 3 * NEVER_S,
}


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param((SILENT,), id="they never answer"),
        pytest.param((DROPPED,), id="they drop the SYN"),
        pytest.param((DRIP,), id="their pages drip"),
        pytest.param(KINDS, id="all of these"),
    ],
)
def test_good_hosts_are_crawled_beside_fifteen_times_as_many_that_hang(
    tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    crawl_beside(tmp_path, kinds, {})


def test_good_hosts_of_a_shared_crawl_are_crawled_beside_hanging_ones(
    tmp_path: Path, server: RedisServer
) -> None:
    crawl_beside(tmp_path, KINDS, {"CRAWLER_FRONTIER_URL": server.url})


def crawl_beside(folder: Path, kinds: tuple[str, ...], settings: dict[str, object]) -> None:
    with ExitStack() as served:
        good = served.enter_context(hanging.server("good"))
        ports = [served.enter_context(hanging.server(kind)) for kind in kinds]
        seeds = [
            f"http://{host}:{ports[number % len(ports)]}/"
            for number, host in enumerate(addresses(2, HANGING))
        ]
        seeds += [f"http://{host}:{good}/" for host in addresses(1, GOOD)]  # last of all
        listed = folder / "seeds.txt"
        listed.write_text("\n".join(seeds) + "\n")
        drips = HANGING // len(kinds) if DRIP in kinds else 0  # robots.txt that are answered
        answers = drips + GOOD * (1 + PAGES)
        crawled = crawl(
            folder / "data",
            settings={**SETTINGS, "CLOSESPIDER_PAGECOUNT": answers, **settings},
            seeds=str(listed),
        )
    assert crawled.reason == "closespider_pagecount"
    assert crawled.stats["crawler/pages"] >= GOOD * PAGES
    assert not crawled.stats.get("crawler/error/timeout"), (
        "the good ones waited for those that hang"
    )
