"""The fetch port: a request as it is sent, what comes back, and what is asked while it goes on.

Rule: behind it are the network and a replay. They know of no lease, no retry and no time-out, and
of Scrapy nothing but its exceptions: those are its callers'.
"""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Protocol

import msgspec

from crawler.download.http_head import AnswerHead
from crawler.model.page import Exchange, Truncated


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it is sent. Arrow: plan, or Scrapy's request -> fetch."""

    url: str
    method: str = "GET"
    fields: tuple[tuple[bytes, bytes], ...] = ()  # of its head, in their order
    body: bytes = b""
    proxy: str = ""  # URL or host and port; a Proxy-Authorization among the fields is for it
    is_leased: bool = True  # it is sent once; without a lease it may be repeated
    # The only one that is connected to, empty if none was known; None: any of its host's. Not of a
    # request that goes through a proxy.
    address: str | None = None


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What came back. Arrow: fetch -> answer."""

    exchanges: tuple[Exchange, ...]  # in the order sent; the last one is that of the request itself
    head: AnswerHead  # of the last one
    certificate: bytes | None = None  # of its server, in DER


class KeptBody(msgspec.Struct, frozen=True):
    """What was kept of a body, and why that is not all. Arrow: watch -> exchange."""

    body: bytes
    truncated: Truncated = Truncated.NO


class FetchWatch(Protocol):
    """What a fetch asks about the request that it is for."""

    def may_send(self) -> bool:
        """Return whether a request may be sent. Asked immediately before each is written, as the
        process may have been stopped for longer than its lease at any point before."""

    def note_head(self, head: AnswerHead) -> None:
        """Note the head of an answer, in the turn of the loop in which its last byte came."""

    def room(self, head: AnswerHead) -> int:
        """Return how many bytes of the body that follows *head* may come, with framing."""

    async def keep(self, pieces: AsyncIterable[bytes], room: int) -> KeptBody:
        """Read a body, of which *room* bytes are kept. May wait between two pieces, and end before
        the last one: when its time is over that is no error."""


class FetchPort(Protocol):
    async def fetch(self, request: WireRequest, watch: FetchWatch) -> Fetched:
        """Send *request* and return its answer. Raises the errors of engine/errors.py, and
        AddressRefused. It can be cancelled."""

    async def close(self) -> None:
        """Close all connections."""
