"""Plain text: itself, and the URLs in it."""

from __future__ import annotations

from typing import Any

import pytest

from crawler.content.parsers.loading import (
    MAX_LINKS,
    MAX_TEXT_CHARS,
    MAX_TITLE_CHARS,
    within_limits,
)
from crawler.content.parsers.plain import PlainParser, urls
from crawler.model.page import (
    Link,
    LinkKind,
    Parsed,
    Source,
)
from tests.harness.measuring import cpu_seconds


def read(body: bytes, url: str = "http://a.example/a.txt", content_type: str = "") -> Parsed:
    return PlainParser().parse(Source(url, content_type or "text/plain", body))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("see http://a.example/x and go", ["http://a.example/x"], id="in a sentence"),
        pytest.param("see http://a.example/x.", ["http://a.example/x"], id="at its end"),
        pytest.param("HTTPS://A.example", ["HTTPS://A.example"], id="capitals"),
        pytest.param("(http://a.example/x)", ["http://a.example/x"], id="in brackets"),
        pytest.param("(see http://a.example/x).", ["http://a.example/x"], id="brackets, stop"),
        pytest.param("http://a.example/a_(b)", ["http://a.example/a_(b)"], id="its own brackets"),
        pytest.param("[x](http://a.example/x)", ["http://a.example/x"], id="Markdown"),
        pytest.param("<http://a.example/x>", ["http://a.example/x"], id="in angle brackets"),
        pytest.param("'http://a.example/x'", ["http://a.example/x"], id="in quotes"),
        pytest.param("„http://a.example/x“", ["http://a.example/x"], id="in quotes of print"),
        pytest.param("http://a.example/?a=1&b=2,", ["http://a.example/?a=1&b=2"], id="a query"),
        pytest.param("http://a http://b http://a", ["http://a", "http://b"], id="each once"),
        pytest.param("ftp://a mailto:b@c www.a.example", [], id="what we do not fetch"),
        pytest.param("http:// https://", [], id="no host"),
        pytest.param("http://)))", [], id="nothing but brackets"),
        pytest.param("http://a/(b)).]", ["http://a/(b)"], id="brackets of two kinds at its end"),
        pytest.param("http://a/" + "b" * 2040, [], id="too long to be fetched, and no part of it"),
        pytest.param("http://a/" + ")" * 4000, ["http://a/"], id="long by what is not its own"),
    ],
)  # fmt: skip
def test_urls_in_text(text: str, found: list[str]) -> None:
    assert urls(text) == found


def test_a_text() -> None:
    assert read("\n Über http://a.example/ \n".encode()) == Parsed(
        parser="text",
        text="Über http://a.example/",
        links=(Link("http://a.example/", LinkKind.TEXT),),
        charset="utf-8",
    )


def test_the_charset_of_the_header_wins() -> None:
    parsed = read(b"\xc4", content_type="text/plain; charset=windows-1252")
    assert (parsed.text, parsed.charset) == ("Ä", "windows-1252")


def test_plain_text_does_not_declare_its_charset() -> None:
    """What looks like HTML in it is quoted."""
    assert read('<meta charset="koi8-r"> Ä'.encode()).text.endswith("Ä")


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        pytest.param("http://a.example/sitemap.txt", LinkKind.LISTED, id="a sitemap"),
        pytest.param("http://a.example/SiteMap_2.txt?x", LinkKind.LISTED, id="another"),
        pytest.param("http://a.example/sitemap/a.txt", LinkKind.TEXT, id="beside a sitemap"),
        pytest.param("http://a.example/a.txt?sitemap", LinkKind.TEXT, id="asked about one"),
    ],
)
def test_a_list_of_urls_may_be_a_sitemap(url: str, kind: LinkKind) -> None:
    assert read(b"http://a.example/1\nhttp://a.example/2\n", url).links == (
        Link("http://a.example/1", kind),
        Link("http://a.example/2", kind),
    )


def test_a_text_that_is_named_as_a_sitemap_lists_its_lines() -> None:
    body = (
        b"http://a.example/it's(1).\n see http://a.example/2, \rhttp://a.example/3\n/4\nHTTPS://b"
    )
    found = PlainParser().parse(Source("http://a.example/x", "", body, is_sitemap=True)).links
    assert [link.url for link in found] == [
        *("http://a.example/it's(1).", "http://a.example/2", "http://a.example/3", "HTTPS://b")
    ]
    assert {link.kind for link in found} == {LinkKind.LISTED}


@pytest.mark.parametrize("start", ["", "http://a"])
@pytest.mark.parametrize("piece", ["http://", "http://a)", "a((", "h", ")", "]", "(.", "[)]", ".!"])
def test_time_is_linear_in_the_body(start: str, piece: str) -> None:
    """Eight times the text takes about eight times as long."""

    def reading(times: int) -> None:
        assert len(read((start + piece * times).encode()).links) <= MAX_LINKS + 1

    few, many = (cpu_seconds(lambda n=n: reading(n)) for n in (10_000, 80_000))
    assert many < 24 * few + 0.05


def test_the_output_of_a_parser_is_bounded() -> None:
    many = Parsed(
        title="t" * 2000,
        text="x" * (MAX_TEXT_CHARS + 1),
        links=(Link("/"),) * (MAX_LINKS + 1),
        notes=("a", "a"),
    )
    cut = within_limits(many, "mine")
    assert (len(cut.title), len(cut.text)) == (MAX_TITLE_CHARS, MAX_TEXT_CHARS)
    assert len(cut.links) == MAX_LINKS
    assert (cut.parser, cut.notes) == ("mine", ("a", "links_cut", "text_cut"))


def test_links_are_bounded_together() -> None:
    cut = within_limits(Parsed(links=(Link("x" * 1_000_000),) * 20), "mine")
    assert (len(cut.links), cut.notes) == (8, ("links_cut",))


def test_lists_of_a_users_parser_become_what_they_should_be() -> None:
    given: Any = {"robots": ["noindex"], "notes": ["a"]}
    cut = within_limits(Parsed(parser="p", **given), "mine")
    assert (cut.robots, cut.notes) == (frozenset({"noindex"}), ("a",))
    given = {"robots": [], "notes": []}
    cut = within_limits(Parsed(parser="p", **given), "mine")
    assert (cut.robots, cut.notes) == (frozenset(), ())


def test_results_within_the_limits_stay_the_same() -> None:
    parsed = Parsed(parser="p", title="t", text="x", links=(Link("/"),), robots=frozenset({"a"}))
    assert within_limits(parsed, "mine") == parsed
