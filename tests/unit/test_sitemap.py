"""Sitemaps: what they list, also if they are packed, broken or hostile."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import zlib
from time import process_time
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.content.parsers.loading import MAX_LINKS
from crawler.content.parsers.xml import (
    GZIP_MAGIC,
    MAX_BYTES,
    PIECE_BYTES,
    PackedParser,
    UnpackedBody,
    XmlParser,
)
from crawler.model.page import (
    Link,
    LinkKind,
    Parsed,
    Parser,
    Source,
    Unreadable,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MEGABYTE: Final = 1024 * 1024
SPACES: Final = (
    'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:xhtml="http://www.w3.org/1999/xhtml"'
    ' xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"'
)
MAY_6: Final = 1714953600.0


def read(body: bytes) -> Parsed:
    parser: Parser = PackedParser() if body.startswith(GZIP_MAGIC) else XmlParser()
    return parser.parse(Source("http://a.example/sitemap.xml", "application/xml", body))


def sitemap(entries: str, *, root: str = "urlset", end: str = "") -> bytes:
    return f'<?xml version="1.0"?><{root} {SPACES}>{entries}{end or f"</{root}>"}'.encode()


def urls(parsed: Parsed) -> list[str]:
    return [link.url for link in parsed.links]


def listed(url: str, modified: float | None = None, priority: float | None = None) -> Link:
    return Link(url, LinkKind.LISTED, modified=modified, priority=priority)


@pytest.mark.parametrize(
    ("entry", "link"),
    [
        pytest.param("<loc>/a</loc>", listed("/a"), id="no more than a URL"),
        pytest.param("<loc>\n /a\n</loc>", listed("/a"), id="white space around it"),
        pytest.param("<loc>/?a=1&amp;b=2</loc>", listed("/?a=1&b=2"), id="a reference"),
        pytest.param("<loc><![CDATA[/?a=1&b=2]]></loc>", listed("/?a=1&b=2"), id="CDATA"),
        pytest.param("<LOC>/a</LOC>", listed("/a"), id="capitals"),
        pytest.param("<loc>/a</loc><loc>/b</loc>", listed("/a"), id="the first of two counts"),
        pytest.param(
            "<loc>/a</loc><lastmod>2024-05-06</lastmod><priority>0.8</priority>",
            listed("/a", MAY_6, 0.8),
            id="all it may say",
        ),
        pytest.param(
            "<priority>1</priority><lastmod> 2024-05-06T02:00:00+02:00 </lastmod><loc>/a</loc>",
            listed("/a", MAY_6, 1.0),
            id="in another order",
        ),
        pytest.param("<loc>/a</loc><lastmod>2024-05-06T00:00Z</lastmod>", listed("/a", MAY_6),
                     id="a date without seconds"),
        pytest.param("<loc>/a</loc><lastmod>2024-05</lastmod>", listed("/a", MAY_6 - 5 * 86400),
                     id="a month"),
        pytest.param("<loc>/a</loc><lastmod>1970</lastmod>", listed("/a", 0.0), id="a year"),
        pytest.param("<loc>/a</loc><lastmod>yesterday</lastmod>", listed("/a"), id="no date"),
        pytest.param("<loc>/a</loc><lastmod>0000-00-00</lastmod>", listed("/a"), id="zeros"),
        pytest.param("<loc>/a</loc><priority>high</priority>", listed("/a"), id="no number"),
        pytest.param("<loc>/a</loc><priority>7</priority>", listed("/a"), id="beyond 1"),
        pytest.param("<loc>/a</loc><priority>nan</priority>", listed("/a"), id="not a number"),
        pytest.param(
            "<image:image><image:loc>/i</image:loc></image:image><loc>/a</loc>",
            listed("/a"),
            id="the URL of a picture is not the page's",
        ),
    ],
)  # fmt: skip
def test_an_entry(entry: str, link: Link) -> None:
    assert read(sitemap(f"<url>{entry}</url>")).links == (link,)


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param("<url></url>", id="nothing"),
        pytest.param("<url><loc></loc></url>", id="no URL"),
        pytest.param(f"<url><loc>/{'a' * 5000}</loc></url>", id="no URL is so long"),
        pytest.param("<loc>/a</loc>", id="no entry around it"),
        pytest.param("<a><url><loc>/a</loc></url></a>", id="an entry elsewhere"),
    ],
)
def test_sitemaps_without_entries(entry: str) -> None:
    assert read(sitemap(entry)).links == ()


def test_an_index_lists_sitemaps() -> None:
    entry = "<sitemap><loc>/b.xml</loc><lastmod>2024-05-06</lastmod></sitemap>"
    parsed = read(sitemap(entry, root="sitemapindex"))
    assert parsed.links == (Link("/b.xml", LinkKind.SITEMAP, modified=MAY_6),)
    assert (parsed.parser, parsed.text, parsed.notes) == ("sitemap", "", ())


def test_an_index_that_lists_itself_is_read_like_any() -> None:
    """That each is fetched once is for the frontier."""
    entry = "<sitemap><loc>http://a.example/sitemap.xml</loc></sitemap>"
    assert urls(read(sitemap(entry * 3, root="sitemapindex"))) == ["http://a.example/sitemap.xml"]


def test_namespaces_of_any_name() -> None:
    body = b'<x:urlset xmlns:x="urn:of-my-own"><x:url><x:loc>/a</x:loc></x:url></x:urlset>'
    assert urls(read(body)) == ["/a"]


def test_other_languages_of_a_page_come_after_all_pages() -> None:
    german = '<xhtml:link rel="alternate" hreflang="de" href="/de"/>'
    english = '<xhtml:link rel="alternate" hreflang="en" href="/en"/>'
    parsed = read(sitemap(f"<url><loc>/de</loc>{german}{english}</url><url><loc>/a</loc></url>"))
    assert [(link.url, link.kind) for link in parsed.links] == [
        *(("/de", LinkKind.LISTED), ("/a", LinkKind.LISTED), ("/en", LinkKind.ALTERNATE))
    ]


def test_encodings() -> None:
    entry = "<url><loc>/ä</loc></url>"
    for encoding in ("utf-8", "utf-16", "iso-8859-1", "windows-1252"):
        text = f'<?xml version="1.0" encoding="{encoding}"?><urlset>{entry}</urlset>'
        assert urls(read(text.encode(encoding))) == ["/ä"], encoding
    for encoding in ("gb2312", "gbk", "big5", "shift_jis", "euc-jp", "euc-kr", "iso-2022-jp"):
        text = f'<?xml version="1.0" encoding="{encoding}"?><urlset>{entry}</urlset>'
        parsed = read(text.replace("ä", "日").encode(encoding))
        assert (urls(parsed), parsed.notes) == (["/日"], ()), encoding


@pytest.mark.parametrize(
    "encoding", ["klingon", "idna", "zip", "rot13", "punycode", "undefined", "utf-7", "UTF\u20288"]
)
def test_encodings_outside_the_web_standard_are_read_as_utf_8(encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?><urlset><url><loc>/ä</loc></url></urlset>'
    assert urls(read(text.encode())) == ["/ä"]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        pytest.param(
            sitemap(
                "<url><loc>/a</loc></url><url><loc>/?a=1&b=2</loc></url><url><loc>/c</loc></url>"
            ),
            ["/a", "/?a=1&b=2", "/c"],
            id="a bare & in a URL",
        ),
        pytest.param(
            sitemap("<url><loc>/a</loc></url>").replace(b"/a", b"/\xe4") + b"",
            ["/\ufffd"],
            id="letters of another encoding",
        ),
        pytest.param(
            sitemap("<url><loc>/a</loc></url><url><loc>/b", end=" "), ["/a"], id="cut in an entry"
        ),
        pytest.param(
            sitemap("<url><loc>/a</loc></url><oops><url><loc>/b</loc></url>"),
            ["/a", "/b"],
            id="an element that does not end",
        ),
        pytest.param(
            sitemap("<url><loc>/a</loc></wrong></url><url><loc><![CDATA[/b?c&d]]></loc></url>"),
            ["/a", "/b?c&d"],
            id="ends that do not fit",
        ),
        pytest.param(sitemap("<url><loc>/a</loc></url>") + b"<more/>", ["/a"], id="two roots"),
    ],
)
def test_broken_xml_keeps_what_can_be_read(body: bytes, found: list[str]) -> None:
    parsed = read(body)
    assert (urls(parsed), parsed.notes) == (found, ("broken_xml",))


def test_a_sitemap_with_a_late_error_is_read_to_the_error() -> None:
    """Over the borders of the pieces that it is read in."""
    entry = "<url><loc>/{}</loc><lastmod>2024-05-06</lastmod></url>\n"
    count = 4 * PIECE_BYTES // len(entry)
    entries = [entry.format(number) for number in range(count)]
    entries[count // 2] = entry.format("a&b")
    parsed = read(sitemap("".join(entries)))
    assert len(parsed.links) == count
    assert {link.modified for link in parsed.links} == {MAY_6}


def test_no_more_than_50_000_urls() -> None:
    body = sitemap("".join(f"<url><loc>/{number}</loc></url>" for number in range(MAX_LINKS + 1)))
    parsed = read(body)
    assert (len(parsed.links), parsed.notes) == (MAX_LINKS, ("links_cut",))
    assert parsed.links[-1].url == f"/{MAX_LINKS - 1}"


def test_packed() -> None:
    body = sitemap("<url><loc>/a</loc></url>")
    assert urls(read(gzip.compress(body))) == ["/a"]
    halves = gzip.compress(body[:70]) + gzip.compress(body[70:]) + bytes(100)
    assert urls(read(halves)) == ["/a"], "two members, and padding"


PACKERS: Final = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd.compress,
}


@pytest.mark.parametrize("outer", [None, *PACKERS])
@pytest.mark.parametrize("name", PACKERS)
def test_packings(name: str, outer: str | None) -> None:
    """In members of any size, packed once more by mistake, and in slices."""
    pack = PACKERS[name]
    body = sitemap("".join(f"<url><loc>/{number}</loc></url>" for number in range(20_000)))
    packed = pack(body[:70]) + pack(body[70:])
    if outer is not None:
        packed = PACKERS[outer](packed)
    parsed = PackedParser().parse(Source("http://a.example/x", "", packed))
    assert (len(parsed.links), parsed.notes) == (20_000, ())
    if outer is None:
        cut = PackedParser().parse(Source("http://a.example/x", "", packed[:-20]))
        assert "broken_gzip" in cut.notes


def test_what_is_packed_again_and_again_is_not_read() -> None:
    body = sitemap("<url><loc>/a</loc></url>")
    for _ in range(4):
        body = gzip.compress(body)
    with pytest.raises(Unreadable):
        read(body)


def test_packed_and_cut() -> None:
    body = sitemap("".join(f"<url><loc>/{number}</loc></url>" for number in range(10_000)))
    parsed = read(gzip.compress(body)[:9_000])
    assert 1_000 < len(parsed.links) < 10_000
    assert set(parsed.notes) == {"broken_xml", "broken_gzip"}


@pytest.mark.parametrize("body", [b"<html>", b"<?xml version='1.0'?><a/>", b"\0\1\2\3"])
@pytest.mark.parametrize("is_sitemap", [True, False])
def test_packed_and_something_else(body: bytes, is_sitemap: bool) -> None:
    source = Source("http://a.example/a.gz", "", gzip.compress(body), is_sitemap=is_sitemap)
    with pytest.raises(Unreadable):
        PackedParser().parse(source)


def test_packed_text_is_read_where_it_is_named_as_a_sitemap() -> None:
    text = "http://a.example/it's-(1).\r\n\r\n# more\nhttp://a.example/2\n"
    for body in (text.encode("utf-8-sig"), text.encode("utf-16")):
        packed = gzip.compress(body)
        named = PackedParser().parse(Source("http://a.example/x.gz", "", packed, is_sitemap=True))
        assert named.links == (listed("http://a.example/it's-(1)."), listed("http://a.example/2"))
        with pytest.raises(Unreadable):
            PackedParser().parse(Source("http://a.example/x.gz", "", packed))


@pytest.mark.parametrize("root", ["rss", "feed"])
def test_a_packed_feed(root: str) -> None:
    entry = {
        "rss": "<channel><item><link>http://a.example/1</link></item></channel>",
        "feed": "<entry><link href='http://a.example/1'/></entry>",
    }[root]
    space = {"rss": "", "feed": "xmlns='http://www.w3.org/2005/Atom'"}[root]
    body = f"<?xml version='1.0'?><!-- {'c' * 100_000} --><{root} {space}>{entry}</{root}>"
    parsed = PackedParser().parse(Source("http://a.example/x", "", gzip.compress(body.encode())))
    assert (parsed.parser, parsed.links) == ("feed", (Link("http://a.example/1", LinkKind.ENTRY),))


@pytest.mark.parametrize("size", [8_300, 70_000, 900_000])
@pytest.mark.parametrize("packed", [False, True])
def test_a_long_licence_before_the_first_element(size: int, packed: bool) -> None:
    body = (
        b"<?xml version='1.0'?><!--"
        + b"c" * size
        + b"-->"
        + sitemap("<url><loc>/a</loc></url>")[21:]
    )
    assert urls(read(gzip.compress(body) if packed else body)) == ["/a"]


def test_a_bomb_is_read_to_50_megabytes() -> None:
    """200 KB that would be 200 MB; an entry at its beginning is kept."""
    packer = zlib.compressobj(wbits=31)
    start = sitemap("<url><loc>/a</loc></url>", end=" ")
    spaces = bytes([32]) * MEGABYTE
    bomb = packer.compress(start) + b"".join(packer.compress(spaces) for _ in range(200))
    bomb += packer.flush()
    assert len(bomb) < MEGABYTE
    parsed = read(bomb)
    assert (urls(parsed), set(parsed.notes)) == (["/a"], {"broken_xml", "unpacked_cut"})
    unpacked = UnpackedBody(bomb)
    assert sum(map(len, unpacked)) == MAX_BYTES


@pytest.mark.parametrize(
    "doctype",
    [
        pytest.param(
            '<!ENTITY a "aaaaaaaaaa">'
            + "".join(
                f'<!ENTITY {name} "{f"&{of};" * 10}">'
                for of, name in zip("abcdefgh", "bcdefghi", strict=True)
            ),
            id="a billion laughs",
        ),
        pytest.param('<!ENTITY i SYSTEM "file:///etc/hostname">', id="a file of ours"),
        pytest.param('<!ENTITY i SYSTEM "http://127.0.0.1:9/">', id="a server of ours"),
        pytest.param('<!ENTITY % i SYSTEM "http://127.0.0.1:9/"> %i;', id="a whole DTD"),
        pytest.param(f'<!ENTITY i "{"a" * 5_000}">', id="one that is long"),
    ],
)
def test_entities_are_not_expanded(doctype: str) -> None:
    body = f"<!DOCTYPE urlset [{doctype}]><urlset><url><loc>/&i;</loc></url></urlset>"
    parsed = read(body.encode())
    assert (parsed.links, parsed.notes) == ((), ("broken_xml",))


def test_a_dtd_elsewhere_is_not_fetched() -> None:
    body = (
        b'<!DOCTYPE urlset SYSTEM "http://127.0.0.1:9/x.dtd">'
        + sitemap("<url><loc>/a</loc></url>").partition(b"?>")[2]
    )
    assert urls(read(body)) == ["/a"]


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(b"<a>", id="without end"),
        pytest.param(b"<a/>", id="elements"),
        pytest.param(b"&</url", id="ends that do not end"),
        pytest.param(b"&<loc>", id="fields that do not end"),
        pytest.param(b"&<url></url>", id="empty entries"),
        pytest.param(b"<!-- ", id="a comment"),
        pytest.param(b"&<![CDATA[", id="CDATA"),
        pytest.param(b"<url><loc>", id="entries in entries"),
        pytest.param(b"&lt;", id="references"),
    ],
)
def test_time_is_linear_in_the_body(piece: bytes) -> None:
    began = process_time()
    read(sitemap("", end=" ") + piece * (4 * MEGABYTE // len(piece)))
    assert process_time() - began < 15.0  # a second or so; at a quadratic price an hour


@given(st.binary(max_size=300), st.integers(0, 200))
def test_broken_sitemaps_raise_no_error(junk: bytes, where: int) -> None:
    body = sitemap("<url><loc>/a</loc></url><url><loc>/b</loc><priority>0.5</priority></url>")
    read(body[:where] + junk + body[where:])


def test_other_xml_is_text() -> None:
    body = b"<?xml version='1.0'?><book><title>A &lt; B</title>see http://a.example/.</book>"
    parsed = read(body)
    assert (parsed.parser, parsed.text) == ("xml", "A < B see http://a.example/.")
    assert parsed.links == (Link("http://a.example/", LinkKind.TEXT),)


def test_a_page_as_xml_is_a_page() -> None:
    assert read(b"<?xml version='1.0'?><html><title>x</title></html>").parser == "html"
