"""The benchmark measures what it claims: its web is as described, its sums are right, and the pages
on which content removers are measured hold what they should."""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from bench import race
from bench.crawls import PROJECT, Ours, ScrapyRedis, Start
from bench.frontier import table as side_by_side
from bench.frontier.links import URL_BYTES, Client, Finder, Link, domain_of, even, url_of
from bench.measure import Cost, CrawlFailed, Run, middle, run, slope
from bench.templates import TEMPLATES
from bench.web import Pages, addresses
from crawler.content.parsers.html import HtmlParser
from crawler.model.page import Source

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
    many = Run(pages=1_100, cpu_s=7.0, wall_s=13.0, peak_bytes=80_000_000, redis_cpu_s=2.0)
    expected = Cost(5.0, 100.0, peak_mb=80.0, pages=1_100, redis_ms_a_page=2.0)
    assert slope(few, many) == expected
    assert expected.pages_per_s_a_core == 200.0


def test_a_longer_run_that_is_not_longer_is_refused() -> None:
    same = Run(pages=100, cpu_s=2.0, wall_s=3.0, peak_bytes=1)
    with pytest.raises(CrawlFailed, match="no more pages"):
        slope(same, same)


def test_one_disturbed_round_does_not_decide() -> None:
    costs = [Cost(ms, 1_000 / ms, 80.0, 100) for ms in (5.0, 50.0, 6.0)]
    assert middle(costs).cpu_ms_a_page == 6.0


def test_a_crawl_that_fails_shows_its_log(tmp_path: Path) -> None:
    fails = ["sh", "-c", "echo seeds.txt is missing >&2; exit 3"]
    with pytest.raises(CrawlFailed, match=r"seeds\.txt is missing"):
        run([fails], tmp_path / "log", lambda: 0)


def test_a_failed_worker_fails_the_crawl(tmp_path: Path) -> None:
    pages = iter((0, 10))
    with pytest.raises(CrawlFailed, match="ended with 0, 3"):
        run([["true"], ["sh", "-c", "exit 3"]], tmp_path / "log", lambda: next(pages))


def test_workers_are_added_up(tmp_path: Path) -> None:
    spins = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.1: pass"]
    pages = iter((5, 25))
    both = run([spins, spins], tmp_path / "log", lambda: next(pages))
    assert both.pages == 20
    assert both.cpu_s >= 0.2
    assert both.peak_bytes > 2 * 4_000_000  # no Python is smaller


def test_our_crawl_is_started_as_a_user_would(tmp_path: Path) -> None:
    start = Start(tmp_path / "seeds.txt", 7, tmp_path)
    (command,) = Ours("ours", few=1, many=2).commands(start)
    assert command[1:5] == ["-m", "scrapy", "crawl", "web"]
    assert "max_pages=7" in command
    assert f"CRAWLER_DATA_DIR={tmp_path / '0'}" in command
    assert not [part for part in command if part.startswith("CRAWLER_FRONTIER_URL")]
    assert (PROJECT / "bench").is_dir()


def test_two_workers_share_the_pages_and_the_redis_and_nothing_else(tmp_path: Path) -> None:
    start = Start(tmp_path / "seeds.txt", 7, tmp_path, "redis://127.0.0.1:1/0")
    first, second = Ours("ours", few=1, many=2, shared=True, workers=2).commands(start)
    assert {"max_pages=4", "CRAWLER_FRONTIER_URL=redis://127.0.0.1:1/0"} <= {*first} & {*second}
    assert {*first} ^ {*second} == {f"CRAWLER_DATA_DIR={tmp_path / name}" for name in "01"}


def test_the_rival_gets_the_same_seeds_and_the_same_redis(tmp_path: Path) -> None:
    start = Start(tmp_path / "seeds.txt", 7, tmp_path, "redis://127.0.0.1:1/0")
    (command,) = ScrapyRedis("theirs", few=1, many=2, shared=True).commands(start)
    assert command[3:] == [str(tmp_path / "seeds.txt"), "7", "redis://127.0.0.1:1/0"]


def costs(ours_ms: float, theirs_ms: float, redis_ms: float) -> dict[str, Cost]:
    return {
        "gossamer-redis": Cost(ours_ms, 1_000 / ours_ms, 80.0, 100, redis_ms),
        "scrapy-redis": Cost(theirs_ms, 1_000 / theirs_ms, 80.0, 100, 2.0),
    }


@pytest.mark.parametrize(
    ("measured", "broken"),
    [
        pytest.param(costs(2.0, 14.0, 0.5), 0, id="better with Redis counted and without"),
        pytest.param(costs(2.0, 14.0, 2.0), 1, id="Redis does too much of the work"),
        pytest.param(costs(4.0, 14.0, 0.1), 2, id="not good enough either way"),
        pytest.param({}, 0, id="nothing was measured, nothing is broken"),
    ],
)
def test_a_claim_holds_with_the_cpu_of_redis_and_without(
    measured: dict[str, Cost], broken: int
) -> None:
    assert len(race.missed(measured)) == broken
    assert race.table(measured)


BOTH = [Client(0, 2), Client(1, 2)]


def test_a_link_is_90_characters_and_belongs_to_its_host() -> None:
    for link in (Link(0, 0), Link(999_999, 1_234_567)):
        assert len(url_of(link)) == URL_BYTES
        assert f"//www.{domain_of(link)}/" in url_of(link)


def test_no_two_clients_find_the_same_link_as_new() -> None:
    found = [link for client in BOTH for link in Finder(10, client).new(2_000)]
    assert len(set(found)) == 4_000
    assert len({link.host for link in found}) == 10


def test_of_mixed_links_one_in_nine_is_new() -> None:
    for client in BOTH:
        finder = Finder(10, client)
        before = set(finder.new(2_000))
        assert len(set(finder.mixed(900)) - before) == 100


def test_of_a_page_three_links_in_four_stay_at_home() -> None:
    page = list(islice(Finder(1_000, Client(0, 1)).new(40), 40))
    assert Counter(link.host for link in page).most_common(1)[0][1] >= 30


def test_hosts_are_filled_evenly() -> None:
    links = [link for client in BOTH for link in even(7, 70, client)]
    assert sorted(links) == [Link(host, number) for host in range(7) for number in range(10)]


def test_a_claim_for_every_machine_is_reported_when_it_fails() -> None:
    ours = {"new_per_s": 1.0, "seen_bytes": 9.0, "waiting_bytes": 121.0}
    figures = {"gossamer": ours, "scrapy-redis": {"seen_bytes": 500.0}}
    (broken,) = side_by_side.missed(figures)
    assert "121" in broken
    assert "500" in side_by_side.table(figures)


PROSE = (
    "A heron stood in the shallow water and did not move for so long that the ducks forgot"
    " it was there, until one of them came too near and there was a splash that all could hear."
)
CONTENT = f"<p>{PROSE}</p><ul><li>A heron</li><li>A duck</li></ul><p>{PROSE}</p>"
TEASERS = [f"Read here what nobody has told you about the year {year} so far" for year in range(8)]


@pytest.mark.parametrize("template", TEMPLATES)
def test_content_is_found_in_each_template(template: str) -> None:
    page = TEMPLATES[template](CONTENT, "Of herons", random.Random(0), TEASERS)
    text = HtmlParser().parse(Source("", "text/html", page.encode())).text
    assert f"{PROSE}\nA heron\nA duck\n{PROSE}" in text
    if template != "blog":  # what all its pages say is prose there, and marked by nothing
        assert "Careers" not in text and "cookies" not in text
