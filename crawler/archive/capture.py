"""What goes into the archive, and where it came to lie.

Rule: frozen values, as they were on the wire; how they are written down is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from crawler.model.page import ColumnsRow, Link
from crawler.model.types import Claim

Truncated = Literal["", "length", "time", "disconnect", "unspecified"]
"""Why a body ends early, in the words of WARC 1.1 section 5.13. Empty: it is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One answer of a server and the question it was given. Arrow: fetch -> archive."""

    url: str  # as fetched
    fetched_at: float  # epoch seconds, when the fetch began
    ip: str = ""  # of the server; empty: not known
    tls: str = ""  # "TLSv1.3"; empty: none
    request: bytes = b""  # its line, headers, blank line and body as sent; empty: not known
    head: bytes = b""  # status line and headers as received; empty: made of the next four
    version: bytes = b"HTTP/1.1"
    status: int = 0
    reason: bytes = b""
    headers: Sequence[tuple[bytes, bytes]] = ()  # as received, in their order
    body: bytes = b""  # content-encoded as it came; only chunks are joined
    body_sha1: bytes = b""  # where it is known already; empty: worked out here
    truncated: Truncated = ""
    duplicate_of: Claim | None = None  # the same body is archived there already
    not_modified_of: Claim | None = None  # a 304: what was asked about is archived there
    metadata: Sequence[tuple[str, str]] = ()  # what else we know; a name may come twice
    outlinks: Sequence[Link] = ()  # of the page, for its metadata; absolute, to http(s)
    row: ColumnsRow | None = None  # for the columns; None: it is no page


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where the response or revisit record of a capture lies. Arrow: archive -> frontier."""

    file: str  # name only, as it will be when the file is finished
    offset: int
    length: int  # of its gzip member

    def __str__(self) -> str:
        """The form that `Claim.record` holds."""
        return f"{self.file}:{self.offset}"


class ResponseRecord(NamedTuple):
    """The response or revisit record of a capture, as it is written down."""

    kind: Literal["response", "revisit"]
    head: bytes  # of HTTP, up to and with the blank line
    payload_sha1: bytes  # of a revisit: of what it stands for


class StoredCapture(NamedTuple):
    """A capture that is in a file now. Arrow: writer -> companions."""

    capture: Capture
    place: RecordPlace
    answer: ResponseRecord
