"""The small web: nine hosts on loopback, each of them trying a crawler in another way.

Rule: what is tried is laid out here, and told in story.py; nothing here knows a crawler.
The server is the tests' own (tests/servers): its books are what the story is told from.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final
from urllib.parse import parse_qs, urlsplit

from demo import pages
from demo.pages import page
from tests.servers.judge import ROBOTS, Rules
from tests.servers.loopback import Ask, Reply

SQUARE: Final = "127.0.2.1"
ARCHIVE: Final = "127.0.2.2"
CALENDAR: Final = "127.0.2.3"
OFFICE: Final = "127.0.2.4"
CLINIC: Final = "127.0.2.5"
CLUB: Final = "127.0.2.6"
LIBRARY: Final = "127.0.2.7"
WAREHOUSE: Final = "127.0.2.8"
VILLAGE: Final = "127.0.2.9"

HOSTS: Final = {
    SQUARE: "The town square",
    ARCHIVE: "The archive",
    CALENDAR: "The calendar",
    OFFICE: "The busy office",
    CLINIC: "The clinic",
    CLUB: "The club",
    LIBRARY: "The old library",
    WAREHOUSE: "The warehouse",
    VILLAGE: "The slow village",
}

CRAWL_DELAY_S: Final = 1.0
RULES: Final = {CLUB: Rules(disallow=("/members/",), crawl_delay_s=CRAWL_DELAY_S)}
"""The robots.txt files; the other hosts have none and answer 404."""

RETRY_AFTER_S: Final = 2
REFUSALS: Final = 2  # answers of "too busy" before the office and the clinic recover
SLOW_S: Final = 0.6
PDF_BYTES: Final = 5_000_000
CHUNK_PAUSE_S: Final = 0.002  # an endless page is slower than loopback, faster than patience

FAR_MONTH: Final = "/2090/01/"  # a date in a URL, out of the crawler's range until 2088

Route = Reply | Callable[[Ask], Reply]


class SmallWeb:
    """Answers for all hosts."""

    def __init__(self) -> None:
        quarters = (_square, _archive, _town, _club, _library, _warehouse, _village)
        self._routes = {place: route for quarter in quarters for place, route in quarter().items()}

    def __call__(self, ask: Ask) -> Reply:
        if ask.path == ROBOTS and ask.host in RULES:
            return Reply(RULES[ask.host].text().encode(), content_type="text/plain")
        path = urlsplit(ask.path).path
        route = self._routes.get((ask.host, path))
        if route is None:
            return Reply(page("Not found", f"There is no {path} here."), 404)
        return route(ask) if callable(route) else route


Routes = dict[tuple[str, str], Route]


def _square() -> Routes:
    def front(ask: Ask) -> Reply:
        houses = tuple((f"http://{host}:{ask.port}/", name) for host, name in HOSTS.items())
        errands = (
            ("/old-address", "News, at its old address"),
            ("/short", "A short link to the archive, by three redirects"),
            ("/ring/a", "A ring of redirects"),
            ("/missing.html", "A page that is not there"),
            ("/gone.html", "A page that is gone for good"),
            ("mailto:mayor@example.com", "Write to the mayor"),
            ("javascript:alert(1)", "Ring the bell"),
            ("https://example.com/", "The road out of town"),
        )
        return Reply(page(HOSTS[SQUARE], "Every street starts here.", links=houses[1:] + errands))

    def to_archive(ask: Ask) -> Reply:
        return _moved(f"http://{ARCHIVE}:{ask.port}/", 302)

    return {
        (SQUARE, "/"): front,
        (SQUARE, "/news.html"): Reply(page("News", "Nothing happened.", links=(("/", "Back"),))),
        (SQUARE, "/old-address"): _moved("/news.html", 301),
        (SQUARE, "/short"): _moved("/shorter", 307),
        (SQUARE, "/shorter"): to_archive,
        (SQUARE, "/ring/a"): _moved("/ring/b", 302),
        (SQUARE, "/ring/b"): _moved("/ring/a", 302),
        (SQUARE, "/gone.html"): Reply(page("Gone", "It was here once."), 410),
    }


def _archive() -> Routes:
    def front(ask: Ask) -> Reply:
        links = (
            ("/paper.html", "The paper"),
            ("/paper.html#page-2", "The paper, page 2"),
            ("/paper.html?utm_source=square&utm_medium=link", "The paper, as recommended"),
            (f"HTTP://{ARCHIVE}:{ask.port}/rooms/../paper.html", "The paper, the long way"),
            ("/print/paper.html", "The paper, to be printed"),
            ("/mirror/paper.html", "The paper, in the other building"),
            ("/list?from=a&to=k", "A list"),
            ("/list?to=k&from=a", "The same list, asked the other way round"),
        )
        return Reply(page(HOSTS[ARCHIVE], "Everything is kept, much of it twice.", links=links))

    return {
        (ARCHIVE, "/"): front,
        (ARCHIVE, "/paper.html"): Reply(pages.PAPER),
        (ARCHIVE, "/print/paper.html"): Reply(pages.PAPER),
        (ARCHIVE, "/mirror/paper.html"): Reply(pages.PAPER),
        (ARCHIVE, "/quoted.html"): Reply(page("On the weight of smaller things", "It is less.")),
        (ARCHIVE, "/list"): Reply(page("List, A to K", "Atlas, bell, candle, door.")),
    }


def _town() -> Routes:
    """The calendar, the office and the clinic."""
    now = (("/month?month=0", "Now"), (FAR_MONTH, "A month that nobody here will see"))
    return {
        (CALENDAR, "/"): Reply(page(HOSTS[CALENDAR], "It goes on for ever.", links=now)),
        (CALENDAR, "/month"): _month,
        (OFFICE, "/"): Reply(page(HOSTS[OFFICE], "One by one.", links=(("/desk.html", "Desk"),))),
        (OFFICE, "/desk.html"): _desk,
        (CLINIC, "/"): Reply(page(HOSTS[CLINIC], "Get well.", links=(("/ward.html", "Ward"),))),
        (CLINIC, "/ward.html"): _ward,
    }


def _club() -> Routes:
    doors = (
        ("/bar.html", "The bar"),
        ("/garden.html", "The garden"),
        ("/members/list.html", "The members"),
        ("/members/rooms/", "Their rooms"),
    )
    secret = (("/members/", "Members only"),)
    return {
        (CLUB, "/"): Reply(page(HOSTS[CLUB], "Visitors: one a second, please.", links=doors)),
        (CLUB, "/bar.html"): Reply(page("The bar", "Closed.", links=secret)),
        (CLUB, "/garden.html"): Reply(page("The garden", "Open.")),
        (CLUB, "/members/list.html"): Reply(page("The members", "You should not read this.")),
    }


def _village() -> Routes:
    houses = (("/inn.html", "The inn"), ("/mill.html", "The mill"))
    return {
        (VILLAGE, "/"): Reply(page(HOSTS[VILLAGE], "Easy now.", links=houses)),
        (VILLAGE, "/inn.html"): Reply(page("The inn", "Dinner takes a while."), wait_s=SLOW_S),
        (VILLAGE, "/mill.html"): Reply(page("The mill", "It grinds.")),
    }


def _library() -> Routes:
    links = (
        ("/broken.html", "A page in pieces"),
        ("/umlauts.html", "A page that names the wrong alphabet"),
        ("/cyrillic.html", "A letter in Russian"),
        ("/alphabet.html", "A page in an alphabet nobody knows"),
        ("/noise.html", "A page of noise"),
        ("/empty.html", "An empty page"),
    )
    latin, cyrillic = pages.UMLAUTS.encode("latin-1"), pages.CYRILLIC.encode("windows-1251")
    mess = page("Under the mess", "Well found.")
    unknown = page("Alphabet", "Letters, supposedly.")
    return {
        (LIBRARY, "/"): Reply(page(HOSTS[LIBRARY], "Mind the dust.", links=links)),
        (LIBRARY, "/broken.html"): Reply(pages.BROKEN),
        (LIBRARY, "/under-the-mess.html"): Reply(mess),
        (LIBRARY, "/umlauts.html"): Reply(latin, content_type="text/html; charset=utf-8"),
        (LIBRARY, "/cyrillic.html"): Reply(cyrillic, content_type="text/html"),
        (LIBRARY, "/alphabet.html"): Reply(unknown, content_type=b"text/html; charset=x-\xff\xfe"),
        (LIBRARY, "/noise.html"): Reply(pages.catalogue(4_000), content_type="text/html"),
        (LIBRARY, "/empty.html"): Reply(b""),
    }


def _warehouse() -> Routes:
    links = (
        ("/endless.html", "The inventory"),
        ("/catalogue.pdf", "The catalogue"),
        ("/lift.html", "The lift"),
    )
    catalogue = Reply(pages.catalogue(PDF_BYTES), content_type="application/pdf")
    return {
        (WAREHOUSE, "/"): Reply(page(HOSTS[WAREHOUSE], "Big things.", links=links)),
        (WAREHOUSE, "/endless.html"): Reply(_endless),
        (WAREHOUSE, "/first-shelf.html"): Reply(page("The first shelf", "Crates.")),
        (WAREHOUSE, "/catalogue.pdf"): catalogue,
        (WAREHOUSE, "/lift.html"): Reply(page("The lift", "Out of order, for good."), 500),
    }


def _moved(to: str, status: int) -> Reply:
    return Reply(status=status, headers=(("Location", to),))


def _month(ask: Ask) -> Reply:
    number = parse_qs(urlsplit(ask.path).query).get("month", ["0"])[0]
    return Reply(pages.month(int(number)))


def _desk(ask: Ask) -> Reply:
    if ask.turn < REFUSALS:
        wait = (("Retry-After", str(RETRY_AFTER_S)),)
        return Reply(page("Later, please", "There is a queue."), 429, headers=wait)
    return Reply(page("The desk", "How can we help?"))


def _ward(ask: Ask) -> Reply:
    if ask.turn < REFUSALS:
        return Reply(page("Overfull", "No beds."), 503)
    return Reply(page("The ward", "Quiet now."))


async def _endless() -> AsyncIterator[bytes]:
    yield pages.ENDLESS_START
    number = 0
    while True:
        yield pages.shelf(number)
        number += 1
        await asyncio.sleep(CHUNK_PAUSE_S)
