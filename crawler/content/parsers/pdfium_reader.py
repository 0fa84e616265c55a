"""Reads a PDF with pdfium, page by page up to the limits.

Rule: a page that cannot be read is skipped, and the number of pages that a PDF states is not
trusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ctypes import byref, c_int, c_ushort, create_string_buffer, sizeof
from typing import Final

import pypdfium2 as pdfium  # type: ignore[import-untyped]  # it has no types
from pypdfium2 import raw

from crawler.content.parsers.dates import epoch
from crawler.content.parsers.loading import (
    LINKS_CUT,
    MAX_LINKS,
    MAX_TEXT_CHARS,
    MAX_WORD_CHARS,
    TEXT_CUT,
)
from crawler.content.parsers.plain import urls
from crawler.model.page import (
    Link,
    LinkKind,
    Parsed,
    Source,
    Unreadable,
)

PAGES_CUT: Final = "pages_cut"
BROKEN_PAGES: Final = "broken_pages"
_MAX_PAGES: Final = 2_000  # guess: 5 s of text; books have fewer
_LANGUAGE_LETTERS: Final = 64
_MAX_BROKEN: Final = 100  # in a row; then the stated number of pages is wrong

# pdfium marks a word that is hyphenated at the end of a line with one of these.
_HYPHENATED: Final = re.compile("[\x02\ufffe](\r\n)?")
# D:20240131235959+01'00'; everything behind the year is optional (ISO 32000-1, 7.9.4).
_DATE: Final = re.compile(
    r"(?:D:)?(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?(?:Z|([+-]\d\d)'?(\d\d)?)?.*"
)
_LEAST: Final = ("1970", "01", "01", "00", "00", "00", "+00", "00")


def read_pdf(source: Source, parser: str) -> Parsed:
    try:
        document = pdfium.PdfDocument(source.body)
    except pdfium.PdfiumError as error:
        raise Unreadable(str(error)) from error
    with document:
        read = _Reading(document)
        return Parsed(
            parser=parser,
            title=" ".join(_meta(document, "Title").split()),
            text="\n".join(read.texts),
            links=tuple(read.links.values()),
            language=_language(document),
            published=_epoch(_meta(document, "CreationDate")),
            modified=_epoch(_meta(document, "ModDate")),
            notes=tuple(read.notes),
        )


class _Reading:
    """The text, links and notes of all pages, read by the constructor."""

    def __init__(self, document: pdfium.PdfDocument) -> None:
        self.texts: list[str] = []
        self.links: dict[str, Link] = {}
        self.notes: dict[str, None] = {}
        self._document = document
        self._chars = 0
        self._read()

    def _read(self) -> None:
        stated_pages = len(self._document)
        broken = 0
        for number in range(min(stated_pages, _MAX_PAGES)):
            try:
                self._read_page(number)
                broken = 0
            except pdfium.PdfiumError:
                self.notes[BROKEN_PAGES] = None
                broken += 1
            if self._chars > MAX_TEXT_CHARS:
                self.notes[TEXT_CUT] = None
                return
            if broken == _MAX_BROKEN:
                return
        if stated_pages > _MAX_PAGES:
            self.notes[PAGES_CUT] = None

    def _read_page(self, number: int) -> None:
        page = self._document[number]
        try:
            for url in _annotated(self._document, page):
                self._add(Link(url, LinkKind.A))
            text_page = page.get_textpage()
            try:
                text = (
                    _HYPHENATED.sub("", text_page.get_text_bounded()).replace("\r\n", "\n").strip()
                )
            finally:
                text_page.close()
        finally:
            page.close()
        for url in urls(text):
            self._add(Link(url, LinkKind.TEXT))
        self.texts += [text] if text else []
        self._chars += len(text)

    def _add(self, link: Link) -> None:
        if len(self.links) < MAX_LINKS:
            self.links.setdefault(link.url, link)
        elif link.url not in self.links:
            self.notes[LINKS_CUT] = None


def _annotated(document: pdfium.PdfDocument, page: pdfium.PdfPage) -> Iterator[str]:
    """Yield the URLs of the page's link annotations."""
    position, link = c_int(0), raw.FPDF_LINK()
    for _ in range(MAX_LINKS):
        if not raw.FPDFLink_Enumerate(page, byref(position), byref(link)):
            return
        action = raw.FPDFLink_GetAction(link)
        if action and raw.FPDFAction_GetType(action) == raw.PDFACTION_URI:
            buffer = create_string_buffer(MAX_WORD_CHARS + 1)
            length = raw.FPDFAction_GetURIPath(document, action, buffer, len(buffer))
            if 1 < length <= len(buffer):
                yield buffer.value.decode("utf-8", "replace").strip()


def _meta(document: pdfium.PdfDocument, key: str) -> str:
    value: str = document.get_metadata_value(key)
    return value


def _language(document: pdfium.PdfDocument) -> str:
    """Return the language that the document catalogue declares (ISO 32000-1, 14.9.2)."""
    buffer = (c_ushort * _LANGUAGE_LETTERS)()
    # In bytes, with NUL.
    length: int = raw.FPDFCatalog_GetLanguage(document, buffer, sizeof(buffer))
    return "".join(map(chr, buffer)).rstrip("\0") if length <= sizeof(buffer) else ""


def _epoch(written: str) -> float | None:
    found = _DATE.fullmatch(written.strip()[:MAX_WORD_CHARS])
    if found is None:
        return None
    parts = (given or least for given, least in zip(found.groups(), _LEAST, strict=True))
    return epoch("{}-{}-{}T{}:{}:{}{}:{}".format(*parts))
