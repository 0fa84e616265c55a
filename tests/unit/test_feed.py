"""RSS and Atom: the content of a feed, and the pages of its entries."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.content.parsers.feed import FeedParser
from crawler.model.page import (
    Link,
    LinkKind,
    Parsed,
    Source,
    Unreadable,
)
from crawler.page.media_type import actual_type

MAY_6 = 1714989600.0  # 2024, 10:00 UTC


def read(body: str | bytes, content_type: str = "application/rss+xml") -> Parsed:
    written = body.encode() if isinstance(body, str) else body
    return FeedParser().parse(Source("http://a.example/blog/feed", content_type, written))


def entry(url: str, modified: float | None = None) -> Link:
    return Link(url, LinkKind.ENTRY, modified=modified)


RSS = """<?xml version="1.0"?><rss version="2.0"><channel>
    <title>News &amp; more</title><link>http://a.example/blog/</link><language>de-AT</language>
    <description>All that happens</description>
    <lastBuildDate>Mon, 06 May 2024 12:00:00 +0200</lastBuildDate>
    <item><title>One</title><link>http://a.example/1</link>
        <pubDate>Mon, 06 May 2024 10:00:00 GMT</pubDate>
        <description>&lt;p>First &lt;b>st&lt;/b>ory&lt;/p>&lt;p>End&lt;/p></description>
        <enclosure url="http://a.example/1.mp3" type="audio/mpeg" length="1"/></item>
    <item><title>Two</title><link>../2</link><description>plain</description></item>
    <item><title>Three</title><guid>http://a.example/3</guid></item>
    </channel></rss>"""

ATOM = """<feed xmlns="http://www.w3.org/2005/Atom" xml:lang="en" xml:base="http://b.example/x/">
    <title type="html">&lt;i&gt;Atom&lt;/i&gt;</title><updated>2024-05-06T10:00:00Z</updated>
    <link href="http://b.example/"/><link rel="self" href="feed"/><link rel="next" href="?page=2"/>
    <entry><title>One</title><link href="1"/><updated>2024-05-06T12:00:00+02:00</updated>
        <summary>short</summary>
        <content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><p>long</p></div></content>
    </entry></feed>"""

RDF = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
    xmlns="http://purl.org/rss/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/">
    <channel><title>Old</title><link>http://c.example/</link></channel>
    <item rdf:about="http://c.example/1"><title>One</title><link>http://c.example/1</link>
        <dc:date>2024-05-06T10:00:00Z</dc:date></item></rdf:RDF>"""


def test_rss() -> None:
    parsed = read(RSS)
    assert parsed == Parsed(
        parser="feed",
        title="News & more",
        text="News & more\nAll that happens\nOne\nFirst story\nEnd\nTwo\nplain\nThree",
        links=(
            Link("http://a.example/blog/", LinkKind.ALTERNATE, "alternate"),
            entry("http://a.example/1", MAY_6),
            Link("http://a.example/1.mp3", LinkKind.MEDIA, "enclosure"),
            entry("http://a.example/2"),
            entry("http://a.example/3"),
        ),
        language="de-AT",
        modified=MAY_6,
        charset="utf-8",
    )


def test_atom() -> None:
    parsed = read(ATOM, "application/atom+xml")
    assert parsed == Parsed(
        parser="feed",
        title="Atom",
        text="Atom\nOne\nlong",  # an entry's content stands for its summary
        links=(
            Link("http://b.example/", LinkKind.ALTERNATE, "alternate"),
            Link("http://b.example/x/?page=2", LinkKind.ALTERNATE, "next"),
            entry("http://b.example/x/1", MAY_6),
        ),
        language="en",
        modified=MAY_6,
        charset="utf-8",
    )


def test_rss_in_rdf() -> None:
    assert read(RDF).links[-1] == entry("http://c.example/1", MAY_6)


@pytest.mark.parametrize("version", ["0.90", "0.91", "0.92", "2.0"])
def test_rss_of_every_version(version: str) -> None:
    parsed = read(
        f"<rss version='{version}'><channel><item><link>http://a.example/1</link></item></channel>"
        "</rss>"
    )
    assert parsed.links == (entry("http://a.example/1"),)


def test_broken_xml_keeps_what_can_be_read() -> None:
    parsed = read(RSS.replace("&amp;", "&").replace("</channel></rss>", ""))
    assert [link.url for link in parsed.links if link.kind is LinkKind.ENTRY] == [
        *("http://a.example/1", "http://a.example/2", "http://a.example/3")
    ]
    assert parsed.notes == ("broken_xml",)


def test_letters_of_another_encoding() -> None:
    body = (
        "<?xml version='1.0' encoding='iso-8859-1'?><rss><channel><title>Ä</title></channel></rss>"
    )
    parsed = read(body.encode("iso-8859-1"), "application/rss+xml; charset=utf-8")
    assert parsed.title == "Ä"


@pytest.mark.parametrize(
    ("written", "read_as"),
    [
        pytest.param("&#128512;", "\U0001f600", id="a picture"),
        pytest.param("&#55357;&#56832;", "\ufffd\ufffd", id="one in halves"),
        pytest.param("&#xD83D;&#xDE00;", "\ufffd\ufffd", id="in hexadecimal ones"),
        pytest.param("&#1114112;", "\ufffd", id="beyond the last"),
        pytest.param(f"&#{'9' * 5000};", "\ufffd", id="far beyond"),
        pytest.param("&#0;&#xFFFF;", "\ufffd\ufffd", id="what XML forbids"),
        pytest.param("&#000065;&#x0041;", "AA", id="zeros before it"),
    ],
)
def test_characters_by_number(written: str, read_as: str) -> None:
    parsed = read(RSS.replace("Two", written))
    assert f"\n{read_as}\n" in parsed.text
    assert (len(parsed.links), parsed.notes) == (5, ())


@pytest.mark.parametrize(
    "encoding",
    ["klingon", "idna", "zip", "rot13", "punycode", "undefined", "utf-7", "UT\0F", "\u20288"],
)
def test_encodings_outside_the_web_standard_are_read_as_utf_8(encoding: str) -> None:
    parsed = read(RSS.replace('"1.0"', f'"1.0" encoding="{encoding}"').replace("Two", "Zwölf"))
    assert "Zwölf" in parsed.text and parsed.charset == "utf-8"


def test_bytes_that_are_no_text_name_no_encoding() -> None:
    body = RSS.replace('"1.0"', '"1.0" encoding="utf-8"').encode().replace(b"utf-8", b"utf\xed8")
    assert len(read(body).links) == 5


@pytest.mark.parametrize(
    "element",
    [
        pytest.param("<links>x</links>", id="a list"),
        pytest.param("<links a='b'/>", id="a list, with attributes"),
        pytest.param("<title_detail>x</title_detail>", id="the details of a text"),
        pytest.param("<published_parsed>123456</published_parsed>", id="a date"),
    ],
)
def test_an_element_called_as_what_is_made_of_others(element: str) -> None:
    items = f"<item><link>http://a.example/1</link>{element}</item>"
    parsed = read(f"<rss><channel>{items}</channel></rss>")
    assert parsed.links == (entry("http://a.example/1"),)


def test_errors_of_feedparser_make_a_feed_unreadable() -> None:
    with pytest.raises(Unreadable, match="feedparser: ValueError"):
        read(RSS.replace("<rss", "<rss xmlns='a\xa0b\xa0c'"))


@given(
    junk=st.binary(max_size=20)
    | st.sampled_from([b"&#55357;", b"<links>", b"<link a='b'/>", b" encoding='x'", b"]]>", b"'"]),
    where=st.integers(0, len(RSS)),
    instead_of=st.integers(0, 20),
)
def test_broken_feeds_are_read_or_unreadable(junk: bytes, where: int, instead_of: int) -> None:
    body = RSS.encode()
    with suppress(Unreadable):
        read(body[:where] + junk + body[where + instead_of :])


@pytest.mark.parametrize(
    "body", ["", "Once upon a time", "<html><title>x</title></html>", "{}", "\0\0"]
)
def test_other_documents_are_unreadable_as_feeds(body: str) -> None:
    with pytest.raises(Unreadable):
        read(body)


def test_a_body_that_names_a_file_or_a_url_opens_none() -> None:
    for body in ("/etc/hostname", "file:///etc/hostname", "http://127.0.0.1:9/"):
        with pytest.raises(Unreadable):
            read(body)


@pytest.mark.parametrize(
    "doctype",
    [
        pytest.param(
            '<!ENTITY a "ha">'
            + "".join(
                f'<!ENTITY {name} "{f"&{of};" * 10}">'
                for of, name in zip("abcdefgh", "bcdefghi", strict=True)
            ),
            id="a billion laughs",
        ),
        pytest.param('<!ENTITY i SYSTEM "file:///etc/hostname">', id="a file of ours"),
        pytest.param('<!ENTITY i SYSTEM "http://127.0.0.1:9/">', id="a server of ours"),
    ],
)
def test_entities_are_not_expanded(doctype: str) -> None:
    body = f"<!DOCTYPE rss [{doctype}]>" + RSS.partition("?>")[2].replace("One", "x&i;")
    parsed = read(body)
    assert parsed.title == "News & more"
    assert len(parsed.text) < 200


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_feed_in_utf_16_without_a_mark(encoding: str) -> None:
    body = (
        RSS.replace('"1.0"?', '"1.0" encoding="utf-16"?')
        .replace("News", "N\xe9ws")
        .encode(encoding)
    )
    sniffed = actual_type("application/rss+xml", "http://a.example/feed", body)
    assert (sniffed.media_type, sniffed.is_mislabelled) == ("application/rss+xml", False)
    feed = read(body)
    assert feed.title == "N\xe9ws & more"
    assert entry("http://a.example/1", MAY_6) in feed.links
