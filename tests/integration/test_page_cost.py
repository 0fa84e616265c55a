"""What a page costs must not creep up: calls are counted, which are as many on every machine."""

from __future__ import annotations

from bench.profile import calls

FEW, MANY = 600, 2_000
"""Pages of 200 hosts, each of which has been asked for its robots.txt by the first few: with 300,
some had not, and a page seemed to cost up to 200 calls more. What is still under way at the end of
a crawl varies by some 30,000 calls, which are 90 a page of 400, and 25 of 1,400."""
MOST_CALLS = 2_900
"""Of functions, in the event loop's thread, for a page with 40 links: 2,260 when this was written,
2,365 before its links came in the order of their importance (90 more) and counted for the budgets
of their domains (50 more), 2,505 before its row told language, quality, what server and page say,
and the texts of its links (280 more: CRAWLER_COLUMN_GROUPS), 2,700 before it was read what its
publisher asks (60 more). A function that is called for each
link adds 40. Raise it only with what the page gets for it."""


def test_a_page_makes_so_many_calls_and_no_more() -> None:
    few, many = calls(FEW), calls(MANY)
    a_page = (many.total() - few.total()) / (MANY - FEW)
    most = ", ".join(
        f"{name} {count / (MANY - FEW):.0f}" for (_, name), count in (many - few).most_common(12)
    )
    assert MOST_CALLS / 2 < a_page < MOST_CALLS, most
