"""RSL documents: what is read of them, and what hostile ones do."""

from __future__ import annotations

import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.content.parsers.html import HtmlParser
from crawler.content.rsl import MAX_LICENCE_BYTES, read_licence
from crawler.model.page import Parsed, Source, Unreadable
from crawler.policy.preferences import (
    MAX_STARS,
    Licence,
    LicenceTerms,
    LicensedContent,
    licence_says,
    read_tdmrep,
)
from tests.harness.measuring import cpu_seconds

NAMESPACE: Final = 'xmlns="https://rslstandard.org/rsl"'


def terms(permits: str, prohibits: str = "", payments: str = "", **more: bool) -> LicenceTerms:
    usages, others, paid = (frozenset(text.split()) for text in (permits, prohibits, payments))
    return LicenceTerms(usages, others, paid, **more)


def document(terms: str, content: str = 'url="/"') -> str:
    return f"<rsl {NAMESPACE}><content {content}><license>{terms}</license></content></rsl>"


@pytest.mark.parametrize(
    ("terms_xml", "want"),
    [
        pytest.param(
            '<permits type="usage">search ai-input</permits>'
            '<prohibits type="usage">AI-Train,ai-index</prohibits>',
            terms("search ai-input", "ai-train ai-index"),
            id="lists with white space or commas, in capitals",
        ),
        pytest.param(
            '<permits type="usage">ai-all</permits><payment type="subscription">'
            '<amount currency="USD">9</amount></payment>',
            terms("ai-all", payments="subscription"),
            id="a payment",
        ),
        pytest.param(
            '<permits type="usage">all</permits><payment/>',
            terms("all", payments="free"),
            id="a payment without a type is free",
        ),
        pytest.param(
            '<permits type="usage">ai-all</permits><payment>'
            "<standard>https://rslcollective.org/license</standard></payment>",
            terms("ai-all", payments="standard"),
            id="but not if it names the terms of a licence to be agreed to",
        ),
        pytest.param(
            '<payment type="attribution"><standard>https://x/by</standard></payment>',
            terms("", payments="attribution"),
            id="unless it is for attribution",
        ),
        pytest.param(
            '<permits type="user">education</permits><permits type="usage">all</permits>',
            terms("all", is_limited=True),
            id="for some users",
        ),
        pytest.param(
            '<prohibits type="geo">US</prohibits><permits type="future">all</permits>',
            terms("", is_limited=True),
            id="not in some countries; a type that is not known",
        ),
    ],
)
def test_the_terms_of_a_licence(terms_xml: str, want: LicenceTerms) -> None:
    found = read_licence(document(terms_xml).encode())
    assert found == Licence((LicensedContent("/", False, (want,)),))


def test_several_contents_and_licences() -> None:
    found = read_licence(
        b"""<?xml version="1.0" encoding="utf-8"?>
        <r:rsl xmlns:r="https://rslstandard.org/rsl" xmlns:o="https://other">
          <r:content url="/a" server="https://s/"><o:license><o:permits>all</o:permits></o:license>
            <r:license><r:permits type="usage">search</r:permits></r:license>
            <r:license><r:prohibits type="usage">all</r:prohibits></r:license></r:content>
          <r:content url=" https://x/*.pdf$ "/>
        </r:rsl>"""
    )
    assert found.contents == (
        LicensedContent("/a", True, (terms("search"), terms("", "all"))),
        LicensedContent("https://x/*.pdf$"),
    )


def test_a_feed_with_licences() -> None:
    feed = f"<rss><channel><item>{document('<permits>all</permits>')}</item></channel></rss>"
    assert read_licence(feed.encode()).contents == (LicensedContent("/", False, (terms("all"),)),)


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1", "windows-1252", "shift_jis"]
)
def test_encodings(encoding: str) -> None:
    name = encoding.removesuffix("-sig")
    text = f'<?xml version="1.0" encoding="{name}"?>' + document("", 'url="/a?b"')
    assert read_licence(text.encode(encoding)).contents[0].url == "/a?b"


LAUGHS: Final = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
HEAD: Final = f"<rsl {NAMESPACE}>"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            f'<!DOCTYPE rsl [<!ENTITY l0 "ha">{LAUGHS}]>{HEAD}&l9;</rsl>', id="a billion laughs"
        ),
        pytest.param(
            f'<!DOCTYPE rsl [<!ENTITY f SYSTEM "file:///etc/passwd">]>{HEAD}&f;</rsl>',
            id="an external entity",
        ),
        pytest.param(
            f'<!DOCTYPE rsl [<!ENTITY % p SYSTEM "http://127.0.0.1/d">%p;]>{HEAD}</rsl>',
            id="an external parameter entity",
        ),
        pytest.param(HEAD + "<a>" * 10_000_000, id="50 MB of depth"),
        pytest.param(HEAD + "<a>" * 100_000, id="less than a MB of depth"),
        pytest.param(HEAD + "<a/>" * 60_000 + "</rsl>", id="too many elements"),
        pytest.param(HEAD + "<content url='/'/>" * 1_001 + "</rsl>", id="too many contents"),
        pytest.param(HEAD + "<license/>" * 1_001 + "</rsl>", id="too many licences"),
        pytest.param(HEAD, id="cut short"),
        pytest.param('<rsl xmlns="https://rslstandard.org/rsl/2"/>', id="another namespace"),
        pytest.param('<rsl><content url="/"/></rsl>', id="no namespace"),
        pytest.param("<html><body>Not found</body></html>", id="a page"),
        pytest.param("", id="nothing"),
        pytest.param('<?xml version="1.0" encoding="no-such"?><rsl/>', id="an unknown encoding"),
    ],
)
def test_hostile_and_broken_documents_are_unreadable(body: str) -> None:
    sent = body.encode()

    def read() -> None:
        with pytest.raises(Unreadable):
            read_licence(sent)

    assert cpu_seconds(read, 1) < 1


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param("<permits>a</permits>", id="permits"),
        pytest.param("<standard/>", id="terms"),
        pytest.param("&#97;", id="references"),
    ],
)
def test_the_largest_documents_take_no_second(piece: str) -> None:
    most = min(49_000, (MAX_LICENCE_BYTES - 200) // len(piece))
    sent = document(piece * most).encode()
    assert cpu_seconds(lambda: read_licence(sent), 1) < 1


def test_a_page_is_compared_with_the_largest_licence_in_no_time() -> None:
    pattern = "/" + "*a" * 900 + "b"
    contents = f'<content url="{pattern}"><license/></content>'
    page = f"http://host.example/{'a' * 2000}"
    most = MAX_STARS // 900
    licence = read_licence(f"<rsl {NAMESPACE}>{contents * most}</rsl>".encode())
    assert cpu_seconds(lambda: licence_says(licence, page)) < 0.2
    with pytest.raises(Unreadable, match="patterns"):
        read_licence(f"<rsl {NAMESPACE}>{contents * (most + 1)}</rsl>".encode())
    rules = [{"location": pattern, "tdm-reservation": 1}] * most
    assert len(read_tdmrep(json.dumps(rules).encode())) == most
    assert not read_tdmrep(json.dumps(rules * 2).encode())


def test_words_that_mean_nothing_are_not_kept() -> None:
    words = " ".join(map(str, range(1000)))
    paid = "".join(f'<payment type="{number}"/>' for number in range(1000))
    terms_xml = f"<permits>{words} all</permits>{paid}"
    terms = read_licence(document(terms_xml).encode()).contents[0].terms[0]
    assert terms.permits == {"all"}
    assert len(terms.payments) == 10


@given(st.binary(max_size=100))
def test_no_bytes_raise_another_error(data: bytes) -> None:
    for body in (data, document("").encode() + data, HEAD.encode() + data):
        try:
            read_licence(body)
        except Unreadable:
            continue


def parsed(markup: str) -> Parsed:
    return HtmlParser().parse(Source("https://example.com/", "text/html", markup.encode()))


@pytest.mark.parametrize(
    ("markup", "want"),
    [
        pytest.param("<link rel=license href=/by>", ("", ""), id="another licence"),
        pytest.param(
            '<link rel="x License" type=" Application/rsl+xml" href=" /l.xml ">'
            '<link rel=license type="application/rsl+xml" href=/m.xml>',
            ("/l.xml", ""),
            id="the first licence of RSL",
        ),
        pytest.param(
            '<link rel=alternate type="application/rsl+xml" href=/l>', ("", ""), id="another rel"
        ),
        pytest.param(
            '<template><link rel=license type="application/rsl+xml" href=/l></template>',
            ("", ""),
            id="in a template",
        ),
        pytest.param('<META name="TDM-Reservation" content=" 1 ">', ("", "1"), id="TDMRep"),
        pytest.param(
            "<meta name=tdm-reservation content=0><meta name=tdm-reservation content=1>",
            ("", "0"),
            id="the first of two",
        ),
    ],
)
def test_what_a_page_names(markup: str, want: tuple[str, str]) -> None:
    found = parsed(markup)
    assert (found.rsl, found.tdm) == want


def test_noai_is_a_word_for_crawlers() -> None:
    found = parsed('<meta name="robots" content="NoAI, noimageai">')
    assert found.robots == {"noai", "noimageai"}
