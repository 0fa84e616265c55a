"""The parser for PDF: its text, links and metadata.

Rule: it runs only in a separate process, because pdfium is C++ and its input may be hostile.
"""

from __future__ import annotations

from typing import Final

from crawler.model.page import Parsed, Source


class PdfParser:
    """Implements crawler.model.page.Parser."""

    name: Final = "pdf"
    types: Final = frozenset({"application/pdf", "application/x-pdf"})
    inline_max_bytes: Final = 0

    def parse(self, source: Source) -> Parsed:
        from crawler.content.parsers.pdfium_reader import read_pdf  # noqa: PLC0415  # loads pdfium

        return read_pdf(source, self.name)
