"""The media type of an answer: as declared, and as its bytes say.

Rule: time and memory are linear in what is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from crawler.page.encodings import detect_unicode

HTML: Final = "text/html"
CSS: Final = "text/css"
PDF: Final = "application/pdf"
RSL: Final = "application/rsl+xml"
HTML_TYPES: Final = frozenset({HTML, "application/xhtml+xml"})
XML_TYPES: Final = frozenset({"application/xml", "text/xml"})
GZIP_TYPES: Final = frozenset(
    {"application/gzip", "application/x-gzip", "application/gzip-compressed"}
)
PACKED_TYPES: Final = GZIP_TYPES | {
    *("application/x-bzip2", "application/bzip2", "application/x-bzip"),
    *("application/x-xz", "application/zstd"),
}
# Most servers have no type of their own for a manifest.
MANIFEST_TYPES: Final = frozenset({"application/manifest+json", "application/json"})
UNDECLARED: Final = frozenset({"", "application/octet-stream", "binary/octet-stream"})


def media_type(content_type: bytes | None) -> str:
    """Return the type in the header, lower case, without parameters; "" if there is none."""
    first = (content_type or b"").partition(b";")[0].partition(b",")[0]
    kind = first.strip().lower()
    return kind.decode("ascii") if kind.isascii() and b"/" in kind else ""


# The document type and first element of markup, from its first bytes, in linear time.

HEAD_BYTES: Final = 8192  # guess: room for a licence before the first element
LONG_HEAD_BYTES: Final = 1024 * 1024  # guess; read if the first element may come later

# What may precede the first element; the name of a document type is group 1. Possessive, so that
# what does not end fails at once, not after a try from each of its letters.
_BEFORE: Final = re.compile(
    rb"""\s++ | <\?.*?> | <!--.*?-->
    | <!doctype\s++([^\s>\[]++)[^\[>]*+(?:\[(?:[^\]]++|\](?!\s*+>))*+\]\s*+)?+>""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_ELEMENT: Final = re.compile(rb"<(?:[a-z_][\w.-]*+:)?+([a-z_][\w.-]*+)(?=[\s/>])", re.IGNORECASE)


class Markup(msgspec.Struct, frozen=True):
    """The beginning of a markup text. Names are in lower case, without prefix, or empty."""

    doctype: str = ""
    element: str = ""
    declared: bool = False  # it begins with <?xml


def markup(body: bytes) -> Markup:
    seen, is_open = _markup(head_of(body))
    if is_open and len(body) > HEAD_BYTES:
        seen, _ = _markup(head_of(body, LONG_HEAD_BYTES))
    return seen


def _markup(head: bytes) -> tuple[Markup, bool]:
    """Return how *head* begins, and whether more of it would tell more."""
    at, doctype = 0, b""
    while before := _BEFORE.match(head, at):
        doctype = doctype or before[1] or b""
        at = before.end()
    element = _ELEMENT.match(head, at)
    seen = Markup(
        doctype.lower().decode("latin-1"),
        element[1].lower().decode("latin-1") if element else "",
        head.startswith(b"<?xml"),
    )
    return seen, element is None and head[at : at + 1] in (b"", b"<")


def head_of(body: bytes, size: int = HEAD_BYTES) -> bytes:
    """Return the first bytes, in UTF-8 or similar, without byte order mark and leading space."""
    head = body[:size]
    encoding, bom = detect_unicode(head)
    if encoding is not None and bom is not None:
        head = head[len(bom) :]
        if encoding != "utf-8":
            head = head.decode(encoding, "ignore").encode()
    return head.lstrip()


# The actual type of an answer, in the spirit of WHATWG MIME Sniffing. A type is false if it
# declares binary data as text, or an error page as a file; not if a browser would show the page.

XML: Final = "application/xml"
GZIP: Final = "application/gzip"
TEXT: Final = "text/plain"
BINARY: Final = "application/octet-stream"

_UNDECLARED: Final = UNDECLARED | {"unknown/unknown", "application/unknown", "*/*"}

# Offset and bytes by which a file begins, and its type.
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
    (4, b"1AY&SY", "application/x-bzip2"),
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
_NO_FILE: Final = frozenset({b"<", b" ", b"\t", b"\n", b"\r"})  # as nearly every page begins
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


class SniffResult(msgspec.Struct, frozen=True):
    """The actual type of an answer."""

    media_type: str
    is_mislabelled: bool  # it cannot be what it was declared as


def actual_type(declared: str, url: str, body: bytes) -> SniffResult:
    """Return the type of *body*. *declared*: the Content-Type header as received, or empty."""
    kind = media_type(declared.encode("latin-1", "replace"))
    if not body:
        return SniffResult(kind, is_mislabelled=False)
    if kind in _UNDECLARED:
        return SniffResult(
            _type_by_bytes(body) or _text_or_binary(declared, body), is_mislabelled=False
        )
    return _sniffer_of(kind)(kind, declared, url, body)


def _sniffer_of(kind: str) -> Callable[[str, str, str, bytes], SniffResult]:
    if kind in GZIP_TYPES:
        return _sniff_gzip
    if kind in (PDF, "application/json") or _is_media(kind):
        return _sniff_file
    if _is_xml(kind):
        return _sniff_markup
    return _sniff_text if kind in HTML_TYPES or kind.startswith("text/") else _keep_declared


def _keep_declared(kind: str, _declared: str, _url: str, _body: bytes) -> SniffResult:
    """Keep the declared type of office documents and programs: they are not parsed, and some are
    rightly HTML."""
    return SniffResult(kind, is_mislabelled=False)


def _sniff_markup(kind: str, declared: str, url: str, body: bytes) -> SniffResult:
    binary = _sniff_binary(kind, declared, url, body)
    return binary or SniffResult(_markup_type(markup(body), body) or kind, is_mislabelled=False)


def _sniff_text(kind: str, declared: str, url: str, body: bytes) -> SniffResult:
    """Sniff HTML and text. HTML declared as text is source code and stays text; feeds and sitemaps
    are often declared as HTML or text."""
    binary = _sniff_binary(kind, declared, url, body)
    return binary or SniffResult(_list_type(markup(body), body) or kind, is_mislabelled=False)


def _sniff_binary(kind: str, declared: str, url: str, body: bytes) -> SniffResult | None:
    """Sniff what was declared as text. Returns None if it is text."""
    found = _binary_type(declared, body)
    # The type may be that of the file within, or a default, as .xml.gz has no type.
    declares_content = _is_xml(kind) or _is_xml_gz(url)
    return (
        SniffResult(found, is_mislabelled=not (found == GZIP and declares_content))
        if found
        else None
    )


def _sniff_file(kind: str, _declared: str, _url: str, body: bytes) -> SniffResult:
    found = _signature(body)
    if kind == PDF and b"%PDF-" in body[:_PDF_WITHIN]:
        found = PDF
    if found:
        # Browsers show a JPEG declared as PNG, and play a film declared as sound.
        alike = found == kind or (_is_media(kind) and _is_media(found))
        return SniffResult(found, is_mislabelled=not alike)
    is_page = _is_html(markup(body))
    return SniffResult(HTML if is_page else kind, is_mislabelled=is_page)


def _sniff_gzip(kind: str, declared: str, url: str, body: bytes) -> SniffResult:
    """Sniff a gzip file. If the body is not gzip, it was compressed for its transfer too."""
    found = _type_by_bytes(body)
    if found in ("", GZIP):
        return SniffResult(kind, is_mislabelled=False)
    return SniffResult(found, is_mislabelled=found == HTML)


def type_by_content(body: bytes, declared: str) -> str:
    """Return the type of *body* by what is in it. Only of other markup it is as *declared*."""
    kind = media_type(declared.encode("latin-1", "replace"))
    is_markup = (kind in HTML_TYPES or _is_xml(kind)) and markup(body).element
    return _type_by_bytes(body) or (kind if is_markup else _text_or_binary("", body))


def _type_by_bytes(body: bytes) -> str:
    return _signature(body) or _markup_type(markup(body), body)


def _markup_type(start: Markup, body: bytes) -> str:
    """Return the type of a text that begins so, or "" if it may be of any."""
    listed = _list_type(start, body)
    if listed or start.element == "svg":
        return listed or "image/svg+xml"
    if _is_html(start):
        return HTML
    return XML if start.declared else ""


def _list_type(start: Markup, body: bytes) -> str:
    """Return the type of a feed or sitemap, or "" if it is none."""
    if start.element == "rdf" and any(mark in body[:LONG_HEAD_BYTES] for mark in _RSS_IN_RDF):
        return "application/rdf+xml"
    return _LISTS.get(start.element, "")


def _is_html(start: Markup) -> bool:
    """Return whether it is HTML. Other dialects of XML have a title too, but are declared XML."""
    named = start.element == "html" or (start.element in _HTML_ELEMENTS and not start.declared)
    return start.doctype == "html" or named


def _is_media(kind: str) -> bool:
    return kind.startswith(("image/", "audio/", "video/", "font/"))


def _is_xml(kind: str) -> bool:
    return kind in XML_TYPES or (kind.endswith("+xml") and kind not in HTML_TYPES)


def _is_xml_gz(url: str) -> bool:
    return url.partition("?")[0].partition("#")[0].lower().endswith(".xml.gz")


def _text_or_binary(declared: str, body: bytes) -> str:
    return BINARY if _binary_type(declared, body) else TEXT


def _binary_type(declared: str, body: bytes) -> str:
    """Return the type of binary data, or "" if it is text."""
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
    """Return whether the first box has a length and a brand (ISO 14496-12, 4.3): "ftyp" alone may
    be a word."""
    if body[4:8] != b"ftyp":
        return False
    length = int.from_bytes(body[:4], "big")
    brand = body[8:12]
    is_word = len(brand) == 4 and brand.isascii() and brand.decode("ascii").isprintable()
    return 16 <= length <= _LONGEST_FTYP and length % 4 == 0 and is_word
