"""The parser for PDF: its text, links and metadata.

Rule: it runs only in a separate process, because pdfium is C++ and its input may be hostile.
"""

from __future__ import annotations

from typing import Final

from crawler.model.page import Parsed, Source, Unreadable


class PdfParser:
    """Implements crawler.model.page.Parser."""

    name: Final = "pdf"
    types: Final = frozenset({"application/pdf", "application/x-pdf"})
    inline_max_bytes: Final = 0

    def parse(self, source: Source) -> Parsed:
        try:
            from crawler.content.parsers.pdfium_reader import (  # noqa: PLC0415  # loads pdfium
                read_pdf,
            )
        except ImportError as missing:
            raise Unreadable("pypdfium2 is not installed") from missing
        return read_pdf(source, self.name)
