"""Which of the waiting URLs of a host come first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import Candidate, Done, HostKey, Rest
from crawler.policy.priority import DOUBLING, MOST_CASH, NO_CASH, SEED_CASH, cash_of_links

HOST = HostKey("a.example")
MUCH = SEED_CASH - 8 * DOUBLING


def url(name: object, cash: int, host: HostKey = HOST, depth: int = 1) -> Candidate:
    text = f"https://{host}/{name}"
    key = xxh3_64_intdigest(text.encode())
    return Candidate(text, key, host, host, depth, level=1, cash=cash)


@pytest.fixture
def frontier(tmp_path: Path) -> TwoTierFrontier:
    return open_frontier(tmp_path, FrontierLimits(min_gap_s=0.0), 0.0, store=MemoryStore())


def lease(frontier: TwoTierFrontier, urls: int, now: float = 1.0) -> list[str]:
    """Lease so many URLs, one after another, and return their names."""
    names = []
    for _ in range(urls):
        (leased,) = frontier.lease(now)
        names.append(leased.candidate.url.rpartition("/")[2])
        frontier.release(leased, Rest(0.0, leased.pace), now)
        frontier.finish(leased, Done(), now)
    return names


def names(found: Sequence[Candidate]) -> list[str]:
    return [each.url.rpartition("/")[2] for each in found]


@pytest.mark.parametrize("waiting", [20, 2000, 20_000])
def test_the_urls_with_most_cash_come_first_and_of_equal_ones_the_first_found(frontier, waiting):
    found = [url(n, MUCH + n * 7919 % 97) for n in range(waiting)]
    frontier.add(found, 0.0)
    window = found[:8192]
    best = sorted(window, key=lambda each: -each.cash)
    assert lease(frontier, 16) == names(best[:16])


def test_the_cash_of_later_links_is_added(frontier):
    """Eight links with half as much as the others have, to the last one found."""
    frontier.add([url(n, MUCH) for n in range(100)], 0.0)
    for _ in range(8):
        frontier.add([url(99, MUCH - DOUBLING)], 0.0)
    assert lease(frontier, 2) == ["99", "0"]


def test_the_cash_that_came_later_is_passed_on(frontier):
    frontier.add([url(n, MUCH) for n in range(100)], 0.0)
    frontier.add([url(99, MUCH)], 0.0)
    (leased,) = frontier.lease(1.0)
    assert leased.candidate.cash == MUCH + DOUBLING


def test_a_url_with_much_more_cash_comes_before_the_next_of_a_turn(frontier):
    frontier.add([url(n, MUCH) for n in range(100)], 0.0)
    assert lease(frontier, 3) == ["0", "1", "2"]
    frontier.add([url("much", MUCH + 3 * DOUBLING)], 1.0)
    assert lease(frontier, 2) == ["much", "3"]


def test_of_hosts_the_one_with_the_best_url_comes_first(frontier):
    other = HostKey("b.example")
    for number in range(40):
        host = HostKey(f"h{number}.example")
        frontier.add([url(n, MUCH, host) for n in range(3)], 0.0)
    frontier.add([url("best", MUCH + 4 * DOUBLING, other)], 0.0)
    assert lease(frontier, 1) == ["best"]


def test_urls_without_cash_come_in_the_order_in_which_they_were_found(frontier):
    frontier.add([url(n, NO_CASH) for n in range(300)], 0.0)
    frontier.add([url(299, NO_CASH)], 0.0)
    assert lease(frontier, 300) == [str(n) for n in range(300)]


def test_nothing_is_lost_when_a_process_dies_after_an_arrangement(tmp_path):
    store = MemoryStore()
    limits = FrontierLimits(min_gap_s=0.0)
    first = open_frontier(tmp_path, limits, 0.0, store=store)
    found = [url(n, MUCH + n * 7919 % 997) for n in range(1000)]
    first.add(found, 0.0)
    first.add([url(n, MUCH) for n in range(0, 1000, 3)], 0.0)
    came = lease(first, 40)
    second = open_frontier(tmp_path, limits, 2.0, store=store)
    came += lease(second, 960, 10.0)
    assert sorted(came) == sorted(names(found))
    assert second.is_over()


@pytest.mark.parametrize(
    ("cash", "links", "want"),
    [
        pytest.param(SEED_CASH, 1, SEED_CASH, id="one link has all of it"),
        pytest.param(SEED_CASH, 2, SEED_CASH - DOUBLING, id="half"),
        pytest.param(SEED_CASH, 1 << 20, SEED_CASH - 20 * DOUBLING, id="a million links"),
        pytest.param(NO_CASH + 5, 64, NO_CASH, id="never less than none"),
        pytest.param(SEED_CASH, 0, SEED_CASH, id="a page without links"),
    ],
)
def test_the_cash_of_a_page_is_divided_among_its_links(cash, links, want):
    assert cash_of_links(cash, links) == want


def test_cash_that_overflows_is_the_most_there_is(frontier):
    """A thousand links with nearly the most cash each, to one URL of many."""
    frontier.add([url(n, MUCH) for n in range(100)], 0.0)
    for _ in range(1000):
        frontier.add([url(50, MOST_CASH - 1)], 0.0)
    assert lease(frontier, 3) == ["50", "0", "1"]
    (leased,) = frontier.lease(1.0)
    assert NO_CASH <= leased.candidate.cash <= MOST_CASH
