"""Links of an answer: canonical and alternate forms in Link headers, and what columns keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.model.page import Link, LinkKind, Parsed
from crawler.page.links import (
    BASE_CHARS,
    MAX_LINKS,
    MAX_LINKS_KEPT,
    base_of,
    link_headers,
    max_links,
    resolve_links,
)
from tests.harness.measuring import cpu_seconds

PAGE = "http://a.example/b/c"
A, B = LinkKind.ALTERNATE, LinkKind.CANONICAL


def read(*values: str | bytes) -> list[Link]:
    return link_headers(
        [(b"Link", one.encode() if isinstance(one, str) else one) for one in values], PAGE
    )


@pytest.mark.parametrize(
    ("value", "found"),
    [
        pytest.param('</a>; rel="canonical"', [("/a", B)], id="as it is usually written"),
        pytest.param("</a>;rel=canonical", [("/a", B)], id="without quotes and space"),
        pytest.param(" < /a > ; REL = Canonical ", [("/a", B)], id="with space and capitals"),
        pytest.param("</a>; rel=canonical, </b>; rel=alternate; hreflang=de",
                     [("/a", B), ("/b", A)], id="two in one header"),
        pytest.param('</a,b>; title="x, <no>; rel=canonical"; rel=alternate', [("/a,b", A)],
                     id="commas in a URL and in quotes"),
        pytest.param(r'</a>; title="a\"; rel=next"; rel=canonical', [("/a", B)],
                     id="an escaped quote"),
        pytest.param('</a>; rel="next canonical"', [("/a", B)], id="one word of several"),
        pytest.param('</a>; rel="alternate canonical"', [("/a", B), ("/a", A)], id="both"),
        pytest.param("</a>; rel=next; rel=canonical", [], id="of two rel the first counts"),
        pytest.param("</a>; rel=preload; as=style, </b>; rel=canonical", [("/b", B)],
                     id="others in between"),
        pytest.param('</a>; rel="alternate stylesheet"', [], id="another style is no other form"),
        pytest.param("</a>; rel=canonical; anchor='/b'", [], id="of another page"),
        pytest.param("</a>;; ;rel=canonical;", [("/a", B)], id="empty parameters"),
        pytest.param("/a; rel=canonical, </b>; rel=canonical", [("/b", B)],
                     id="without brackets: passed over"),
        pytest.param("</a; rel=canonical", [], id="a bracket that does not close"),
        pytest.param('</a>; rel="canonical', [("/a", B)], id="a quote that does not close"),
        pytest.param("<>; rel=canonical", [], id="nowhere"),
        pytest.param("</\xe4>; rel=canonical", [("/\xe4", B)], id="UTF-8"),
        pytest.param(b"</\xe4>; rel=canonical", [("/\xe4", B)], id="Latin-1"),
        pytest.param("", [], id="nothing"),
    ],
)  # fmt: skip
def test_links_of_a_header(value: str | bytes, found: list[tuple[str, LinkKind]]) -> None:
    assert [(link.url, link.kind) for link in read(value)] == found


def test_headers_are_read_in_their_order_and_others_not_at_all() -> None:
    headers = [
        (b"link", b"</a>; rel=alternate"),
        (b"X-Link", b"</b>; rel=alternate"),
        (b"LINK", b"</c>; rel=alternate"),
    ]
    assert [link.url for link in link_headers(headers, PAGE)] == ["/a", "/c"]


@pytest.mark.parametrize(
    ("value", "target"),
    [
        pytest.param("0; url=/x", "http://a.example/x", id="as it is usually written"),
        pytest.param("5;URL='x?a=1;b'", "http://a.example/b/x?a=1;b", id="in quotes"),
        pytest.param("0;http://b.example/", "http://b.example/", id="without a name"),
        pytest.param(b"0; url=/\xc3\xa9", "http://a.example/%C3%A9", id="UTF-8"),
        pytest.param("5", None, id="the page itself"),
        pytest.param("0; url=#part", None, id="a part of it"),
        pytest.param("0; url=javascript:x()", None, id="no page"),
        pytest.param("soon; url=/x", None, id="no time"),
    ],
)
def test_a_refresh_header_leads_where_the_element_does(
    value: str | bytes, target: str | None
) -> None:
    sent = value.encode() if isinstance(value, str) else value
    headers = [(b"REFRESH", sent), (b"Refresh", b"0;url=/second")]
    found = link_headers(headers, PAGE)
    want = target or "http://a.example/second"
    assert found == [Link(want, LinkKind.REFRESH)]


def test_links_have_an_end() -> None:
    assert len(read("</a>; rel=alternate," * 1_000, "</b>; rel=canonical")) == MAX_LINKS


@given(st.text(alphabet="<>;,=\" \\'relcanoni/", max_size=60))
def test_nothing_that_a_server_sends_is_an_error(value: str) -> None:
    assert all(link.url.strip() for link in read(value))


@pytest.mark.parametrize("unit", ["<", ">", ";", ",", '"', "\\", "<>", ";a=", '<>;a="', "<,", " "])
def test_time_is_linear_in_the_header(unit: str) -> None:
    few, many = (cpu_seconds(lambda n=n: read(unit * n)) for n in (10_000, 80_000))
    assert many < 24 * few + 0.05


@pytest.mark.parametrize(
    ("base", "kept"),
    [
        pytest.param("http://a.example/b/", MAX_LINKS_KEPT, id="an ordinary one"),
        pytest.param("http://a.example/" + "b" * 383, MAX_LINKS_KEPT, id="a long one"),
        pytest.param(
            "http://a.example/" + "b" * 1983, MAX_LINKS_KEPT // 5, id="one that is meant to hurt"
        ),
    ],
)
def test_a_long_base_leaves_fewer_links(base: str, kept: int) -> None:
    assert max_links(base) == kept


@pytest.mark.parametrize(
    ("base", "found"),
    [
        pytest.param("/b/", ["http://a.example/b/x", "http://a.example/y"], id="a path"),
        pytest.param("ftp://f.example/b/", [], id="where nothing is fetched"),
        pytest.param("mailto:me@a.example", [], id="that nothing is relative to"),
        pytest.param("about:blank", [], id="of an empty page"),
        pytest.param("data:,x", ["http://a.example/d/x", "http://a.example/y"], id="data"),
        pytest.param("JavaScript:0", ["http://a.example/d/x", "http://a.example/y"], id="a script"),
        pytest.param("http://[x", ["http://a.example/d/x", "http://a.example/y"], id="no URL"),
    ],
)
def test_a_base_of_any_scheme_counts_as_in_browsers(base: str, found: list[str]) -> None:
    of_page = base_of("http://a.example/d/p?q", Parsed(base=base))
    links = [Link("x"), Link("/y"), Link("#z"), Link("http://b.example/")]
    urls = [link.url for link in resolve_links(links, of_page)[0] if link.url != of_page]
    assert [url for url in urls if "d/p" not in url] == [*found, "http://b.example/"]


def test_a_base_adds_so_much_and_no_more() -> None:
    base = "http://a.example/" + "b" * 2000 + "/"
    links = [Link(str(number)) for number in range(MAX_LINKS_KEPT)]
    found, others = resolve_links(links[: max_links(base)], base)
    assert sum(len(link.url) for link in found) < BASE_CHARS + 10 * MAX_LINKS_KEPT and others == []
