"""Crawls of webs that have no end: each ends, and logs the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from crawler.config.settings import read_config
from crawler.report.why_text import why_text
from crawler.view.local import LocalView
from crawler.view.why import why
from demo.pages import MONTHS_AHEAD, page
from demo.web import CALENDAR, SmallWeb
from tests.harness.crawling import crawl
from tests.servers.loopback import Ask, LoopbackWeb, Reply
from tests.servers.redis import RedisServer

HOST = "127.0.5.41"
DAYS = tuple((f"/day/{number}", str(number)) for number in range(1, 61))
# No page is asked for before the last one is judged, however long that takes: numbers are exact.
# (What waits for a sync is judged only then.)
ONE_BY_ONE = {
    "CONCURRENT_REQUESTS": 1,
    "SCRAPER_SLOT_MAX_ACTIVE_SIZE": 1,
    "CRAWLER_FSYNC": False,
}
BUDGETS = {"CRAWLER_PATTERN_BARREN_PAGES": 5, **ONE_BY_ONE}
TO_THE_LETTER = {**BUDGETS, "CRAWLER_FOLLOW_DUPLICATES": True}


def days(ask: Ask) -> Reply:
    """Sixty days that all say the same, and a page that does not."""
    if ask.path == "/robots.txt":
        return Reply(status=404)
    if ask.path == "/":
        return Reply(page("Hall", "Come in.", links=(("/day/0", "Today"), ("/about", "About"))))
    if ask.path == "/about":
        return Reply(page("About", "A hall.", links=(("/day/900", "A day far away"),)))
    return Reply(page("Plan of a day", "Nothing is planned.", links=DAYS))


def asked(web: LoopbackWeb) -> list[str]:
    return [visit.path for visit in web.visits if visit.path.startswith("/day/")]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The data of a crawl that left the days, and where they were."""
    data = tmp_path_factory.mktemp("left") / "data"
    with LoopbackWeb(days, [HOST]) as web:
        crawl(data, settings=TO_THE_LETTER, seeds=web.url(HOST))
    return data, web.url(HOST, "")


def test_a_pattern_without_new_content_is_stopped(tmp_path: Path) -> None:
    with LoopbackWeb(days, [HOST]) as web:
        done = crawl(tmp_path / "data", settings=TO_THE_LETTER, seeds=web.url(HOST))
    assert done.reason == "finished"
    assert len(asked(web)) == 6, "one that is new, and five that are not"
    left = [each for each in done.outcomes if each.reason.startswith("pattern ")]
    assert {each.url for each in left} == {
        each.url for each in done.outcomes if "/day/" in each.url and each.status is None
    }
    assert {each.reason for each in left} == {"pattern /day/#: nothing new in its last 5 pages"}
    assert len(left) > 50
    assert done.stats["crawler/patterns/unfetched"] == len(left)


def test_a_shared_crawl_stops_the_pattern_too(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis") as server, LoopbackWeb(days, [HOST]) as web:
        settings = {**TO_THE_LETTER, "CRAWLER_FRONTIER_URL": server.url}
        done = crawl(tmp_path / "data", settings=settings, seeds=web.url(HOST))
    assert done.reason == "finished"
    assert len(asked(web)) == 6
    assert done.stats["crawler/patterns/unfetched"] > 50


def days_and_more(wait_s: float) -> Callable[[Ask], Reply]:
    """Two days more are found when the others are over: they are linked to from the page with least
    cash."""
    later = page("More", "More.", links=(("/day/900", "A day"), ("/day/901", "Another")))

    def answer(ask: Ask) -> Reply:
        if ask.path == "/about":
            return Reply(page("About", "A hall.", links=(*DAYS, ("/more", "More"))))
        return Reply(later, wait_s=wait_s) if ask.path == "/more" else days(ask)

    return answer


def test_links_of_a_stopped_pattern_are_not_added(tmp_path: Path) -> None:
    with LoopbackWeb(days_and_more(0.0), [HOST]) as web:
        done = crawl(tmp_path / "data", settings=TO_THE_LETTER, seeds=web.url(HOST))
    assert done.stats["crawler/refused/pattern"] == 2
    assert not {"/day/900", "/day/901"} & done.fates().keys()


def test_a_stopped_pattern_is_probed(tmp_path: Path) -> None:
    settings = {**TO_THE_LETTER, "CRAWLER_PATTERN_PROBE_S": 3}
    with LoopbackWeb(days_and_more(3.2), [HOST]) as web:
        done = crawl(tmp_path / "data", settings=settings, seeds=web.url(HOST))
    assert asked(web)[6:] == ["/day/900"]
    assert done.outcomes[-1].reason == "pattern /day/#: nothing new in its last 6 pages"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(
            "/day/0",
            ["done: status 200", "of its pattern /day/#: 6 pages, 1 of them new, the last 5 not"],
            id="one that was fetched",
        ),
        pytest.param(
            "/day/40",
            ["done: pattern /day/#: nothing new in its last 5 pages"],
            id="one that was left",
        ),
        pytest.param(
            "/day/7777",
            [
                "not seen",
                "refused by the rule pattern: URLs like it have brought enough: pattern /day/#",
                "one of its pattern may be tried in ",
            ],
            id="one that was not met",
        ),
        pytest.param("/about", ["the rules admit it"], id="the only one of its pattern"),
        pytest.param("/night/1", ["the rules admit it", "/night/#: 0 pages"], id="a new pattern"),
        pytest.param(
            "/1890/05/",
            ["refused by the rule calendar: a date so far away", "1890/05 is before 1990"],
            id="a date",
        ),
        pytest.param(
            "/?a=1&a=1&a=1", ["refused by the rule repeated_query", "comes 3 times"], id="a query"
        ),
    ],
)
def test_why(left: tuple[Path, str], path: str, expected: list[str]) -> None:
    data, root = left
    config = read_config({"CRAWLER_PATTERN_BARREN_PAGES": "5"})
    with LocalView(data) as view:
        now = view.now()
        text = "\n".join(why_text(why(root + path, view, config, {}), now))
    assert [part for part in expected if part not in text] == [], text


def test_a_pattern_at_its_cap_is_stopped_though_its_pages_are_new(tmp_path: Path) -> None:
    def new_days(ask: Ask) -> Reply:
        pages = days(ask)
        assert isinstance(pages.body, bytes)
        return replace(pages, body=pages.body + ask.path.encode())

    settings = {**ONE_BY_ONE, "CRAWLER_PATTERN_MAX_PAGES": 7}
    with LoopbackWeb(new_days, [HOST]) as web:
        done = crawl(tmp_path / "data", settings=settings, seeds=web.url(HOST))
    assert len(asked(web)) == 7
    assert done.stats["crawler/patterns/unfetched"] > 50


def test_a_calendar_whose_months_look_the_same_ends(tmp_path: Path) -> None:
    settings = {**ONE_BY_ONE, "CRAWLER_PATTERN_BARREN_PAGES": 10}
    with LoopbackWeb(SmallWeb(), [CALENDAR]) as web:
        done = crawl(tmp_path / "data", settings=settings, seeds=web.url(CALENDAR))
    months = [visit.path for visit in web.visits if visit.path.startswith("/month")]
    events = 2 * MONTHS_AHEAD + 1
    assert len(months) == len(set(months)) == events + 1 + 10, "one without events is new too"
    assert {each.reason for each in done.outcomes if each.status is None} == {
        "pattern /month?month: nothing new in its last 10 pages"
    }
    assert done.stats["crawler/refused/calendar"] == 1


def test_dates_out_of_range_are_refused_but_not_in_seeds(tmp_path: Path) -> None:
    def calendar(ask: Ask) -> Reply:
        if ask.path == "/robots.txt":
            return Reply(status=404)
        year = int(ask.path.split("/")[1])
        return Reply(page(f"May {year}", "May.", links=((f"/{year + 1}/05/", "Next year"),)))

    next_year = datetime.now(UTC).year + 1
    with LoopbackWeb(calendar, [HOST]) as web:
        seeds = f"{web.url(HOST, '/1890/05/')},{web.url(HOST, f'/{next_year - 1}/05/')}"
        done = crawl(tmp_path / "data", seeds=seeds)
    read = [visit.path for visit in web.visits if visit.path != "/robots.txt"]
    assert sorted(read)[:2] == ["/1890/05/", f"/{next_year - 1}/05/"]
    assert len(read) <= 4
    assert done.stats["crawler/refused/calendar"] == 2
