"""Which files are wanted for the preferences of a page, and what is kept of them, within bounds."""

from __future__ import annotations

from typing import Final

import pytest

from crawler.config.settings import RobotsSettings
from crawler.content.preference_sources import PreferenceSources, licence_in
from crawler.model.choices import Preference, PreferenceFiles, Use
from crawler.model.page import NO_PREFERENCES, Exchange
from crawler.policy.preferences import combined
from crawler.policy.robots_cache import RobotsCache, RobotsFetchResult, RobotsRecord

HOST: Final = "http://site.example"
PAGE: Final = f"{HOST}/a/page"
LICENCE: Final = "https://licences.example/one.xml"
Headers = tuple[tuple[bytes, bytes], ...]
HEADER: Final = ((b"Link", f'<{LICENCE}>; rel="license"; type="application/rsl+xml"'.encode()),)
IN_PAGE: Final = (
    b'<head><link rel=license type="application/rsl+xml" href="../own.xml?a=1&amp;b=2">'
)
TDMREP: Final = f"{HOST}/.well-known/tdmrep.json"
DISALLOWS: Final = b"""<rsl xmlns="https://rslstandard.org/rsl"><content url="/"><license>
<prohibits type="usage">ai-train</prohibits></license></content></rsl>"""
DAY_S: Final = 86_400.0


class RobotsTxts:
    """A store of the robots.txt records of a test."""

    def __init__(self) -> None:
        self.records: dict[str, RobotsRecord] = {}

    def get(self, authority: str) -> RobotsRecord | None:
        return self.records.get(authority)

    def put(self, record: RobotsRecord) -> None:
        self.records[record.authority] = record


def sources(
    files: PreferenceFiles, robots_txt: bytes = b"", required: tuple[Use, ...] = ()
) -> PreferenceSources:
    cache = RobotsCache(RobotsTxts(), "Gossamer", RobotsSettings())
    if robots_txt:
        cache.store_result(HOST, RobotsFetchResult(f"{HOST}/robots.txt", 200, body=robots_txt), 0.0)
    return PreferenceSources(cache, "Gossamer", files, required)


@pytest.mark.parametrize(
    ("files", "headers", "body", "robots_txt", "wanted"),
    [
        pytest.param("named", (), b"<p>x", b"", [], id="nothing is named"),
        pytest.param("named", HEADER, b"", b"", [LICENCE], id="a header names one"),
        pytest.param(
            "named", (), IN_PAGE, b"", [f"{HOST}/own.xml?a=1&b=2"], id="the page names one"
        ),
        pytest.param(
            "named", (), b"", b"License: /l.xml", [f"{HOST}/l.xml"], id="robots.txt names one"
        ),
        pytest.param(
            "named",
            HEADER,
            b"",
            f"License: {LICENCE}\n".encode() * 3,
            [LICENCE],
            id="one named often is fetched once",
        ),
        pytest.param("all", (), b"", b"", [TDMREP], id="all: the tdmrep.json of its origin too"),
        pytest.param("none", HEADER, IN_PAGE, b"License: /l.xml", [], id="none: no file"),
        pytest.param(
            "named",
            (),
            b'<p>type="application/rsl+xml" href=/x <a href=/y>',
            b"",
            [],
            id="words in a text name none",
        ),
        pytest.param(
            "named",
            (),
            b"<!-- application/rsl+xml --><link rel=alternate href=/f type=application/rsl+xml>"
            + IN_PAGE,
            b"",
            [f"{HOST}/own.xml?a=1&b=2"],
            id="the first tag that names one counts",
        ),
        pytest.param("named", (), IN_PAGE[:-3], b"", [], id="a tag that is cut off names none"),
        pytest.param(
            "named",
            (),
            b"",
            b"".join(b"License: /%d.xml\n" % number for number in range(9)),
            [f"{HOST}/{number}.xml" for number in range(9)],
            id="each of many",
        ),
        pytest.param(
            "named", (), b"", b"License: javascript:alert(1)", [], id="only http and https"
        ),
    ],
)
def test_which_files_are_wanted(files, headers, body, robots_txt, wanted):
    known = sources(PreferenceFiles(files), robots_txt)
    assert unknown(known, 0.0, headers, body) == wanted


def unknown(known: PreferenceSources, now: float, headers: Headers = HEADER, body: bytes = b""):
    named = known.named(PAGE, headers, licence_in(body, PAGE))
    return [each for each in named if not known.is_known(each, now)]


def says(known: PreferenceSources) -> Preference:
    return combined(known.statements(PAGE, HEADER)).train_ai


def test_a_licence_counts_for_a_day_and_is_wanted_again_then():
    known = sources(PreferenceFiles.NAMED)
    assert known.note(LICENCE, 200, DISALLOWS, 0.0) == ""
    assert says(known) is Preference.DISALLOW
    assert unknown(known, DAY_S - 1) == []
    assert unknown(known, DAY_S) == [LICENCE]
    assert says(known) is Preference.DISALLOW  # until it is there anew


@pytest.mark.parametrize(
    ("status", "lasts_s"), [(404, DAY_S), (410, DAY_S), (503, 600.0), (429, 600.0)]
)
def test_a_file_that_is_not_there_says_nothing_and_is_not_asked_for_at_each_page(status, lasts_s):
    known = sources(PreferenceFiles.NAMED)
    assert known.note(LICENCE, status, DISALLOWS, 0.0) == ""
    assert says(known) is Preference.UNKNOWN
    assert unknown(known, lasts_s - 1) == []
    assert unknown(known, lasts_s) == [LICENCE]


def test_a_licence_counts_on_while_its_host_fails():
    known = sources(PreferenceFiles.NAMED)
    known.note(LICENCE, 200, DISALLOWS, 0.0)
    known.note(LICENCE, 503, b"", DAY_S)
    assert says(known) is Preference.DISALLOW
    assert unknown(known, DAY_S + 599) == []
    known.note(LICENCE, 404, b"", DAY_S + 600)
    assert says(known) is Preference.UNKNOWN


@pytest.mark.parametrize(
    ("status", "body", "lacks"),
    [
        pytest.param(None, b"", True, id="not asked for"),
        pytest.param(503, b"", True, id="it fails now"),
        pytest.param(404, b"", False, id="it is not there"),
        pytest.param(200, b"<p>", False, id="it cannot be read"),
        pytest.param(200, DISALLOWS, False, id="it is there"),
    ],
)
def test_what_a_page_lacks_to_be_stored_for_a_use(status, body, lacks):
    for required in ((), (Use.TRAIN_AI,)):
        known = sources(PreferenceFiles.ALL, required=required)
        if status is not None:
            known.note(LICENCE, status, body, 0.0)
        named = known.named(PAGE, HEADER)
        assert TDMREP in named  # which may be missing: nothing says that there is one
        assert known.lacks(named) is (lacks and bool(required))
        refused = known.refused(NO_PREFERENCES, named)
        assert refused is (Use.TRAIN_AI if lacks and required else None)


def test_a_licence_is_relative_to_the_base_of_its_page():
    body = b"<head><base href='//other.example/x/'>" + IN_PAGE
    assert licence_in(body, PAGE) == "http://other.example/own.xml?a=1&b=2"


def test_what_cannot_be_read_says_nothing_and_why():
    known = sources(PreferenceFiles.NAMED)
    assert "no XML" in known.note(LICENCE, 200, b"<html>not <found>", 0.0)
    assert says(known) is Preference.UNKNOWN
    assert unknown(known, 1.0) == []


def test_memory_is_bounded_whatever_hosts_send():
    known = sources(PreferenceFiles.ALL)
    for number in range(200):
        known.note(f"http://{number}.example/.well-known/tdmrep.json", 200, bytes(900_000), 0.0)
    assert known.size_bytes <= 32 << 20
    assert known.is_known("http://199.example/.well-known/tdmrep.json", 1.0)
    assert not known.is_known("http://0.example/.well-known/tdmrep.json", 1.0)


def test_what_is_no_page_is_stored_unless_it_disallows_a_use_that_is_required():
    robots_txt = b"User-agent: *\nContent-Usage: /no/ train-ai=n"
    said = b"Content-Usage: search=n\r\n"
    each = [
        Exchange(
            url=f"{HOST}{path}",
            at=0.0,
            duration_s=0.0,
            request_head=b"",
            head=b"HTTP/1.1 301 Moved\r\n" + head,
            body=b"",
            ip="",
        )
        for path, head in (("/no/1", b""), ("/yes", b""), ("/header", said))
    ]
    assert sources(PreferenceFiles.ALL, robots_txt).storable(each) == each
    known = sources(PreferenceFiles.ALL, robots_txt, (Use.TRAIN_AI,))
    assert known.storable(each) == each[1:]


@pytest.mark.parametrize("url", [HOST, f"{HOST}?a=/b", f"{HOST.upper()}#c"])
def test_a_url_that_a_spider_has_written_without_a_path(url):
    known = sources(PreferenceFiles.ALL, b"User-agent: *\nContent-Usage: train-ai=n")
    assert TDMREP in known.named(url, ())
    assert combined(known.statements(url, ())).train_ai is Preference.DISALLOW
