"""PDF: its text, its links, what it says of itself.

Rule: always in a process apart: pdfium is C++ that reads what anybody may have written.
"""

from __future__ import annotations

from typing import Final

from crawler.model.page import Parsed, Source


class PdfParser:
    """Implements core.parsed.Parser."""

    name: Final = "pdf"
    types: Final = frozenset({"application/pdf", "application/x-pdf"})
    inline_max_bytes: Final = 0

    def parse(self, source: Source) -> Parsed:
        from crawler.content.parsers.pdf_reading import read_pdf  # noqa: PLC0415  # loads pdfium

        return read_pdf(source, self.name)
