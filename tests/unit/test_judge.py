"""The judge against hand-made request logs: each violation is found, and a clean log gives none."""

from __future__ import annotations

from dataclasses import replace
from email.utils import formatdate

import pytest

from tests.servers.judge import Gap, Kind, Rules, Violations, judge
from tests.servers.loopback import Visit

HOST = "127.0.1.1"
GAP = Gap(min_delay_s=0.1, delay_factor=10.0)
EPOCH = 1_700_000_000.0  # wall time at second 0 of the books


def visit(
    arrival_s: float, end_s: float, path: str = "/a", status: int = 200, retry_after: str = ""
) -> Visit:
    return Visit(HOST, path, arrival_s, end_s, status, retry_after, ended_at=EPOCH + end_s)


ROBOTS = visit(0.0, 0.001, "/robots.txt")
AT_3_S = formatdate(EPOCH + 3, usegmt=True)


def kinds(found: Violations) -> list[Kind]:
    return [each.kind for each in found.found]


@pytest.mark.parametrize(
    ("visits", "rules", "expected"),
    [
        pytest.param(
            [visit(0.2, 0.201), visit(0.302, 0.303)], Rules(), [], id="a minimum kept is clean"
        ),
        pytest.param(
            [visit(0.2, 0.201), visit(0.290, 0.291)],
            Rules(),
            [Kind.GAP],
            id="a gap below the minimum",
        ),
        pytest.param(
            [visit(0.2, 0.201), visit(0.3005, 0.302)], Rules(), [], id="half a ms is tolerated"
        ),
        pytest.param(
            [visit(0.2, 0.3), visit(1.2, 1.201)],
            Rules(),
            [Kind.GAP],
            id="an answer of 100 ms asks for 1 s from its end, not from its start",
        ),
        pytest.param([visit(0.2, 0.3), visit(1.3, 1.301)], Rules(), [], id="1 s from its end"),
        pytest.param(
            [visit(0.2, 0.2049), visit(0.306, 0.307)],
            Rules(),
            [],
            id="an answer under 5 ms asks for the minimum only",
        ),
        pytest.param(
            [visit(0.2, 0.21), visit(0.25, 0.26)],
            Rules(),
            [Kind.GAP],
            id="two small answers side by side",
        ),
        pytest.param(
            [visit(0.2, 0.4), visit(0.3, 0.301)],
            Rules(),
            [Kind.OVERLAP],
            id="an overlap, named once",
        ),
        pytest.param(
            [visit(0.2, 0.9), visit(0.3, 0.301), visit(0.8, 0.81)],
            Rules(),
            [Kind.OVERLAP, Kind.OVERLAP],
            id="a long answer overlaps also with the second one after it",
        ),
        pytest.param(
            [visit(0.2, 0.3), visit(0.25, 0.251), visit(0.9, 0.901)],
            Rules(),
            [Kind.OVERLAP, Kind.GAP],
            id="a short answer in between does not shorten the rest",
        ),
        pytest.param(
            [visit(0.5, 0.501), visit(0.7, 0.701)],
            Rules(crawl_delay_s=0.5),
            [Kind.GAP],
            id="the crawl-delay is a minimum",
        ),
        pytest.param(
            [visit(0.2, 0.201)],
            Rules(crawl_delay_s=0.5),
            [Kind.GAP],
            id="it counts from the robots.txt itself",
        ),
        pytest.param(
            [visit(0.2, 0.201, "/private/x")],
            Rules(disallow=("/private/",)),
            [Kind.FORBIDDEN],
            id="a forbidden path",
        ),
        pytest.param(
            [visit(0.2, 0.201, "/private/open/x")],
            Rules(disallow=("/private/",), allow=("/private/open/",)),
            [],
            id="the longer Allow wins",
        ),
        pytest.param(
            [visit(0.2, 0.201, status=429, retry_after="2"), visit(2.1, 2.101)],
            Rules(),
            [Kind.RETRY_AFTER],
            id="inside a Retry-After in seconds",
        ),
        pytest.param(
            [visit(0.2, 0.201, status=429, retry_after="2"), visit(2.201, 2.202)],
            Rules(),
            [],
            id="just after it",
        ),
        pytest.param(
            [visit(0.2, 0.201, status=503, retry_after=AT_3_S), visit(2.9, 2.901)],
            Rules(),
            [Kind.RETRY_AFTER],
            id="before the date of a Retry-After",
        ),
        pytest.param(
            [visit(0.2, 0.201, status=503, retry_after=AT_3_S), visit(3.0, 3.001)],
            Rules(),
            [],
            id="at its date",
        ),
        pytest.param(
            [visit(0.2, 0.201, status=429, retry_after="2"), visit(0.21, 0.211)],
            Rules(),
            [Kind.GAP, Kind.RETRY_AFTER],
            id="a Retry-After ignored at once breaks two rules",
        ),
    ],
)
def test_what_the_judge_finds_after_a_robots_txt(
    visits: list[Visit], rules: Rules, expected: list[Kind]
) -> None:
    assert kinds(judge([ROBOTS, *visits], {HOST: rules}, GAP)) == expected


def test_a_page_before_robots_txt_is_answered_is_found() -> None:
    assert kinds(judge([visit(0.0, 0.001)], {}, GAP)) == [Kind.UNREAD]


def test_a_redirected_robots_txt_is_not_yet_answered() -> None:
    rules = Rules(robots_paths=("/robots.txt", "/rules"))
    moved = visit(0.0, 0.001, "/robots.txt", status=301)
    target = visit(0.2, 0.201, "/rules")
    page = visit(0.4, 0.401)
    assert kinds(judge([moved, target, page], {HOST: rules}, GAP)) == []
    assert kinds(judge([moved, replace(page, arrival_s=0.15, end_s=0.16)], {HOST: rules}, GAP)) == [
        Kind.UNREAD
    ]


def test_the_factor_is_bounded_by_the_longest_delay() -> None:
    slow = visit(0.2, 1.2)
    soon = visit(3.3, 3.4)
    assert kinds(judge([ROBOTS, slow, soon], {}, GAP)) == [Kind.GAP]
    assert kinds(judge([ROBOTS, slow, soon], {}, replace(GAP, max_delay_s=2.0))) == []


def test_hosts_are_judged_separately_and_counted() -> None:
    other = replace(ROBOTS, host="127.0.1.2", arrival_s=0.0005)
    found = judge([ROBOTS, other, visit(0.2, 0.201, status=404)], {}, GAP)
    assert kinds(found) == []
    assert (found.hosts, found.visits, found.statuses) == (2, 3, {200: 2, 404: 1})


def test_a_violation_reads_as_a_sentence() -> None:
    found = judge([ROBOTS, visit(0.2, 0.201), visit(0.25, 0.251)], {}, GAP)
    assert str(found) == (
        "3 requests to 1 hosts, 1 violations\n"
        "http://127.0.1.1/a: asked too soon after an answer, 0.0510 s early (at 0.2500)"
    )
