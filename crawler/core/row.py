"""What the columns say of one page: the row of it that people ask questions of.

Rule: values only; what a page does not say is empty or None.
"""

from __future__ import annotations

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Arrow: content -> columns. File and offset of its record come with its place."""

    url: str  # as fetched
    host: str  # its name, whatever the unit of politeness is
    fetched_at: float  # epoch seconds, when the fetch began
    status: int
    media_type: str = ""  # text/html
    language: str = ""  # as declared: de, en-GB
    title: str = ""
    text: str = ""  # empty of an exact copy: it is with its original
    links: int = 0  # on the page, of all kinds
    canonical: str = ""  # absolute; empty: not declared
    published: float | None = None  # epoch seconds, where the page says so
    modified: float | None = None
    digest: bytes = b""  # SHA-1 of the decoded body
    simhash: int | None = None  # of its text, unsigned; None: it has too little
    original: str = ""  # the URL whose content it repeats, exactly or nearly
    bits: int | None = None  # of 64 that differ from it; None: the very bytes, or no copy
    may_repeat: bool = False  # its URL may have its text in another row, too
