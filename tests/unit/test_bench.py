"""The benchmark measures what it says: its web is as described, its sums are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.crawls import PROJECT, Ours
from bench.measure import Cost, CrawlFailed, Run, middle, run, slope
from bench.web import Pages, addresses

ORIGINS = [f"http://{address}:8000" for address in addresses(300)]


def test_every_host_has_an_address_of_its_own() -> None:
    assert len(set(addresses(600))) == 600
    assert addresses(251)[-2:] == ["127.3.0.250", "127.3.1.1"]


def test_a_page_has_30_kb_and_40_links_three_of_four_to_its_own_host() -> None:
    page = Pages(ORIGINS, pages=5_000).page(3, b"a/7.html")
    links = re.findall(rb'href="([^"]*)"', page)
    assert len(links) == 40
    assert sum(link.startswith(b"http://") for link in links) == 10
    assert 29_000 < len(page) < 31_000


def test_the_same_name_is_the_same_page_and_another_name_another() -> None:
    first, second = Pages(ORIGINS, pages=5_000), Pages(ORIGINS, pages=5_000)
    assert first.page(3, b"a/7.html") == second.page(3, b"a/7.html")
    assert len({first.page(host, b"a/%d.html" % n) for host in (1, 2) for n in range(50)}) == 100


def test_the_slope_takes_start_up_out() -> None:
    few = Run(pages=100, cpu_s=2.0, wall_s=3.0, peak_bytes=50_000_000)
    many = Run(pages=1_100, cpu_s=7.0, wall_s=13.0, peak_bytes=80_000_000)
    expected = Cost(cpu_ms_a_page=5.0, pages_per_s=100.0, peak_mb=80.0, pages=1_100)
    assert slope(few, many) == expected


def test_a_longer_run_that_is_not_longer_is_refused() -> None:
    same = Run(pages=100, cpu_s=2.0, wall_s=3.0, peak_bytes=1)
    with pytest.raises(CrawlFailed, match="no more pages"):
        slope(same, same)


def test_one_disturbed_round_does_not_decide() -> None:
    costs = [Cost(ms, 1_000 / ms, 80.0, 100) for ms in (5.0, 50.0, 6.0)]
    assert middle(costs).cpu_ms_a_page == 6.0


def test_a_crawl_that_fails_shows_its_log(tmp_path: Path) -> None:
    with pytest.raises(CrawlFailed, match=r"seeds\.txt is missing"):
        run(["sh", "-c", "echo seeds.txt is missing >&2; exit 3"], tmp_path / "log", lambda: 0)


def test_our_crawl_is_started_as_a_user_would(tmp_path: Path) -> None:
    command = Ours("ours", few=1, many=2).command(tmp_path / "seeds.txt", 7, tmp_path / "data")
    assert command[1:5] == ["-m", "scrapy", "crawl", "web"]
    assert "max_pages=7" in command
    assert f"CRAWLER_DATA_DIR={tmp_path / 'data'}" in command
    assert (PROJECT / "bench").is_dir()
