"""What a fetch brought, on its way through the pipelines. Arrow: fetch -> content.

Rule: a stage returns a new Page with what it found out; no stage changes the one it got.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from crawler.core.exchange import Exchange
from crawler.core.types import Claim


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
    digest: bytes = b""  # SHA-1 of the body, once known
    duplicate_of: Claim | None = None
    title: str = ""
    links: tuple[str, ...] = ()  # as written, to be followed; relative to `base`
    base: str = ""
    archive: bool = True  # False: its author asked not to be indexed
    record: str = ""  # "file:offset" of its archive record, once written
