"""What a page says of itself and of its links."""

from __future__ import annotations

import time
from typing import Any

import pytest

from crawler.content.parsers.html import HtmlParser
from crawler.content.parsers.loading import within_limits
from crawler.model.choices import ColumnGroup
from crawler.model.page import NOTHING_SAID, About, Link, LinkKind, Parsed, Source

ALL = frozenset(ColumnGroup)


def parsed(html: str, asked: frozenset[ColumnGroup] = ALL) -> Parsed:
    return HtmlParser().parse(Source("http://a.example/", "text/html", html.encode(), asked=asked))


def in_data(json: str) -> str:
    return f'<script type="application/ld+json">{json}</script>'


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        pytest.param("<p>a", {}, id="nothing"),
        pytest.param(
            "<meta name=Author content=' A &amp;\n B '>", {"author": "A & B"}, id="author"
        ),
        pytest.param(
            in_data('{"author": {"@type": "Person", "name": "Zo\\u00eb \\"Z\\""}}'),
            {"author": 'Zo\xeb "Z"'},
            id="of schema.org, in an object",
        ),
        pytest.param(
            in_data('{"author":[{"name":"One"},{"name":"Two"}]}'), {"author": "One"}, id="the first"
        ),
        pytest.param(
            "<meta name=author content=A>" + in_data('{"author":"B"}'),
            {"author": "A"},
            id="meta first",
        ),
        pytest.param(in_data('{"author":"\\ud800"}'), {"author": "?"}, id="half of a pair"),
        pytest.param(in_data('{"author": "\\x"}'), {}, id="broken JSON"),
        pytest.param(
            "<meta name=description content=''><meta property='og:description' content=D>",
            {"description": "D"},
            id="the first description that is not empty",
        ),
        pytest.param("<meta property='og:site_name' content=S>", {"site_name": "S"}, id="site"),
        pytest.param(
            "<a rel='license nofollow' href='/by'>x</a>", {"licence": "/by"}, id="rel=license"
        ),
        pytest.param("<link rel=license href=http://l/>", {"licence": "http://l/"}, id="of a link"),
        pytest.param(
            "<a href=https://creativecommons.org/licenses/by/4.0/>x</a>",
            {"licence": "https://creativecommons.org/licenses/by/4.0/"},
            id="a link to Creative Commons",
        ),
        pytest.param(
            "<a href=https://creativecommons.org/about>x</a>", {}, id="not to its licences"
        ),
        pytest.param(
            in_data('{"license": "https:\\/\\/l.example\\/x"}'),
            {"licence": "https://l.example/x"},
            id="of schema.org",
        ),
        pytest.param(
            "<meta name=robots content=noarchive><meta name=robots content='Max-Snippet:5'>",
            {"robots": "noarchive, Max-Snippet:5"},
            id="robots as written",
        ),
        pytest.param("<h1> A <b>b</b>\n<br>c&amp;</h1><h1>d</h1>", {"h1": "A b c&"}, id="h1"),
        pytest.param(
            "<h1><img src=x></h1><h1><a href=x>d</a></h1>", {"h1": "d"}, id="the first with a text"
        ),
        pytest.param("<h1>open<h2>next</h2>", {"h1": "open"}, id="an h1 without an end"),
        pytest.param("<nav><h1>in it</h1></nav>", {"h1": "in it"}, id="also outside the content"),
    ],
)
def test_what_a_page_says(html: str, expected: dict[str, Any]) -> None:
    assert parsed(html).about == About(**expected)
    assert parsed(html, frozenset()).about is NOTHING_SAID


def texts(html: str) -> list[tuple[str, str]]:
    return [(link.url, link.text) for link in parsed(html).links]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        pytest.param(
            "<a href=x> one <b>two</b>\n<br>three </a>", [("x", "one two three")], id="folded"
        ),
        pytest.param("<a href=x>a</a>b<a href=y rel=z>c</a>", [("x", "a"), ("y", "c")], id="two"),
        pytest.param(
            "<a href=#y>a</a><a href=x>b</a>", [("x", "b")], id="one to this page before it"
        ),
        pytest.param("<a href=x>a<a href=y>b", [("x", "a"), ("y", "b")], id="without an end"),
        pytest.param(
            "<a href=''>a</a><a>b</a><a href=x>c</a>", [("x", "c")], id="no link before it"
        ),
        pytest.param(
            "<a href='&#35;y'>a</a><a href=x>b</a>", [("x", "b")], id="none by a reference"
        ),
        pytest.param("<nav><a href=x>a</a></nav>", [("x", "a")], id="in a menu"),
        pytest.param("<a href=x></a><a href=y>b</a>", [("x", ""), ("y", "b")], id="without a text"),
        pytest.param(
            "<a href=x>see <img src=i alt=cat> now</a>",
            [("x", "see cat now"), ("i", "")],
            id="an image",
        ),
        pytest.param("<a href=x>" + "\xe9" * 200, [("x", "\xe9" * 128)], id="256 bytes at most"),
        pytest.param(
            "<a href=x>a" + "\u6f22" * 200, [("x", "a" + "\u6f22" * 85)], id="no half letter"
        ),
        pytest.param(
            "<a href=x>1 &lt; 2 &#x1F600;</a>", [("x", "1 < 2 \U0001f600")], id="references"
        ),
    ],
)
def test_the_texts_of_links(html: str, expected: list[tuple[str, str]]) -> None:
    assert texts(html) == expected


def test_the_languages_of_links() -> None:
    html = "<link rel=alternate hreflang=de-AT href=/de><a href=x hreflang=fr>x</a>"
    found = {link.url: link.language for link in parsed(html).links}
    assert found == {"/de": "de-AT", "x": ""}


def test_the_share_of_links() -> None:
    html = f"<main><p>{'ab ' * 20}<a href=x>{'cd ' * 10}</a></p></main>"
    assert parsed(html).link_share == pytest.approx(1 / 3, abs=0.02)
    assert parsed(html, frozenset()).link_share is None


def test_links_that_are_not_asked_for_have_no_text() -> None:
    assert parsed("<a href=x>y</a>", frozenset()).links == (Link("x", LinkKind.A),)


@pytest.mark.parametrize(
    "html",
    [
        pytest.param(f"<title>{'t' * 1_000_000}</title><h1>{'h ' * 500_000}</h1>", id="long"),
        pytest.param("<a href=x>y" * 1_000_000, id="a million anchors"),
        pytest.param("<h1>" * 200_000, id="headings"),
        pytest.param(
            f"<meta name=description content='{' ' * 500_000}{'d' * 500_000}'>", id="meta"
        ),
        pytest.param(in_data('{"author":[{' + '"a":1,' * 150_000), id="data"),
        pytest.param(in_data('"author":{' * 100_000), id="data that opens"),
        pytest.param("<a href=" + "y>" * 300_000, id="one link"),
    ],
)
def test_hostile_pages_are_bounded(html: str) -> None:
    begun = time.process_time()
    found = within_limits(parsed(html), "html")
    assert time.process_time() - begun < 5
    assert (
        max(map(len, (found.title, *[getattr(found.about, n) for n in About.__struct_fields__])))
        <= 1000
    )
    assert max((len(link.text) for link in found.links), default=0) <= 256


def test_what_a_parser_says_is_cut() -> None:
    said = within_limits(Parsed(parser="own", about=About(author="a" * 9_999)), "own")
    assert len(said.about.author) == 2_048
