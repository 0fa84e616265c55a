"""Say who we are, with every request."""

from __future__ import annotations

from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler

from crawler.core.config import Identity
from crawler.wiring import parts_of

# What a browser says; some servers answer 406 or an empty page to */* alone.
ACCEPT = b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


class IdentityMiddleware:
    """User-Agent and From, unless a spider has set its own."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(parts_of(crawler).config.identity)

    def __init__(self, identity: Identity) -> None:
        self._headers = {b"User-Agent": identity.user_agent.encode(), b"Accept": ACCEPT}
        if identity.mailbox:
            self._headers[b"From"] = identity.mailbox.encode()

    def process_request(self, request: Request) -> None:
        for name, value in self._headers.items():
            request.headers.setdefault(name, value)
