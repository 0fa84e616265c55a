"""What publishers say of the use of a page: a table of cases, by source, and what reading costs."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.model.choices import Preference, Use
from crawler.model.page import NO_PREFERENCES, Parsed, Preferences
from crawler.policy.preferences import (
    Licence,
    LicenceTerms,
    LicensedContent,
    Said,
    Statement,
    combined,
    content_signal,
    content_usage,
    licence_links,
    licence_says,
    licensed,
    of_answer,
    of_page,
    price_asked,
    read_tdmrep,
    robots_directives,
    robots_usages,
    tdm_reservation,
    tdmrep,
)
from crawler.policy.robots import RobotsRules
from tests.harness.measuring import cpu_seconds

TRAIN_Y: Final = (Use.TRAIN_AI, Preference.ALLOW)
TRAIN_N: Final = (Use.TRAIN_AI, Preference.DISALLOW)
SEARCH_Y: Final = (Use.SEARCH, Preference.ALLOW)
SEARCH_N: Final = (Use.SEARCH, Preference.DISALLOW)
ALLOW, DISALLOW, UNKNOWN = Preference.ALLOW, Preference.DISALLOW, Preference.UNKNOWN
URL: Final = "https://example.com/a/b?c"
AGENT: Final = "FooBot"


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param("train-ai=n", (TRAIN_N,), id="n disallows"),
        pytest.param("search=y, train-ai=n", (TRAIN_N, SEARCH_Y), id="two uses"),
        pytest.param(
            'train-ai=y, train-ai, search=n, search="n"',
            (),
            id="the last duplicate counts: a boolean and a string are no y or n",
        ),
        pytest.param("Train-ai=n", (), id="a key in capitals is no Dictionary"),
        pytest.param(
            "search=y, Train-ai=n", (), id="one bad key, and the whole value says nothing"
        ),
        pytest.param("train-ai;allow=n, train-ai=y", (TRAIN_Y,), id="parameters are ignored"),
        pytest.param("train-ai=n;reason=x", (TRAIN_N,), id="parameters behind a value, too"),
        pytest.param("train-ai=Y", (), id="values are case-sensitive"),
        pytest.param("train-ai=yes", (), id="yes is no value of this vocabulary"),
        pytest.param("train-ai=?0", (), id="a boolean says nothing"),
        pytest.param("train-ai=(n)", (), id="a list says nothing"),
        pytest.param("bots=n, train-ai=n, x=:AA==:", (TRAIN_N,), id="unknown labels are ignored"),
        pytest.param("train-ai=n,", (), id="a comma at the end is a parse failure"),
        pytest.param("train-ai=n search=y", (), id="a forgotten comma is a parse failure"),
        pytest.param(" train-ai=n\t,\tsearch=y ", (TRAIN_N, SEARCH_Y), id="white space"),
        pytest.param("", (), id="an empty value"),
        pytest.param("train-ai=n\u00fc", (), id="letters beyond ASCII"),
        pytest.param("train-ai=n, x=" + "a" * 4_000, (), id="too long to be read"),
    ],
)
def test_content_usage(value: str, want: Said) -> None:
    assert content_usage(value) == want
    assert content_usage(value.encode()) == want


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param("search=yes, ai-input=no, ai-train=no", (TRAIN_N, SEARCH_Y), id="as written"),
        pytest.param("search=y,ai-train=n", (TRAIN_N, SEARCH_Y), id="y and n, too"),
        pytest.param("ai-input=no", (), id="ai-input is of neither use"),
        pytest.param("AI-Train = NO", (TRAIN_N,), id="in capitals, with white space"),
        pytest.param("ai-train=no; search=yes", (TRAIN_N, SEARCH_Y), id="semicolons for commas"),
        pytest.param("ai-train=yes, ai-train=no", (TRAIN_N,), id="the most restrictive counts"),
        pytest.param("ai-train=maybe, search=nope", (), id="other words say nothing"),
        pytest.param("re-search=no, x-ai-train=no", (), id="other names"),
    ],
)
def test_content_signal(value: str, want: Said) -> None:
    assert content_signal(value) == want
    assert content_signal(value.encode()) == want


USAGE: Final = "robots.txt content-usage"
SIGNAL: Final = "robots.txt content-signal"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("User-agent: *\nDisallow: /x", [], id="a file that says nothing of uses"),
        pytest.param(
            "User-agent: *\nContent-Usage: train-ai=n # for now",
            [(*TRAIN_N, USAGE)],
            id="for all paths; # ends it",
        ),
        pytest.param(
            "User-agent: *\nContent-Usage: train-ai=n\nContent-Usage: /a/ train-ai=y",
            [(*TRAIN_Y, USAGE)],
            id="the longest path wins",
        ),
        pytest.param(
            "User-agent: *\nContent-Usage: train-ai=n, search=n\nContent-Usage: /a/ train-ai=y",
            [(*TRAIN_Y, USAGE)],
            id="and says all that is said of the page",
        ),
        pytest.param(
            "User-agent: *\nContent-Usage: /a/ train-ai=y, search=y\nContent-Usage: /a/ search=n",
            [(*TRAIN_Y, USAGE), (*SEARCH_N, USAGE)],
            id="equal paths combine, the most restrictive wins",
        ),
        pytest.param(
            "User-agent: *\nContent-Usage: /b train-ai=n\nContent-Usage: /*c$ search=n",
            [(*SEARCH_N, USAGE)],
            id="patterns as those of Disallow",
        ),
        pytest.param(
            "User-agent: *\nDisallow: /a\nContent-Usage: train-ai=y",
            [],
            id="only for paths that may be crawled",
        ),
        pytest.param(
            "User-agent: *\nContent-Usage: train-ai=n\nUser-agent: FooBot\nDisallow: /x",
            [],
            id="a group of our own is all that counts",
        ),
        pytest.param(
            "User-agent: BadBot\nContent-Usage: train-ai=n\nUser-agent: FooBot\nDisallow: /x",
            [],
            id="it is for the agents above it, though it ends no run of agents for other rules",
        ),
        pytest.param(
            "User-agent: BadBot\nUser-agent: foobot\nContent-Usage: train-ai=n",
            [(*TRAIN_N, USAGE)],
            id="agents in a row share it",
        ),
        pytest.param("Content-Usage: train-ai=n", [], id="before any agent it is of no group"),
        pytest.param(
            "User-agent: *\nContent-Signal: search=yes,ai-train=no\nAllow: /",
            [(*TRAIN_N, SIGNAL), (*SEARCH_Y, SIGNAL)],
            id="Content-Signal",
        ),
        pytest.param(
            "User-agent: *\ncontent-usage: train-ai=y\nCONTENT-SIGNAL: ai-train=no",
            [(*TRAIN_Y, USAGE), (*TRAIN_N, SIGNAL)],
            id="both, each a source",
        ),
        pytest.param(
            "User-agent: *\nContent-Usage: /a Train-ai=n\nContent-Usage: train-ai=n",
            [],
            id="the longest match counts even if it cannot be read",
        ),
    ],
)
def test_robots_txt(text: str, want: list[Statement]) -> None:
    rules = RobotsRules.parse(text.encode(), AGENT)
    assert list(robots_usages(rules, URL)) == want


def test_licences_of_a_robots_txt_are_of_the_file_and_counted_in_its_size() -> None:
    text = b"License: https://x/l.xml\nUser-agent: *\nDisallow: /x\nLicense: /m.xml\nLicense:\n"
    rules = RobotsRules.parse(text + b"Content-Usage: train-ai=n\n", AGENT)
    assert rules.licences == ("https://x/l.xml", "/m.xml")
    assert (
        rules.size_bytes() > RobotsRules.parse(b"User-agent: *\nDisallow: /x", AGENT).size_bytes()
    )
    many = b"License: /a\n" * 99 + b"User-agent: *\n" + b"Content-Usage: search=n\n" * 9_999
    bounded = RobotsRules.parse(many, AGENT)
    assert (len(bounded.licences), len(bounded.usages)) == (10, 1_000)


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param("noai", (TRAIN_N,), id="noai disallows training"),
        pytest.param("noindex, NOAI", (TRAIN_N,), id="among others, in capitals"),
        pytest.param("noimageai", (), id="noimageai says nothing of text"),
        pytest.param("noarchive, nocache", (), id="older words, which Bing reads as of its models"),
        pytest.param("noindex, none", (), id="noindex is another matter"),
        pytest.param("otherbot: noai", (), id="for another crawler"),
        pytest.param("otherbot: noindex, noai", (), id="a name is for all words behind it"),
        pytest.param("FooBot: noai", (TRAIN_N,), id="for us by name"),
        pytest.param("otherbot: nofollow, foobot/2: noai", (TRAIN_N,), id="for several crawlers"),
        pytest.param("max-snippet: 20, noai", (TRAIN_N,), id="a word with a value is no name"),
    ],
)
def test_words_for_crawlers(value: str, want: Said) -> None:
    assert robots_directives([value], AGENT) == want


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param("1", DISALLOW, id="1 reserves"),
        pytest.param(" 0 ", ALLOW, id="0 does not"),
        pytest.param("2", UNKNOWN, id="other numbers are errors"),
        pytest.param("yes", UNKNOWN, id="words, too"),
        pytest.param("", UNKNOWN, id="nothing"),
    ],
)
def test_tdm_reservation(value: str, want: Preference) -> None:
    assert tdm_reservation(value) is tdm_reservation(value.encode()) is want


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param('[{"location": "/", "tdm-reservation": 1}]', DISALLOW, id="the whole host"),
        pytest.param('[{"location": "/b", "tdm-reservation": 1}]', UNKNOWN, id="another path"),
        pytest.param(
            '[{"location": "/a/*?c$", "tdm-reservation": 0}, {"location": "/",'
            ' "tdm-reservation": 1}]',
            ALLOW,
            id="the first match counts",
        ),
        pytest.param(
            '\ufeff[1, {"location": 3}, {"location": "/a", "tdm-reservation": "1"}]',
            DISALLOW,
            id="what is of another type is passed over; a number may be in quotes",
        ),
        pytest.param('[{"location": "/", "tdm-reservation": true}]', UNKNOWN, id="true is not 1"),
        pytest.param(
            '[{"location": "https://example.com/a", "tdm-reservation": 1}]',
            DISALLOW,
            id="a whole URL of this host",
        ),
        pytest.param(
            '[{"location": "https://example.com.evil.test/", "tdm-reservation": 1}]',
            UNKNOWN,
            id="a URL of another host",
        ),
        pytest.param('{"location": "/", "tdm-reservation": 1}', UNKNOWN, id="no array"),
        pytest.param("[" * 100_000, UNKNOWN, id="nested too deep"),
        pytest.param("<html>", UNKNOWN, id="no JSON"),
        pytest.param("[" + "0," * 600_000 + "0]", UNKNOWN, id="too long"),
    ],
)
def test_tdmrep(body: str, want: Preference) -> None:
    assert tdmrep(read_tdmrep(body.encode()), URL) is want


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def terms(permits: str = "", prohibits: str = "", payments: str = "") -> LicenceTerms:
    return LicenceTerms(words(permits), words(prohibits), words(payments))


@pytest.mark.parametrize(
    ("permits", "prohibits", "want"),
    [
        pytest.param("all", "", (TRAIN_Y, SEARCH_Y), id="all uses"),
        pytest.param("search", "ai-all", (TRAIN_N, SEARCH_Y), id="search, and no AI"),
        pytest.param("", "train-ai", (TRAIN_N,), id="a word of the drafts"),
        pytest.param("ai-input ai-index", "", (), id="of neither use"),
        pytest.param("all", "ai-train", (TRAIN_N, SEARCH_Y), id="what is prohibited comes first"),
        pytest.param("", "", (), id="nothing"),
    ],
)
def test_usages_of_rsl(permits: str, prohibits: str, want: Said) -> None:
    assert licensed(words(permits), words(prohibits)) == want


FREE: Final = terms("ai-train search", payments="free")
PAID: Final = terms("ai-train", payments="subscription")


@pytest.mark.parametrize(
    ("contents", "want"),
    [
        pytest.param([LicensedContent("/", False, (FREE,))], (TRAIN_Y, SEARCH_Y), id="free"),
        pytest.param(
            [LicensedContent("/", False, (terms("ai-train", payments="attribution"),))],
            (TRAIN_Y,),
            id="for attribution",
        ),
        pytest.param(
            [LicensedContent("/", False, (PAID,))], (TRAIN_N,), id="for money: not as it is"
        ),
        pytest.param(
            [LicensedContent("/", False, (terms("search"), PAID))],
            (TRAIN_N, SEARCH_Y),
            id="one use free, the other for money",
        ),
        pytest.param(
            [LicensedContent("/", True, (FREE,))],
            (TRAIN_N, SEARCH_N),
            id="a server is to be asked first",
        ),
        pytest.param(
            [LicensedContent("/", False, (FREE._replace(is_limited=True),))],
            (),
            id="for some users only: unknown",
        ),
        pytest.param(
            [LicensedContent("/", False, (PAID,)), LicensedContent("/a/", False, (FREE,))],
            (TRAIN_Y, SEARCH_Y),
            id="the longest pattern is the licence of a page",
        ),
        pytest.param(
            [LicensedContent("https://EXAMPLE.com/*/b", False, (FREE,))],
            (TRAIN_Y, SEARCH_Y),
            id="a whole URL, with a star",
        ),
        pytest.param(
            [LicensedContent("https://example.org/", False, (FREE,))], (), id="another host"
        ),
        pytest.param([LicensedContent("", False, (FREE,))], (), id="no URL"),
        pytest.param([], (), id="no content"),
    ],
)
def test_a_licence_of_rsl(contents: list[LicensedContent], want: Said) -> None:
    found = licence_says(Licence(tuple(contents)), URL)
    assert found == tuple((*said, "rsl") for said in want)


@pytest.mark.parametrize(
    ("headers", "want"),
    [
        pytest.param([(b"Content-Type", b"text/html")], (), id="nothing"),
        pytest.param(
            [(b"Content-Usage", b"train-ai=n")], ((*TRAIN_N, "content-usage"),), id="Content-Usage"
        ),
        pytest.param(
            [(b"content-usage", b"train-ai=n"), (b"CONTENT-USAGE", b"train-ai=y, search=n")],
            ((*TRAIN_Y, "content-usage"), (*SEARCH_N, "content-usage")),
            id="several lines are one value",
        ),
        pytest.param(
            [(b"content-usage", b"train-ai=n"), (b"content-usage", b"Bad=")],
            (),
            id="of which a bad line is a part",
        ),
        pytest.param(
            [(b"Content-Signal", b"ai-train=no")], ((*TRAIN_N, "content-signal"),), id="a signal"
        ),
        pytest.param(
            [(b"tdm-reservation", b"1"), (b"tdm-policy", b"https://x/p.json")],
            ((*TRAIN_N, "tdm-reservation"),),
            id="TDMRep",
        ),
        pytest.param(
            [(b"X-Robots-Tag", b"otherbot: noai"), (b"X-Robots-Tag", b"noai, noimageai")],
            ((*TRAIN_N, "x-robots-tag"),),
            id="X-Robots-Tag; a name is for its line only",
        ),
        pytest.param(
            [(b"X-Robots-Tag", b"noai"), (b"Content-Usage", b"train-ai=y")],
            ((*TRAIN_Y, "content-usage"), (*TRAIN_N, "x-robots-tag")),
            id="two sources",
        ),
        pytest.param([(b"Content-Usage", b"\xff\x00")], (), id="bytes"),
    ],
)
def test_an_answer(headers: list[tuple[bytes, bytes]], want: tuple[Statement, ...]) -> None:
    assert of_answer(headers, AGENT) == want


@pytest.mark.parametrize(
    ("parsed", "want"),
    [
        pytest.param(Parsed(), (), id="nothing"),
        pytest.param(Parsed(robots=frozenset(("noindex",))), (), id="other words"),
        pytest.param(
            Parsed(robots=frozenset(("noai", "noimageai")), tdm="0"),
            ((*TRAIN_Y, "meta tdm-reservation"), (*TRAIN_N, "meta robots")),
            id="both meta tags",
        ),
    ],
)
def test_a_page(parsed: Parsed, want: tuple[Statement, ...]) -> None:
    assert of_page(parsed) == want


@pytest.mark.parametrize(
    ("link", "want"),
    [
        pytest.param(
            b'<https://x/l.xml>; rel="license"; type="application/rsl+xml"',
            ("https://x/l.xml",),
            id="a licence",
        ),
        pytest.param(
            b"</a>; rel=next, </l>; type=Application/RSL+XML; rel='x', </m>;"
            b' rel="License x"; type=application/rsl+xml',
            ("/m",),
            id="among others",
        ),
        pytest.param(b'<https://x/l>; rel="license"', (), id="a licence of no type: not RSL"),
        pytest.param(b"<> rsl+xml", (), id="nothing that can be read"),
    ],
)
def test_licence_links(link: bytes, want: tuple[str, ...]) -> None:
    assert licence_links([(b"Server", b"x"), (b"Link", link)]) == want


@pytest.mark.parametrize(
    ("statements", "want"),
    [
        pytest.param([], NO_PREFERENCES, id="nothing was said"),
        pytest.param(
            [Statement(Use.SEARCH, UNKNOWN, "rsl")], NO_PREFERENCES, id="nothing readable"
        ),
        pytest.param(
            [Statement(*TRAIN_N, "rsl"), Statement(*TRAIN_Y, "meta robots")],
            Preferences(DISALLOW, UNKNOWN, ("rsl", "meta robots")),
            id="any n disallows, wherever it stands",
        ),
        pytest.param(
            [Statement(*SEARCH_Y, "rsl"), Statement(*TRAIN_Y, "rsl")],
            Preferences(ALLOW, ALLOW, ("rsl",)),
            id="else any y allows; a source is named once",
        ),
    ],
)
def test_combined(statements: list[Statement], want: Preferences) -> None:
    found = combined(statements)
    assert found == want
    assert (found is NO_PREFERENCES) == (want is NO_PREFERENCES)


X402: Final = (
    b'{"x402Version": 1, "accepts": [{"scheme": "exact", "maxAmountRequired": "10000",'
    b' "asset": "0x036CbD53842c5426634e7929541eC2318f3dCF7e"%b}]}'
)


@pytest.mark.parametrize(
    ("price", "body", "want"),
    [
        pytest.param(b"USD 0.01", b"", "USD 0.01", id="pay per crawl"),
        pytest.param(b"usd  5", b"", "USD 5", id="written otherwise"),
        pytest.param(b"USD 0.01\x1b[31m", b"", "", id="what is not to be printed"),
        pytest.param(b"USD " + b"9" * 99, b"", "", id="too long"),
        pytest.param(None, b"<html>", "", id="no price"),
        pytest.param(
            None, X402 % b', "extra": {"name": "USDC"}', "10000 USDC (x402)", id="an x402 body"
        ),
        pytest.param(
            None,
            X402 % b"",
            "10000 0x036CbD53842c5426634e7929541eC2318f3dCF7e (x402)",
            id="of which the asset has no name",
        ),
        pytest.param(None, b'{"accepts": [{"maxAmountRequired": 5}]}', "5 (x402)", id="a number"),
        pytest.param(None, b'{"accepts": {"0": 1}}', "", id="accepts of another type"),
        pytest.param(None, b'{"accepts": [{"amount": true, "extra": 1}]}', "", id="no amount"),
        pytest.param(None, b'{"a":' * 9_000, "", id="nested too deep"),
        pytest.param(None, X402 % b"" + b" " * 70_000, "", id="too long a body"),
    ],
)
def test_price(price: bytes | None, body: bytes, want: str) -> None:
    headers = [(b"Date", b"x")] + ([(b"Crawler-Price", price)] if price is not None else [])
    assert price_asked(headers, body) == want


@given(st.binary(max_size=80))
def test_no_bytes_raise_an_error(data: bytes) -> None:
    named = [b"content-usage", b"content-signal", b"x-robots-tag", b"tdm-reservation"]
    of_answer([(name, data) for name in named], AGENT)
    licence_links([(b"link", data + b"rsl+xml")])
    price_asked([(b"crawler-price", data)], data)
    tdmrep(read_tdmrep(data), URL)
    rules = RobotsRules.parse(b"User-agent: *\nContent-Usage: " + data, AGENT)
    robots_usages(rules, URL)


TYPICAL: Final = [
    *((b"Date", b"x"), (b"Content-Type", b"text/html"), (b"Server", b"x"), (b"Vary", b"x")),
    *((b"Content-Length", b"5"), (b"Last-Modified", b"x"), (b"ETag", b"x"), (b"Age", b"1")),
    *((b"Cache-Control", b"x"), (b"X-Cache", b"x"), (b"Connection", b"x"), (b"Set-Cookie", b"x")),
]


def test_an_answer_that_says_nothing_costs_next_to_nothing() -> None:
    def work() -> None:
        for _ in range(10_000):
            of_answer(TYPICAL, AGENT)

    # 1.1 us each, on the machine where that was measured
    assert cpu_seconds(work, 5) < 10_000 * 10e-6
