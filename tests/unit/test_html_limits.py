"""Reading a page takes time and memory in proportion to its size, for any content."""

from __future__ import annotations

import tracemalloc
from itertools import product

import pytest

from crawler.content.parsers.html import MAX_LINKS, HtmlParser
from crawler.model.page import Parsed, Source
from tests.harness.measuring import cpu_seconds

ENOUGH_TO_MEASURE = 20_000  # tags: at a quadratic price they would take a quarter of a minute
MEGABYTE = 1024 * 1024

PIECES = (
    *("<div>", "</div>", "<p>", "<b>", "<a href=x>", '<a href="x">', "<nav>", "<object>", "</p>"),
    *("<title>", "<script>", "</script", "<!--", "-->", "--", "<!", "<", ">", "'", '"'),
    *("<p hidden>", "</p>", "<i role=menu>", "<img srcset='", "a, ", "(", "</nav>"),
    *("a=", "=", "/", " ", "&#9", "&amp;", "x", "\0", "\xe9"),
)


def read(text: str, content_type: str = "text/html; charset=utf-8") -> Parsed:
    return HtmlParser().parse(Source("", content_type, text.encode()))


def test_time_is_linear_in_the_page_whatever_it_holds() -> None:
    """Of all pairs the slowest are tried at length: what grows faster than its page is among
    them. Eight times the page takes about eight times as long, with a tree sixty-four times."""
    units = [one + other for one, other in product(PIECES, PIECES)]

    def seconds(unit: str, size: int, times: int = 3) -> float:
        return cpu_seconds(lambda: read(unit * size), times)

    slowest = sorted(units, key=lambda unit: seconds(unit, 500, 1) / len(unit))[-12:]
    for unit in slowest:
        few, many = (seconds(unit, n) for n in (2_000, 16_000))
        assert many < 24 * few, unit


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param("<div>", id="nesting"),
        pytest.param("<b><p>", id="formatting to be carried on"),
        pytest.param("<div><object></div></object>", id="ends out of scope"),
        pytest.param("<div><!--</div>-->", id="ends in comments"),
        pytest.param("<div><i title='</div>'></i>", id="ends in attributes"),
        pytest.param("<div role=menu></div>", id="what hides, again and again"),
        pytest.param("</p>", id="ends of nothing"),
        pytest.param("<a href=x>", id="links"),
        pytest.param("<!-- x ", id="comments in a comment"),
        pytest.param('<p a="', id="quotes"),
        pytest.param("<", id="loose <"),
        pytest.param("<title>", id="titles in a title"),
        pytest.param("</script", id="ends that are none"),
        pytest.param("<svg><title>", id="drawings in their titles"),
        pytest.param("<math></svg><title/>", id="formulas that drawings end"),
        pytest.param("<svg><p><![CDATA[", id="drawings that do not end"),
        pytest.param("&amp", id="references"),
        pytest.param('"datePublished": ', id="dates that are none"),
    ],
)
@pytest.mark.parametrize(
    "start",
    ["", "<a ", "<a href='", "<title>", "<!--", "<script>", "<script type='application/ld+json'>"],
)
def test_a_page_has_a_bounded_price(start: str, piece: str) -> None:
    assert len(read(start + piece * ENOUGH_TO_MEASURE).links) <= MAX_LINKS


@pytest.mark.parametrize(
    "piece",
    [
        # 2.9 GB as a tree, at a tenth of this: each <p> takes all <b> before it along.
        pytest.param("<p><b a={}>", id="formatting, each another"),
        pytest.param("<p a{0}=1 b{0} c{0}=''>", id="tags"),
        pytest.param('<p a{0}="{0}">', id="shapes of tags"),
        pytest.param("<p x={0}><div role=menu></div>", id="tags to be forgotten"),
        pytest.param("<div x={0}><div role=menu></div>", id="tags that must be met again"),
        pytest.param("<title {}>", id="titles in a title"),
    ],
)
def test_time_is_linear_in_varying_markup(piece: str) -> None:
    body = "".join(piece.format(number) for number in range(ENOUGH_TO_MEASURE))
    links = read(body + "</title><a href=x>").links
    assert [link.url for link in links] == ["x"]


@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_attributes_without_end_have_a_bounded_price(quote: str) -> None:
    names = " ".join(f"a{n}={quote}1{quote}" for n in range(ENOUGH_TO_MEASURE))
    assert [link.url for link in read(f"<a {names} href=x>").links] == ["x"]


def test_a_hundred_thousand_nested_tags_are_read_to_the_end() -> None:
    page = read("<div><b><ul><li>" * 100_000 + "<a href=x>words</a>")
    assert page.text == "words" and page.links[0].url == "x"


@pytest.mark.parametrize("charset", ["punycode", "idna", "utf-16", "utf-7", "zip", "x" * 9000])
def test_a_charset_that_is_a_trap_has_a_bounded_price(charset: str) -> None:
    page = read("<a href=x>" * ENOUGH_TO_MEASURE, f"text/html; charset={charset}")
    assert charset == "utf-16" or page.links[0].url == "x"


@pytest.mark.parametrize("piece", ["<p>", "<a href=x>", "x ", "<", "<b a='", "&lt;", "<!-->"])
def test_memory_is_in_proportion(piece: str) -> None:
    """Measured: 140 bytes for each byte of "<", less for all else."""
    body = piece * (MEGABYTE // 4 // len(piece))
    tracemalloc.start()
    read(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 250 * len(body)
