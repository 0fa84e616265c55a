"""The small web of the demo does what its story describes, and the story is made from its request
log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from demo.story import story
from demo.summary import Summary, read_summary
from demo.web import (
    ARCHIVE,
    CALENDAR,
    CLUB,
    FAR_MONTH,
    HOSTS,
    LIBRARY,
    OFFICE,
    RULES,
    SQUARE,
    WAREHOUSE,
    SmallWeb,
)
from tests.servers.judge import Gap, Kind, judge
from tests.servers.loopback import LoopbackWeb, Visit


@pytest.fixture
def web() -> Iterator[LoopbackWeb]:
    with LoopbackWeb(SmallWeb(), list(HOSTS)) as serving:
        yield serving


def ask(web: LoopbackWeb, host: str, path: str) -> tuple[HTTPResponse, bytes]:
    with closing(HTTPConnection(host, web.port)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response, response.read()


@pytest.mark.parametrize(
    ("host", "path", "statuses"),
    [
        pytest.param(SQUARE, "/", [200], id="the front page"),
        pytest.param(SQUARE, "/robots.txt", [404], id="no rules"),
        pytest.param(CLUB, "/robots.txt", [200], id="rules"),
        pytest.param(SQUARE, "/ring/a", [302], id="a redirect"),
        pytest.param(OFFICE, "/desk.html", [429, 429, 200], id="too busy at first"),
        pytest.param(WAREHOUSE, "/lift.html", [500, 500, 500], id="broken for good"),
        pytest.param(LIBRARY, "/nowhere", [404], id="not there"),
    ],
)
def test_the_small_web_answers(web: LoopbackWeb, host: str, path: str, statuses: list[int]) -> None:
    assert [ask(web, host, path)[0].status for _ in statuses] == statuses


def test_three_addresses_hold_one_paper(web: LoopbackWeb) -> None:
    paths = ("/paper.html", "/print/paper.html", "/mirror/paper.html?x=1")
    assert len({ask(web, ARCHIVE, path)[1] for path in paths}) == 1


def test_the_desk_sends_a_retry_after(web: LoopbackWeb) -> None:
    assert ask(web, OFFICE, "/desk.html")[0].headers["Retry-After"] == "2"


def test_the_endless_page_goes_on_until_the_client_leaves(web: LoopbackWeb) -> None:
    with closing(HTTPConnection(WAREHOUSE, web.port)) as connection:
        connection.request("GET", "/endless.html")
        response = connection.getresponse()
        assert len(response.read(3_000_000)) == 3_000_000
        response.close()


def test_a_demo_without_visits_reports_a_failure() -> None:
    assert not any(chapter.well for chapter in story([], Summary()))


def test_the_story_knows_a_rude_visitor() -> None:
    rude = [Visit(CLUB, path, n, n + 0.01) for n, path in enumerate(("/", "/members/"))]
    club = next(each for each in story(rude, Summary()) if "Crawl-delay" in each.laid)
    assert not club.well
    assert "1 went to /members/" in club.told
    found = {each.kind for each in judge(rude, RULES, Gap(0.2, 10.0)).found}
    assert found == {Kind.FORBIDDEN, Kind.UNREAD}


def months(count: int, *paths: str) -> list[Visit]:
    asked = [*(f"/month?month={number}" for number in range(count)), *paths]
    return [Visit(CALENDAR, path, n, n + 0.01) for n, path in enumerate(asked)]


@pytest.mark.parametrize(
    ("visits", "well"),
    [
        pytest.param(months(18), True, id="those with events, and ten without"),
        pytest.param(months(10), False, id="it ended before it had seen the events"),
        pytest.param(months(60), False, id="it did not end"),
        pytest.param(months(18, FAR_MONTH), False, id="it went where only calendars go"),
        pytest.param(months(18, "/month?month=1"), False, id="it read a month twice"),
    ],
)
def test_the_story_knows_when_a_calendar_ends(visits: list[Visit], well: bool) -> None:
    calendar = next(each for each in story(visits, Summary()) if "calendar" in each.laid)
    assert calendar.well is well


def test_a_summary_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    assert read_summary(tmp_path) == Summary()
    (tmp_path / "summary.json").write_text('{"duplicates": 3, "something": "else"}')
    assert read_summary(tmp_path) == Summary(duplicates=3)
