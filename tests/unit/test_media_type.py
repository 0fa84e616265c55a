"""The media type of an answer by its bytes, and how much of an answer is read."""

from __future__ import annotations

import bz2
import gzip
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config.settings import FetchSettings
from crawler.page.media_type import (
    HEAD_BYTES,
    Markup,
    SniffResult,
    actual_type,
    markup,
    media_type,
    type_by_content,
)
from crawler.policy.body_caps import cap_bytes
from crawler.policy.robots import MIN_BODY_BYTES
from tests.harness.measuring import cpu_seconds

PAGE = b"<!DOCTYPE html><html><head><title>x</title>"
XHTML = b'<?xml version="1.0"?><!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0"><html>'
SITEMAP = b'<?xml version="1.0"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
RSS = b'<?xml version="1.0"?><!-- made by hand --><rss version="2.0"><channel>'
ATOM = b'<feed xmlns="http://www.w3.org/2005/Atom">'
RDF = b'<rdf:RDF xmlns:rdf="x" xmlns="http://purl.org/rss/1.0/">'
PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
JPEG = b"\xff\xd8\xff\xe0" + bytes(100)
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"
ZIP = b"PK\x03\x04" + bytes(100)
ELF = b"\x7fELF\x02\x01\x01" + bytes(100)
MP4 = b"\x00\x00\x00\x18ftypmp42" + bytes(100)
NOT_MP4 = b"\x00\x00\x00\x19ftypmp42" + bytes(100)
NO_BRAND = b"\x00\x00\x00\x18ftyp\x01\x02\x03\x04" + bytes(100)
AVIF = b"\x00\x00\x00\x20ftypavif" + bytes(100)
WOFF = b"wOF2" + bytes(100)
GZ = gzip.compress(SITEMAP)
JSON = b'{"a": 1}'
NULS = bytes(2000)
PROSE = b"Once upon a time."


@pytest.mark.parametrize(
    ("declared", "body", "media_type", "lies"),
    [
        # What is nearly always so.
        pytest.param("text/html; charset=utf-8", PAGE, "text/html", False, id="a page"),
        pytest.param("TEXT/HTML", b"Hello", "text/html", False, id="a page without any tag"),
        pytest.param("application/xhtml+xml", XHTML, "application/xhtml+xml", False, id="XHTML"),
        pytest.param("text/html", XHTML, "text/html", False, id="XHTML sent as HTML is HTML"),
        pytest.param("text/html", b"\xef\xbb\xbf \n" + PAGE, "text/html", False, id="with a BOM"),
        pytest.param("text/html", b"", "text/html", False, id="an empty body is no lie of its own"),
        pytest.param("application/pdf", PDF, "application/pdf", False, id="a PDF"),
        pytest.param("image/png", PNG, "image/png", False, id="a picture"),
        pytest.param("application/json", JSON, "application/json", False, id="JSON"),
        pytest.param("application/rss+xml", RSS, "application/rss+xml", False, id="a feed"),
        pytest.param("application/x-new", NULS, "application/x-new", False, id="an unknown type"),
        # Nothing is declared, or nothing that says anything.
        pytest.param("", PAGE, "text/html", False, id="untold: a page"),
        pytest.param("", b"<!-- x --> <P>", "text/html", False, id="untold: a part of a page"),
        pytest.param("nonsense", PAGE, "text/html", False, id="no media type at all: a page"),
        pytest.param("application/octet-stream", PAGE, "text/html", False, id="bytes: a page"),
        pytest.param("application/octet-stream", PDF, "application/pdf", False, id="bytes: a PDF"),
        pytest.param("", PNG, "image/png", False, id="untold: a picture"),
        pytest.param("", SITEMAP, "application/xml", False, id="untold: a sitemap"),
        pytest.param("", RSS, "application/rss+xml", False, id="untold: a feed"),
        pytest.param("", GZ, "application/gzip", False, id="untold: packed"),
        pytest.param("", PROSE, "text/plain", False, id="untold: text"),
        pytest.param("", NULS, "application/octet-stream", False, id="untold: binary data"),
        pytest.param("binary/octet-stream", ZIP, "application/zip", False, id="bytes: an archive"),
        # Declared as something to read, and is not.
        pytest.param("text/html", PNG, "image/png", True, id="a picture called a page"),
        pytest.param("text/html", JPEG, "image/jpeg", True, id="a photograph called a page"),
        pytest.param("text/html", b"GIF89a..", "image/gif", True, id="a GIF called a page"),
        pytest.param("text/html", b"RIFF\0\0\0\0WEBPVP8 ", "image/webp", True, id="a WebP"),
        pytest.param("text/html", PDF, "application/pdf", True, id="a PDF called a page"),
        pytest.param("text/html", ZIP, "application/zip", True, id="an archive called a page"),
        pytest.param("text/html", GZ, "application/gzip", True, id="a page packed once more"),
        pytest.param("text/html", ELF, "application/x-executable", True, id="a program"),
        pytest.param("text/html", MP4, "video/mp4", True, id="a film called a page"),
        pytest.param("text/html", AVIF, "video/mp4", True, id="a picture in a film's wrapping"),
        pytest.param("text/html", b"Net ftyp of", "text/html", False, id="a word like a film's"),
        pytest.param("", b"The ftypes are", "text/plain", False, id="untold: such a word"),
        pytest.param("", NOT_MP4, "application/octet-stream", False, id="untold: no film's length"),
        pytest.param("", NO_BRAND, "application/octet-stream", False, id="untold: no film's brand"),
        pytest.param("text/html", WOFF, "font/woff2", True, id="a font called a page"),
        pytest.param("text/html", NULS, "application/octet-stream", True, id="nothing but NULs"),
        pytest.param("text/plain", PNG, "image/png", True, id="a picture called text"),
        pytest.param("text/plain", NULS, "application/octet-stream", True, id="NULs called text"),
        pytest.param("text/csv", ZIP, "application/zip", True, id="a spreadsheet called CSV"),
        pytest.param("application/xml", PNG, "image/png", True, id="a picture called XML"),
        # Looks so, and is none.
        pytest.param("text/html", b"\0 \0" + PAGE, "text/html", False, id="a few NULs in a page"),
        pytest.param(
            "text/html; charset=utf-16le", "<p>x".encode("utf-16-le"), "text/html", False,
            id="UTF-16 is half NULs",
        ),
        pytest.param("text/html", PAGE.decode().encode("utf-16"), "text/html", False,
                     id="UTF-16 with its mark"),
        pytest.param("text/plain", b"\x1b[31mred\x1b[0m", "text/plain", False, id="a coloured log"),
        # Declared as a file, and is the page that says sorry.
        pytest.param("image/png", PAGE, "text/html", True, id="an error page for a picture"),
        pytest.param("application/pdf", PAGE, "text/html", True, id="an error page for a PDF"),
        pytest.param("application/json", PAGE, "text/html", True, id="an error page for JSON"),
        pytest.param("application/gzip", PAGE, "text/html", True, id="an error page for a file"),
        pytest.param("application/pdf", PNG, "image/png", True, id="a picture called PDF"),
        pytest.param("image/png", PDF, "application/pdf", True, id="a PDF called a picture"),
        pytest.param("application/pdf", b"junk\n" + PDF, "application/pdf", False,
                     id="readers find a PDF behind junk"),
        pytest.param("image/png", JPEG, "image/jpeg", False, id="a browser shows it all the same"),
        pytest.param("image/svg+xml", b"<?xml version='1.0'?><svg>", "image/svg+xml", False,
                     id="a drawing"),
        pytest.param("application/msword", PAGE, "application/msword", False,
                     id="Word itself writes such documents"),
        # Text that is another text.
        pytest.param("text/plain", PAGE, "text/plain", False, id="HTML as text is source code"),
        pytest.param("text/plain", SITEMAP, "application/xml", False, id="a sitemap called text"),
        pytest.param("text/html", SITEMAP, "application/xml", False, id="a sitemap called a page"),
        pytest.param("text/html", RSS, "application/rss+xml", False, id="a feed called a page"),
        pytest.param("text/plain", ATOM, "application/atom+xml", False, id="a feed called text"),
        pytest.param("text/html", RDF, "application/rdf+xml", False, id="RSS 1.0 called a page"),
        pytest.param("text/xml", RSS, "application/rss+xml", False, id="a feed called XML"),
        pytest.param("application/xml", RDF, "application/rdf+xml", False, id="RSS 1.0"),
        pytest.param("application/rdf+xml", b"<rdf:RDF xmlns:rdf='x'>", "application/rdf+xml",
                     False, id="RDF that is no feed keeps its type"),
        pytest.param("application/xml", SITEMAP, "application/xml", False, id="a sitemap"),
        pytest.param("application/xml", XHTML, "text/html", False, id="a page called XML"),
        pytest.param("text/xml", PAGE, "text/html", False, id="an error page for a sitemap"),
        pytest.param("application/xml", PROSE, "application/xml", False, id="XML of no element"),
        pytest.param("application/xml", GZ, "application/gzip", False,
                     id="a packed sitemap by the type of what is in it"),
        pytest.param("application/x-gzip", GZ, "application/x-gzip", False, id="a packed sitemap"),
        pytest.param("application/x-gzip", SITEMAP, "application/xml", False,
                     id="a packed sitemap that was unpacked on its way"),
    ],
)  # fmt: skip
def test_the_media_type(declared: str, body: bytes, media_type: str, lies: bool) -> None:
    sniffed = actual_type(declared, "http://a.example/x", body)
    assert sniffed == SniffResult(media_type, is_mislabelled=lies)


@pytest.mark.parametrize("declared", ["text/html", "text/plain", "", "application/xml"])
def test_a_packed_sitemap_is_known_by_its_name(declared: str) -> None:
    """Many servers have no type for .xml.gz, and send their default."""
    sniffed = actual_type(declared, "http://a.example/sitemap.xml.gz?v=1", GZ)
    assert sniffed == SniffResult("application/gzip", is_mislabelled=False)


@pytest.mark.parametrize(
    ("body", "declared", "kind"),
    [
        pytest.param(SITEMAP, "application/json", "application/xml", id="a sitemap"),
        pytest.param(GZ, "text/plain", "application/gzip", id="a packed one"),
        pytest.param(bz2.compress(SITEMAP), "text/xml", "application/x-bzip2", id="by bzip2"),
        pytest.param(lzma.compress(SITEMAP), "text/xml", "application/x-xz", id="by xz"),
        pytest.param(RSS, "image/png", "application/rss+xml", id="a feed"),
        pytest.param(b"http://a.example/1\n", "text/html", "text/plain", id="a list of URLs"),
        pytest.param(b"http://a.example/1\n", "application/xml", "text/plain", id="as XML"),
        pytest.param(PAGE, "text/plain", "text/html", id="a page"),
        pytest.param(b"<center>", "text/html", "text/html", id="a page, as it says"),
        pytest.param(PNG, "application/xml", "image/png", id="a picture"),
    ],
)
def test_what_is_named_as_a_sitemap_is_what_is_in_it(body: bytes, declared: str, kind: str) -> None:
    assert type_by_content(body, declared) == kind


@pytest.mark.parametrize("long", [b"<!--" + b"c" * 9_000 + b"-->", b" " * 9_000, b"<?a ?>" * 2_000])
def test_the_first_element_may_come_late(long: bytes) -> None:
    assert markup(long + b"<a>").element == "a"
    assert actual_type("text/html", "", long + RSS).media_type == "application/rss+xml"
    assert actual_type("text/xml", "", long + RDF).media_type == "application/rdf+xml"


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        pytest.param(b"<a>", Markup("", "a"), id="an element"),
        pytest.param(b"<sm:urlset xmlns:sm='x'>", Markup("", "urlset"), id="with a prefix"),
        pytest.param(b"<?xml version='1.0'?><a/>", Markup("", "a", True), id="a declaration"),
        pytest.param(b"<!-- <b> --><?pi?> <a>", Markup("", "a"), id="what stands before"),
        pytest.param(b"<!DOCTYPE a [<!ENTITY b 'c>'>]><a>", Markup("a", "a"), id="a subset"),
        pytest.param(b"<!DOCTYPE a [<!-- ] --> ]  ><b>", Markup("a", "b"), id="a bracket in it"),
        pytest.param(b"<!DOCTYPE a []]><b>", Markup("a", "b"), id="a bracket too many"),
        pytest.param(b"<!DOCTYPE a [<b>", Markup(), id="a subset that does not end"),
        pytest.param(b"<!doctype HTML>text", Markup("html", ""), id="a type without an element"),
        pytest.param(b"text <a>", Markup(), id="text"),
        pytest.param(b"<a", Markup(), id="an element that does not end"),
        pytest.param(b"<!-- <a>", Markup(), id="a comment that does not end"),
        pytest.param(b"</a><b>", Markup(), id="an end"),
        pytest.param(b"\xff\xfe" + "<a>".encode("utf-16-le"), Markup("", "a"), id="UTF-16"),
        pytest.param(b"", Markup(), id="nothing"),
    ],
)
def test_how_markup_begins(body: bytes, seen: Markup) -> None:
    assert markup(body) == seen


@given(
    st.sampled_from(["", "text/html", "text/plain", "text/xml", "image/png", "application/gzip"]),
    st.one_of(
        st.binary(max_size=3000),
        st.lists(st.sampled_from([PAGE, GZ, PNG, b"<!--", b"-->", b"<?", b"]>", b"\0", b" "]),
                 max_size=20).map(b"".join),
    ),
)  # fmt: skip
def test_every_body_has_a_media_type(declared: str, body: bytes) -> None:
    sniffed = actual_type(declared, "http://a.example/", body)
    assert sniffed.media_type or not declared
    assert not (sniffed.is_mislabelled and sniffed.media_type == declared)


@pytest.mark.parametrize(
    "piece",
    [
        *(b"<!--", b"-", b"-->", b"<!---->", b"<?", b"?>", b"<", b"<a", b"</", b" ", b">"),
        *(b"a", b"a:", b"a ", b"[", b"]", b"] ", b"]a", b"[]", b"<!doctype a [", b"<!doctype a[] "),
    ],
)
@pytest.mark.parametrize(
    "start", [b"", b"<", b"<!doctype", b"<!doctype a", b"<!doctype a[", b"<!doctype " + b"a" * 900]
)
def test_time_is_linear_in_the_body(start: bytes, piece: bytes) -> None:
    """Eight times the head takes about eight times as long."""

    def reading(size: int) -> None:
        actual_type("text/html", "", start + piece * (size // len(piece)))

    few, many = (cpu_seconds(lambda n=n: reading(n)) for n in (HEAD_BYTES // 8, 2 * HEAD_BYTES))
    assert many < 24 * few + 0.005


CAPS = FetchSettings(html_max_bytes=2_000, pdf_max_bytes=64_000, other_max_bytes=15_000)
PAGE_URL = "http://example.com/page"


@pytest.mark.parametrize(
    ("content_type", "url", "want"),
    [
        pytest.param(b"text/html", PAGE_URL, 2_000, id="HTML"),
        pytest.param(b" TEXT/HTML ; charset=utf-8", PAGE_URL, 2_000, id="however it is written"),
        pytest.param(b"text/html,text/html", PAGE_URL, 2_000, id="given twice"),
        pytest.param(b"application/xhtml+xml", PAGE_URL, 2_000, id="XHTML"),
        pytest.param(b"application/pdf", PAGE_URL, 64_000, id="PDF"),
        pytest.param(b"image/png", PAGE_URL, 15_000, id="anything else"),
        pytest.param(b"text/html", PAGE_URL + ".pdf", 2_000, id="the header counts, not the name"),
        pytest.param(None, PAGE_URL, 2_000, id="no header: a page"),
        pytest.param(b"", PAGE_URL, 2_000, id="an empty header: a page"),
        pytest.param(b"nonsense", PAGE_URL, 2_000, id="no type in it: a page"),
        pytest.param(b"\xff/\xfe", PAGE_URL, 2_000, id="bytes: a page"),
        pytest.param(None, PAGE_URL + ".PDF?x=1", 64_000, id="no header, but a name"),
        pytest.param(
            b"application/octet-stream", PAGE_URL + ".pdf", 64_000, id="bytes with a name"
        ),
        pytest.param(b"application/octet-stream", PAGE_URL, 15_000, id="bytes without"),
    ],
)
def test_cap(content_type: bytes | None, url: str, want: int) -> None:
    assert cap_bytes(content_type, url, CAPS) == want


def test_the_defaults_are_those_that_were_asked_for() -> None:
    assert 2_000_000 <= cap_bytes(b"text/html", PAGE_URL, FetchSettings()) <= 2 * 1024 * 1024
    assert (
        64_000_000 <= cap_bytes(b"application/pdf", PAGE_URL, FetchSettings()) <= 64 * 1024 * 1024
    )


@pytest.mark.parametrize("content_type", [None, b"text/plain", b"text/html"])
def test_a_robots_txt_is_never_cut_below_what_must_be_read(content_type: bytes | None) -> None:
    assert cap_bytes(content_type, "http://example.com/robots.txt", CAPS) > MIN_BODY_BYTES


@given(st.binary(max_size=50))
def test_no_header_raises_an_error(content_type: bytes) -> None:
    assert media_type(content_type).isascii()
    assert cap_bytes(content_type, PAGE_URL, CAPS) in (2_000, 15_000, 64_000)
