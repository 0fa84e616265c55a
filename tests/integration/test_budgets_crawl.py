"""Whole crawls under budgets: what is over them is fetched in the end, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.crawling import crawl
from tests.servers.loopback import Routes, page, site

PAGES = 60
BUDGETS = {"CRAWLER_DOMAIN_BUDGET": 3, "CRAWLER_TOP_DOMAIN_BUDGET": 3}


def routes() -> Routes:
    linked = [f"/p{n}" for n in range(PAGES)]
    return {"/": page(*linked), **{each: page("/", text=f"page {each}") for each in linked}}


@pytest.mark.parametrize("stops", [(), (5, 20)])
def test_all_pages_of_a_site_are_fetched_once_though_its_budget_is_small(
    tmp_path: Path, stops: tuple[int, ...]
) -> None:
    data = tmp_path / "data"
    with site("127.0.0.73", routes()) as web:
        for outcomes in (*stops, None):
            crawl(data, settings=BUDGETS, seeds=web.url("/"), scope="any", outcomes=outcomes)
        pages = {path: hits for path, hits in web.hits.items() if path != "/robots.txt"}
    assert len(pages) == PAGES + 1
    assert [path for path, times in pages.items() if times > 1 + len(stops)] == []
