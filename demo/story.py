"""What happened and why: each thing the small web tried, and what the crawler made of it.

Rule: told from outside. The facts are the web's own books; the crawler's summary only adds
what no server can see. A chapter says whether it went well, so the demo is also a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from demo.pages import MONTHS_AHEAD
from demo.summary import Summary
from demo.web import (
    ARCHIVE,
    CALENDAR,
    CLINIC,
    CLUB,
    CRAWL_DELAY_S,
    FAR_MONTH,
    LIBRARY,
    OFFICE,
    PDF_BYTES,
    RETRY_AFTER_S,
    SLOW_S,
    SQUARE,
    VILLAGE,
    WAREHOUSE,
)
from tests.servers.judge import TOLERANCE_S
from tests.servers.loopback import Visit

BARREN_PAGES: Final = 10
"""As the demo sets it."""
DATA_DIR: Final = "crawl-data-demo"  # made anew by each run, left to be looked at
IN_DEMO: Final = f"-s CRAWLER_DATA_DIR={DATA_DIR}"
HTML_CAP_MB: Final = 2.0  # of a page, its headers included
MOST_HOPS: Final = 11  # the first request and ten redirects


@dataclass(frozen=True, slots=True)
class Chapter:
    """One trial."""

    laid: str  # what the web did
    told: str  # what the crawler did
    well: bool


@dataclass(frozen=True, slots=True)
class Books:
    """The web's books, with the questions the chapters ask of them."""

    visits: tuple[Visit, ...]  # in order of arrival

    def of(self, host: str, prefix: str = "/") -> list[Visit]:
        return [one for one in self.visits if one.host == host and one.path.startswith(prefix)]

    def statuses(self, host: str, prefix: str) -> list[int]:
        return [visit.status for visit in self.of(host, prefix)]

    def gaps_s(self, host: str, prefix: str = "/") -> list[float]:
        """From each end of an answer to the next arrival."""
        return [after.arrival_s - one.end_s for one, after in pairwise(self.of(host, prefix))]

    def silence_after_s(self, host: str, path: str) -> float:
        """How long the host was left alone after its first answer for *path*."""
        rest = self.of(host)
        first = next((n for n, one in enumerate(rest) if one.path == path), len(rest))
        return rest[first + 1].arrival_s - rest[first].end_s if first + 1 < len(rest) else 0.0


Teller = Callable[[Books, Summary], Chapter]


def story(visits: list[Visit], summary: Summary) -> Iterator[Chapter]:
    books = Books(tuple(sorted(visits, key=lambda visit: visit.arrival_s)))
    for teller in TELLERS:
        yield teller(books, summary)


def _redirects(books: Books, _: Summary) -> Chapter:
    moved = books.statuses(SQUARE, "/old-address")
    news = books.statuses(SQUARE, "/news.html")
    hops = len(books.of(SQUARE, "/short"))
    return Chapter(
        "redirects: a moved page, and a short link to another host by three addresses",
        f"followed: the old address was asked {_times(moved)} and the new one {_times(news)}; the"
        f" {hops} hops of the short link each waited for their own host's turn",
        moved == [301] and news == [200] and hops == 2,
    )


def _ring(books: Books, _: Summary) -> Chapter:
    hops = len(books.of(SQUARE, "/ring/"))
    return Chapter(
        "a ring of redirects: /ring/a leads to /ring/b leads to /ring/a",
        f"given up after {hops} requests; a chain ends at ten redirects",
        2 <= hops <= MOST_HOPS,
    )


def _missing(books: Books, _: Summary) -> Chapter:
    missing, gone = books.statuses(SQUARE, "/missing.html"), books.statuses(SQUARE, "/gone.html")
    return Chapter(
        "a page that is not there (404) and one that is gone (410)",
        f"asked {_times(missing)} and {_times(gone)}: an answer like any other, which neither"
        " slows the host down nor counts against it",
        missing == [404] and gone == [410],
    )


def _duplicates(books: Books, summary: Summary) -> Chapter:
    spelt, lists = books.of(ARCHIVE, "/paper.html"), books.of(ARCHIVE, "/list")
    copies = [*books.of(ARCHIVE, "/print/"), *books.of(ARCHIVE, "/mirror/")]
    found = "" if summary.duplicates is None else f" ({summary.duplicates} in all of the web)"
    return Chapter(
        "one paper under six addresses: four spellings of one URL, and two copies",
        f"the spellings were asked {_times(spelt)}; the {len(copies)} copies were fetched, known by"
        f" their bodies and stored as references{found}",
        len(spelt) == 1 and len(lists) == 1 and len(copies) == 2,
    )


def _calendar(books: Books, summary: Summary) -> Chapter:
    months, far = books.of(CALENDAR, "/month"), books.of(CALENDAR, FAR_MONTH)
    once = len({month.path for month in months}) == len(months)
    left = "" if summary.left is None else f" ({summary.left} in this crawl)"
    return Chapter(
        "a calendar without an end: every month leads to the one before and the one after",
        f"{len(months)} months were read, none twice, until {BARREN_PAGES} in a row had nothing"
        f" new; then all others of their kind were left{left}. {FAR_MONTH} was {_times(far)} asked:"
        " so far ahead there are only calendars",
        BARREN_PAGES + 2 * MONTHS_AHEAD < len(months) < 40 and once and not far,
    )


def _desk(books: Books, _: Summary) -> Chapter:
    asked, waits = books.statuses(OFFICE, "/desk.html"), books.gaps_s(OFFICE, "/desk.html")
    return Chapter(
        f"429 Too Many Requests, with Retry-After: {RETRY_AFTER_S}",
        f"the desk answered {_row(asked)}; between, the host was left alone for {_seconds(waits)}",
        asked == [429, 429, 200] and min(waits) >= RETRY_AFTER_S - TOLERANCE_S,
    )


def _ward(books: Books, _: Summary) -> Chapter:
    asked, waits = books.statuses(CLINIC, "/ward.html"), books.gaps_s(CLINIC, "/ward.html")
    return Chapter(
        "503 Service Unavailable for a while, without a word on how long",
        f"the ward answered {_row(asked)}; the whole host was given {_seconds(waits)} of rest",
        asked == [503, 503, 200],
    )


def _lift(books: Books, summary: Summary) -> Chapter:
    asked, waits = books.statuses(WAREHOUSE, "/lift.html"), books.gaps_s(WAREHOUSE, "/lift.html")
    listed = "" if summary.dead_letters is None else f" ({summary.dead_letters} in this crawl)"
    return Chapter(
        "500 Internal Server Error, for good",
        f"tried {_times(asked)}, {_seconds(waits)} apart, then kept as a dead letter{listed}:"
        f" `gossamer frontier dead {IN_DEMO}` lists them,"
        f" `gossamer frontier retry --all {IN_DEMO}` puts them back",
        asked == [500] * 4,
    )


def _club(books: Books, _: Summary) -> Chapter:
    visits, inside = books.of(CLUB), books.of(CLUB, "/members")
    first = visits[0].path if visits else "nothing"
    shortest_s = min(books.gaps_s(CLUB), default=0.0)
    return Chapter(
        f"robots.txt: Disallow: /members/, Crawl-delay: {CRAWL_DELAY_S:g}",
        f"{first} was read first; of {len(visits)} requests {len(inside)} went to /members/, and no"
        f" two were less than {shortest_s:.2f} s apart",
        first == "/robots.txt"
        and not inside
        and shortest_s >= CRAWL_DELAY_S - TOLERANCE_S
        and len(visits) >= 4,
    )


def _library(books: Books, _: Summary) -> Chapter:
    read = [visit for visit in books.of(LIBRARY) if visit.status == 200]
    found = bool(books.of(LIBRARY, "/under-the-mess.html"))
    return Chapter(
        "broken HTML, wrong and unknown charsets, noise sent as HTML, an empty page",
        f"{len(read)} pages read; the one whole link in the broken page was"
        f" {'found' if found else 'lost'}: pages are parsed as browsers do",
        found and len(read) == 8,
    )


def _endless(books: Books, _: Summary) -> Chapter:
    asked = books.of(WAREHOUSE, "/endless.html")
    found = bool(books.of(WAREHOUSE, "/first-shelf.html"))
    return Chapter(
        "a page that never ends",
        f"cut off at {HTML_CAP_MB:g} MB, kept and marked as truncated; the link in what was read"
        f" was {'followed' if found else 'lost'}",
        len(asked) == 1 and asked[0].cut and found,
    )


def _catalogue(books: Books, _: Summary) -> Chapter:
    asked = books.of(WAREHOUSE, "/catalogue.pdf")
    whole = [visit for visit in asked if not visit.cut]
    return Chapter(
        f"a PDF of {PDF_BYTES / 1e6:g} MB",
        f"fetched {_times(asked)}, {'whole' if whole else 'cut'}: the cap depends on the type,"
        " and is 64 MB for a PDF",
        len(asked) == len(whole) == 1,
    )


def _inn(books: Books, _: Summary) -> Chapter:
    rest_s = books.silence_after_s(VILLAGE, "/inn.html")
    return Chapter(
        f"a page that takes {SLOW_S:g} s to answer",
        f"the host was then left alone for {rest_s:.1f} s, ten times as long as it had worked",
        rest_s >= 10 * SLOW_S - TOLERANCE_S,
    )


TELLERS: Final[tuple[Teller, ...]] = (
    _redirects,
    _ring,
    _missing,
    _duplicates,
    _calendar,
    _desk,
    _ward,
    _lift,
    _club,
    _library,
    _endless,
    _catalogue,
    _inn,
)


def _times(asked: list[int] | list[Visit]) -> str:
    words = {0: "never", 1: "once", 2: "twice"}
    return words.get(len(asked), f"{len(asked)} times")


def _row(statuses: list[int]) -> str:
    return ", ".join(map(str, statuses)) or "nothing"


def _seconds(gaps_s: list[float]) -> str:
    return " and ".join(f"{gap_s:.1f} s" for gap_s in gaps_s) or "nothing"
