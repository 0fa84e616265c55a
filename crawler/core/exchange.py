"""One request and its answer, as they crossed the wire. Arrow: fetch -> content.

Rule: bytes as sent, never as understood: what an archive needs is here and in no other place.
The register hands an exchange from the download handler to the middleware without touching
`request.meta`, which holds one key of ours only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from weakref import WeakKeyDictionary

from crawler.core.choices import Tls
from crawler.core.errors import CrawlerError

NO_LIMIT: Final = 1 << 40
STOPPED: Final = "download_stopped"  # Scrapy's flag for what a user's component ended
_LINE_END: Final = re.compile(rb"\r?\n")


class Truncated(StrEnum):
    """Why a body is not whole, in the words of WARC-Truncated."""

    NO = ""
    LENGTH = "length"  # our cap
    TIME = "time"  # our time-out
    DISCONNECT = "disconnect"  # the server left
    UNSPECIFIED = "unspecified"  # its chunks could not be read any further

    @property
    def flag(self) -> str:
        """The same for `Response.flags`."""
        return f"truncated_{self}"


class Flag(StrEnum):
    """What decoding did to a body, for `Response.flags`."""

    DECODED_LENGTH = "decoded_length"  # cut at the cap
    DECODED_CUT = "decoded_cut"  # ends before its coding does: what could be read is kept
    DECODED_BROKEN = "decoded_broken"  # damaged or mislabelled: what could be read is kept
    UNDECODED = "undecoded"  # in a coding we do not know, or in too many


def breakage(flags: Collection[str]) -> str:
    """Why a body with these `Response.flags` is not whole through no doing of ours, as an error
    of `Answer`. Empty: it is whole, or ended by our cap, our time-out or a user's component."""
    if Truncated.DISCONNECT.flag in flags:
        return "disconnect"
    if Truncated.UNSPECIFIED.flag in flags:
        return "" if STOPPED in flags else "protocol"
    # Codings within a body that was cut, or was damaged before, end early in consequence.
    others = {Truncated.LENGTH.flag, Truncated.TIME.flag, Flag.DECODED_LENGTH, Flag.DECODED_BROKEN}
    return "disconnect" if Flag.DECODED_CUT in flags and others.isdisjoint(flags) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its answer. A *head* is all before the body: first line, header lines,
    empty line."""

    url: str
    at: float  # epoch seconds, before the request
    duration_s: float  # from then to the last byte
    request_head: bytes
    request_body: bytes = b""
    head: bytes
    body: bytes  # still compressed, no longer in chunks
    ip: str
    tls: str = ""  # "TLSv1.3"; empty: none
    truncated: Truncated = Truncated.NO

    @property
    def request_line(self) -> bytes:
        return _LINE_END.split(self.request_head, 1)[0]

    @property
    def request_headers(self) -> list[tuple[bytes, bytes]]:
        """In the order sent; names as sent, values without the white space around them."""
        return head_fields(self.request_head)

    @property
    def status_line(self) -> bytes:
        return _LINE_END.split(self.head, 1)[0]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """As `request_headers`; of the answer."""
        return head_fields(self.head)


def head_fields(head: bytes) -> list[tuple[bytes, bytes]]:
    """The header lines of a head. A line without a colon is a name without a value."""
    lines = _LINE_END.split(head)[1:]
    pairs = (line.partition(b":") for line in lines if line)
    return [(name, value.strip(b" \t")) for name, _, value in pairs]


class Exchanges:
    """Who fetched what: exchanges by the request they answer.

    Bound: one for each request alive, for an entry goes with its request. (A `Request` has
    no equals; it is the same object from the downloader to the last middleware.)
    """

    __slots__ = ("_by_request",)

    def __init__(self) -> None:
        self._by_request: WeakKeyDictionary[object, Exchange] = WeakKeyDictionary()

    def put(self, request: object, exchange: Exchange) -> None:
        """For the download handlers only."""
        self._by_request[request] = exchange

    def take(self, request: object) -> Exchange | None:
        """Hand it over, once. None: not fetched, or taken already."""
        return self._by_request.pop(request, None)

    def __len__(self) -> int:
        return len(self._by_request)


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadOptions:
    """What the download edge is told. It decides nothing itself."""

    cap: Callable[[bytes | None, str], int]  # Content-Type, URL -> bytes kept, headers included
    # address, host name, port -> may it be connected to?
    admits: Callable[[str, str, int], bool]
    # lease -> may its host still be asked? If not, its URL is put back.
    begin_or_put_back: Callable[[object], bool] = lambda _: True
    tls: Tls = Tls.STRICT
    connect_timeout_s: float = 5.0
    total_timeout_s: float = 30.0
    # guess: fast hosts are revisited within it, and many servers close at 5 s themselves
    keepalive_s: float = 4.0
    # Chrome's limit (net::HttpStreamParser): what is longer is not sent by a web server
    head_max_bytes: int = 256 * 1024

    def room(self, content_type: bytes | None, url: str, asked: int | None = None) -> int:
        """Bytes kept of an answer. *asked*: the request's own `download_maxsize`, where as
        everywhere in Scrapy 0 is no limit."""
        return self.cap(content_type, url) if asked is None else asked or NO_LIMIT


class AddressRefused(CrawlerError):
    """A host name leads, or a URL points, to an address that must not be contacted.
    Caller: give the URL up; trying again changes nothing."""

    reason: Final = "inside_address"
