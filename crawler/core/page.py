"""What a fetch brought, on its way through the pipelines. Arrow: fetch -> content.

Rule: a stage returns a new Page with what it found out; no stage changes the one it got.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from crawler.core.exchange import Exchange
from crawler.core.parsed import Link, Parsed
from crawler.core.types import HTTP_OK, Claim


class Flaw(StrEnum):
    """Why an answer is archived, but no page: it has no columns, and nothing is a copy of it."""

    NONE = ""
    EMPTY = "empty"
    LYING_TYPE = "lying_type"  # its bytes are of another type than its header says
    SOFT_404 = "soft_404"  # status 200, and what this host says of any name it does not know


@dataclass(frozen=True, slots=True)
class Near:
    """A page with nearly the same text."""

    original: Claim
    bits: int  # of 64 that differ; 0: the same text in other bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer worth keeping. The item that the spider `web` yields: users' own pipelines
    see it too, and may replace it with `dataclasses.replace`."""

    url: str
    status: int
    content_type: str  # as declared; empty: not declared
    body: bytes = field(repr=False)  # decoded (gzip and the like taken off), cut at the cap
    depth: int
    lease_id: int
    # As it crossed the wire; None: nobody recorded it.
    exchange: Exchange | None = field(default=None, repr=False)
    flags: tuple[str, ...] = ()  # truncated_length, decoded_broken...
    media_type: str = ""  # what it is: as declared, or as its bytes say where nothing is
    flaw: Flaw = Flaw.NONE
    digest: bytes = b""  # SHA-1 of the body, once known
    duplicate_of: Claim | None = None
    parsed: Parsed | None = field(default=None, repr=False)  # None: nobody has read it
    title: str = ""
    text: str = field(default="", repr=False)  # what a reader came for
    simhash: int | None = None  # of its text; None: it has too little
    near: Near | None = None
    alias_of: str = ""  # the URL it names as its canonical one, where that counts
    outlinks: tuple[Link, ...] = field(default=(), repr=False)  # to http(s), absolute; bounded
    # To be followed; a plain string is a link as from <a href>.
    links: tuple[Link | str, ...] = field(default=(), repr=False)
    archive: bool = True  # False: its author asked not to be indexed
    may_repeat: bool = False  # whoever had its URL before may have archived it, and died
    record: str = ""  # "file:offset" of its archive record, once written

    @property
    def is_answered(self) -> bool:
        """It was asked for and given: no error, no redirect."""
        return self.status in HTTP_OK

    @property
    def is_copy(self) -> bool:
        """Another page with these very bytes is stored already."""
        same = self.duplicate_of
        if same is None or same.url == self.url:
            return False
        return self.is_answered and same.status in HTTP_OK

    @property
    def is_again(self) -> bool:
        """It is stored already itself, with these very bytes: a crash came before its finish, or
        it is visited again. It counts as any page; its text is with its first record."""
        same = self.duplicate_of
        if same is None or same.url != self.url or self.flaw:
            return False
        return self.is_answered and (same.status in HTTP_OK or bool(self.alias_of))

    @property
    def is_repeat(self) -> bool:
        """Its bytes need not be archived again. A page with the bytes of an error is no copy of
        it: its text is read from a record of its own."""
        is_page = self.is_answered and not self.flaw
        return self.is_copy or self.is_again or (self.duplicate_of is not None and not is_page)
