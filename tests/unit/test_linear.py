"""Reading takes time in proportion to the size, for any input: all searches of the package at once.

Rule: of what may be repeated without end the slowest is tried at length. Pages, heads of pages,
text and Link headers have tables of their own (test_html_limits, test_media_type, test_plain,
test_links).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from crawler.content.parsers.dates import epoch
from crawler.content.parsers.sitemap import loose_entries
from crawler.content.parsers.xml import PIECE_BYTES, XmlParser
from crawler.model.page import Parsed, Source
from crawler.page.encodings import read_text
from crawler.page.links import robots_header
from crawler.page.script_signs import may_be_shell, signs_of
from crawler.page.soft404 import (
    kind_of,
    looks_like_error,
    words_of,
)
from crawler.policy.patterns import pattern_of
from crawler.policy.politeness import retry_after_s
from crawler.policy.robots import canonical_pattern
from crawler.policy.traps import CalendarLimits, TrapLimits
from tests.harness.measuring import cpu_seconds

FEW, MANY = 4_000, 32_000  # letters
CALENDAR = CalendarLimits(from_year=2020, until=(2026, 12, 31))
NO_LENGTH = TrapLimits(max_url_chars=1_000_000, max_path_segments=100, max_parameters=1_000_000)
URL = "http://a.example/"


def as_xml(text: str) -> None:
    XmlParser().parse(Source("", "text/xml", text.encode()))


def as_broken_sitemap(text: str) -> None:
    body = text.encode()
    pieces = (body[at : at + PIECE_BYTES] for at in range(0, len(body), PIECE_BYTES))
    assert all(fields is not None for _, fields in loose_entries(pieces))


READERS: dict[str, Callable[[str], object]] = {
    "XML": as_xml,
    "a broken sitemap": as_broken_sitemap,
    "a date": epoch,
    "an encoding in a page": lambda text: read_text(text.encode("latin-1", "replace"), ""),
    "an encoding in a header": lambda text: read_text(b"\xe4", text),
    "words for crawlers": lambda text: robots_header([(b"X-Robots-Tag", text.encode())]),
    "a time to wait": lambda text: retry_after_s(text.encode(), 0.0, 1.0),
    "a pattern of robots.txt": lambda text: canonical_pattern(text.encode()),
    "the pattern of a URL": lambda text: pattern_of(URL + text),
    "a day in a path": lambda text: CALENDAR.refusal("/" + text + "2020", ""),
    "a day in a query": lambda text: CALENDAR.refusal("/", text + "2020"),
    "a trap": lambda text: NO_LENGTH.refusal(URL + text, "/" + text),
    "an error page": lambda text: looks_like_error(text, text),
    "the kind of a URL": lambda text: kind_of(URL + text),
    "signs of scripts": lambda text: signs_of(text.encode(), Parsed()),
    "shells": lambda text: may_be_shell(text.encode()),
    "words of a page": lambda text: words_of(URL + text, text, text),
}

LETTERS = (*"a1A<>[]()\"'=;,/ .:%#&?!_-", "\n", "\xe9")
WORDS = (
    *("<script", "<div id=app>", "<noscript>"),
    *("<a", "</", "<!--", "-->", "<x:", "<x:loc>", "<loc >", "</url", "<![CDATA[", "<meta "),
    *("charset=", "2020", "2020-", "/2020/", "-01", "/01", "date", "&date=", "&day[", "%5B", "%5"),
    *("not ", "page ", "404", "jsessionid", "sess=", "11:11:11", "a1", "1a", "#a", "aB1", "a,"),
)
STARTS = ("", "<", "/2020", "&date=", "charset=", "<meta charset")
UNITS = [*LETTERS, *WORDS, *map("".join, product(LETTERS, LETTERS))]


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_time_is_linear_in_the_body(read: Callable[[str], object]) -> None:
    """Eight times the text takes about eight times as long, and not sixty-four."""

    def seconds(case: tuple[str, str], chars: int, times: int) -> float:
        start, unit = case
        text = start + unit * (chars // len(unit)) + "\0"
        return cpu_seconds(lambda: read(text), times)

    cases = [("", unit) for unit in UNITS] + list(product(STARTS, (*LETTERS, *WORDS)))
    slowest = sorted(cases, key=lambda case: seconds(case, FEW, 1))[-6:]
    for case in slowest:
        assert seconds(case, MANY, 2) < 24 * seconds(case, FEW, 3) + 0.002, case
