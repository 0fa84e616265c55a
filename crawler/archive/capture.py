"""The values that the archive writes, and the places of their records.

Rule: all values are frozen and hold bytes as they were on the wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from crawler.model.page import ColumnsRow, Link
from crawler.model.types import Claim

Truncated = Literal["", "length", "time", "disconnect", "unspecified"]
"""Why a body ends early, in the words of WARC 1.1 section 5.13; empty if it is complete."""


class Dom(msgspec.Struct, frozen=True, gc=False):
    """What a browser has made of an answer."""

    body: bytes  # UTF-8
    sha1: bytes


class Capture(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One answer of a server, with its request. Arrow: fetch -> archive."""

    url: str  # as fetched
    fetched_at: float  # epoch seconds, when the fetch began
    ip: str = ""  # of the server; empty if not known
    tls: str = ""  # "TLSv1.3"; empty without TLS
    request: bytes = b""  # line, headers, blank line and body as sent; empty if not known
    head: bytes = b""  # status line and headers as received; if empty, made of the next four
    version: bytes = b"HTTP/1.1"
    status: int = 0
    reason: bytes = b""
    headers: Sequence[tuple[bytes, bytes]] = ()  # as received, in their order
    body: bytes = b""  # content-encoded as received; only chunks are joined
    body_sha1: bytes = b""  # if empty, it is computed
    truncated: Truncated = ""
    duplicate_of: Claim | None = None  # the same body is archived there already
    # For a 304: the answer that is archived. Where, and by which digest, need not be known.
    not_modified_of: Claim | None = None
    metadata: Sequence[tuple[str, str]] = ()  # of the metadata record; a name may occur twice
    outlinks: Sequence[Link] = ()  # for the metadata record; absolute, to http(s)
    row: ColumnsRow | None = None  # for the columns; None if it is no page
    dom: Dom | None = None  # None: it was not rendered, or the archive has it of another page
    is_info: bool = False  # not the answer itself: *body* is a PageInfo, in JSON


PAGE_INFO: Final = "urn:pageinfo:"
"""Before the URL of a record that holds what is kept of a page in place of its answer; other
crawlers have records of this name too."""


DOM: Final = "urn:dom:"
"""Before the URL of the record of the DOM that a browser has made of the page."""


class PageInfo(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a page marked noindex. Arrow: fetch -> archive."""

    row: ColumnsRow
    outlinks: tuple[Link, ...]


class RecordPlace(msgspec.Struct, frozen=True, gc=False):
    """The place of a capture's response or revisit record. Arrow: archive -> frontier."""

    file: str  # name only, as it will be when the file is finished
    offset: int
    length: int  # of its gzip member

    def __str__(self) -> str:
        """Return the form that `Claim.record` holds."""
        return f"{self.file}:{self.offset}"


AnswerKind: TypeAlias = Literal["response", "revisit", "resource", "conversion"]
"""Of a record that has a line in the index. A conversion is the DOM of a page."""


class ResponseRecord(NamedTuple):
    """The facts that an index takes from the record of an answer."""

    kind: AnswerKind
    head: bytes  # of HTTP, up to and with the blank line
    payload_sha1: bytes  # for a revisit: of the payload it repeats


class StoredCapture(NamedTuple):
    """A capture that was written to a file. Arrow: writer -> companions."""

    capture: Capture
    place: RecordPlace
    answer: ResponseRecord
    dom: RecordPlace | None  # the place of the record of its DOM
