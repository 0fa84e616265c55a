"""How much of an answer is read, by its type. At the cap the fetch stops and what came is kept.

Rule: a cap counts headers and body together, on the wire and decoded alike, so that a
decompression bomb ends at the same figure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from crawler.config.settings import FetchSettings
from crawler.policy.encodings import unicode_mark
from crawler.policy.robots import MIN_BODY_BYTES

HTML: Final = "text/html"
PDF: Final = "application/pdf"
HTML_TYPES: Final = frozenset({HTML, "application/xhtml+xml"})
XML_TYPES: Final = frozenset({"application/xml", "text/xml"})
GZIP_TYPES: Final = frozenset({"application/gzip", "application/x-gzip"})
UNTOLD: Final = frozenset({"", "application/octet-stream", "binary/octet-stream"})

ROBOTS_BYTES: Final = MIN_BODY_BYTES + 64 * 1024
"""What a robots.txt is always allowed: as much as must be read of it, and headers."""


def cap_bytes(content_type: bytes | None, url: str, caps: FetchSettings) -> int:
    """The most bytes kept of the answer to *url* with this Content-Type header."""
    kind = media_type(content_type)
    if kind in UNTOLD:
        kind = _guessed(url, kind)
    cap = caps.other_max_bytes
    if kind in HTML_TYPES:
        cap = caps.html_max_bytes
    elif kind == PDF:
        cap = caps.pdf_max_bytes
    elif kind in XML_TYPES or (kind in GZIP_TYPES and "sitemap" in url):
        cap = caps.sitemap_max_bytes
    return max(cap, ROBOTS_BYTES) if url.endswith("/robots.txt") else cap


def media_type(content_type: bytes | None) -> str:
    """The header's type without its parameters, lower case. Empty: it has none."""
    first = (content_type or b"").partition(b";")[0].partition(b",")[0]
    kind = first.strip().lower()
    return kind.decode("ascii") if kind.isascii() and b"/" in kind else ""


def _guessed(url: str, kind: str) -> str:
    path = url.partition("?")[0].lower()
    if path.endswith(".pdf"):
        return PDF
    return kind or HTML  # no header at all: most likely a page


# What a text that begins with markup is: its document type and its first element.
#
# Rule: a look at the first bytes, linear; whether the rest is well-formed is for its parser.

HEAD_BYTES: Final = 8192  # guess: room for the licence that some put before the first element

# What may stand before the first element; the name of a document type is kept.
# Possessive: what does not end is given up at once, not tried again from each of its letters.
_BEFORE: Final = re.compile(
    rb"""\s++ | <\?.*?> | <!--.*?-->
    | <!doctype\s++([^\s>\[]++)[^\[>]*+(?:\[(?:[^\]]++|\](?!\s*+>))*+\]\s*+)?+>""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_ELEMENT: Final = re.compile(rb"<(?:[a-z_][\w.-]*+:)?+([a-z_][\w.-]*+)(?=[\s/>])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Markup:
    """How a text begins. Names in lower case, without prefix; empty: none."""

    doctype: str = ""
    element: str = ""
    declared: bool = False  # <?xml comes first


def markup(body: bytes) -> Markup:
    head = head_of(body)
    at, doctype = 0, b""
    while before := _BEFORE.match(head, at):
        doctype = doctype or before[1] or b""
        at = before.end()
    element = _ELEMENT.match(head, at)
    return Markup(
        doctype.lower().decode("latin-1"),
        element[1].lower().decode("latin-1") if element else "",
        head.startswith(b"<?xml"),
    )


def head_of(body: bytes) -> bytes:
    """Its first bytes as UTF-8 or what is like it, without byte order mark and space before."""
    head = body[:HEAD_BYTES]
    encoding, bom = unicode_mark(head)
    if encoding is not None and bom is not None:
        head = head[len(bom) :]
        if encoding != "utf-8":
            head = head.decode(encoding, "ignore").encode()
    return head.lstrip()


# What an answer is, by its bytes: where nothing is declared, or something else than came.
#
# Rule: the WHATWG's MIME Sniffing in spirit. A page that a browser would show as a page is none
# that lies; binary data declared as text is, and so is an error page in place of a file.

XML: Final = "application/xml"
GZIP: Final = "application/gzip"
TEXT: Final = "text/plain"
BINARY: Final = "application/octet-stream"

_UNTOLD: Final = UNTOLD | {"unknown/unknown", "application/unknown", "*/*"}
_XML_TYPES: Final = frozenset({XML, "text/xml"})
_GZIP_TYPES: Final = frozenset({GZIP, "application/x-gzip", "application/gzip-compressed"})

# How a file begins, at which byte, and its type.
_SIGNATURES: Final = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBPVP8", "image/webp"),
    (0, b"%PDF-", PDF),
    (0, b"\x1f\x8b\x08", GZIP),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"PK\x05\x06", "application/zip"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (0, b"Rar!\x1a\x07", "application/vnd.rar"),
    (0, b"\xfd7zXZ\x00", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (0, b"\x7fELF", "application/x-executable"),
    (0, b"\x00asm", "application/wasm"),
    (0, b"wOFF", "font/woff"),
    (0, b"wOF2", "font/woff2"),
    (0, b"\x1a\x45\xdf\xa3", "video/webm"),
    (8, b"WAVEfmt ", "audio/wav"),
    (8, b"AVI LIST", "video/x-msvideo"),
    (0, b"OggS\x00", "application/ogg"),
    (0, b"ID3\x03", "audio/mpeg"),
    (0, b"ID3\x04", "audio/mpeg"),
    (0, b"SQLite format 3\x00", "application/vnd.sqlite3"),
)
_MP4: Final = "video/mp4"
_LONGEST_FTYP: Final = 1024  # guess: it names brands of four letters, mostly six of them
_NO_FILE: Final = frozenset({b"<", b" ", b"\t", b"\n", b"\r"})  # nearly every page begins so
_PDF_WITHIN: Final = 1024  # readers allow so many bytes of something else before a PDF

# Elements that nothing but HTML begins with (those of MIME Sniffing, 7.1).
_HTML_ELEMENTS: Final = frozenset(
    {"html", "head", "body", "script", "iframe", "h1", "div", "font", "table", "a", "style"}
    | {"title", "b", "br", "p", "meta", "link"}
)
_LISTS: Final = {
    "rss": "application/rss+xml",
    "feed": "application/atom+xml",
    "urlset": XML,
    "sitemapindex": XML,
}
_RSS_IN_RDF: Final = (b"purl.org/rss/1.0", b"my.netscape.com/rdf/simple", b"channel.netscape.com")

_SAMPLE_BYTES: Final = 1445  # MIME Sniffing, 5.2
_BINARY: Final = bytes({*range(0x20)} - set(b"\t\n\f\r\x1b"))
# guess: a stray control character is in many pages, in every tenth place only in binary data
_BINARY_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Sniffed:
    """What it is."""

    media_type: str
    lies: bool  # it was declared as what it cannot be


def actual_type(declared: str, url: str, body: bytes) -> Sniffed:
    """*declared*: the Content-Type header as it came; empty: none."""
    kind = media_type(declared.encode("latin-1", "replace"))
    if not body:
        return Sniffed(kind, lies=False)
    if kind in _UNTOLD:
        return Sniffed(_by_bytes(body) or _text_or_binary(declared, body), lies=False)
    return _judge_of(kind)(kind, declared, url, body)


def _judge_of(kind: str) -> Callable[[str, str, str, bytes], Sniffed]:
    if kind in _GZIP_TYPES:
        return _of_gzip
    if kind in (PDF, "application/json") or _is_media(kind):
        return _of_file
    if _is_xml(kind):
        return _of_markup
    return _of_text if kind in HTML_TYPES or kind.startswith("text/") else _as_declared


def _as_declared(kind: str, _declared: str, _url: str, _body: bytes) -> Sniffed:
    """Office documents, programs: nobody reads them here, and some of them are HTML rightly."""
    return Sniffed(kind, lies=False)


def _of_markup(kind: str, declared: str, url: str, body: bytes) -> Sniffed:
    binary = _binary(kind, declared, url, body)
    return binary or Sniffed(_told_by(markup(body), body) or kind, lies=False)


def _of_text(kind: str, declared: str, url: str, body: bytes) -> Sniffed:
    """HTML, and text: as text, HTML is source code, shown as such. But nobody reads a feed or a
    sitemap so, and many are called HTML."""
    binary = _binary(kind, declared, url, body)
    return binary or Sniffed(_list_type(markup(body), body) or kind, lies=False)


def _binary(kind: str, declared: str, url: str, body: bytes) -> Sniffed | None:
    """What was declared as text, and is none."""
    found = _binary_type(declared, body)
    # The type of the file within; or a default, where .xml.gz has no type.
    told_within = _is_xml(kind) or _is_xml_gz(url)
    return Sniffed(found, lies=not (found == GZIP and told_within)) if found else None


def _of_file(kind: str, _declared: str, _url: str, body: bytes) -> Sniffed:
    found = _signature(body)
    if kind == PDF and b"%PDF-" in body[:_PDF_WITHIN]:
        found = PDF
    if found:
        # A JPEG that is called PNG is shown all the same, a film that is called sound played.
        alike = found == kind or (_is_media(kind) and _is_media(found))
        return Sniffed(found, lies=not alike)
    is_page = _is_html(markup(body))
    return Sniffed(HTML if is_page else kind, lies=is_page)


def _of_gzip(kind: str, declared: str, url: str, body: bytes) -> Sniffed:
    """One that is unpacked already was gzip for its transfer too."""
    found = _by_bytes(body)
    if found in ("", GZIP):
        return Sniffed(kind, lies=False)
    return Sniffed(found, lies=found == HTML)


def _by_bytes(body: bytes) -> str:
    return _signature(body) or _told_by(markup(body), body)


def _told_by(seen: Markup, body: bytes) -> str:
    """The type of a text that begins so. Empty: any."""
    listed = _list_type(seen, body)
    if listed or seen.element == "svg":
        return listed or "image/svg+xml"
    if _is_html(seen):
        return HTML
    return XML if seen.declared else ""


def _list_type(seen: Markup, body: bytes) -> str:
    """Of a feed or sitemap. Empty: it is none."""
    if seen.element == "rdf" and any(mark in body[:_SAMPLE_BYTES] for mark in _RSS_IN_RDF):
        return "application/rdf+xml"
    return _LISTS.get(seen.element, "")


def _is_html(seen: Markup) -> bool:
    """Other dialects of XML have a title too, but are declared XML."""
    named = seen.element == "html" or (seen.element in _HTML_ELEMENTS and not seen.declared)
    return seen.doctype == "html" or named


def _is_media(kind: str) -> bool:
    return kind.startswith(("image/", "audio/", "video/", "font/"))


def _is_xml(kind: str) -> bool:
    return kind in _XML_TYPES or (kind.endswith("+xml") and kind not in HTML_TYPES)


def _is_xml_gz(url: str) -> bool:
    return url.partition("?")[0].partition("#")[0].lower().endswith(".xml.gz")


def _text_or_binary(declared: str, body: bytes) -> str:
    return BINARY if _binary_type(declared, body) else TEXT


def _binary_type(declared: str, body: bytes) -> str:
    """Empty: it is text."""
    found = _signature(body)
    if found or "utf-16" in declared.lower() or "utf-32" in declared.lower():
        return found
    sample = head_of(body)[:_SAMPLE_BYTES]
    binary = len(sample) - len(sample.translate(None, _BINARY))
    return BINARY if binary > _BINARY_SHARE * len(sample) else ""


def _signature(body: bytes) -> str:
    if body[:1] in _NO_FILE:
        return ""
    found = (kind for at, signature, kind in _SIGNATURES if body.startswith(signature, at))
    return next(found, "") or (_MP4 if _is_mp4(body) else "")


def _is_mp4(body: bytes) -> bool:
    """ISO 14496-12, 4.3: its first box has a length and a brand; "ftyp" alone may be of a word."""
    if body[4:8] != b"ftyp":
        return False
    length = int.from_bytes(body[:4], "big")
    brand = body[8:12]
    is_word = len(brand) == 4 and brand.isascii() and brand.decode("ascii").isprintable()
    return 16 <= length <= _LONGEST_FTYP and length % 4 == 0 and is_word
