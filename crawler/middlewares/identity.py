"""Send our name and contact with each request.

Rule: without CRAWLER_CONTACT only this machine is crawled (`AllowedAddresses` in policy/scope.py).
"""

from __future__ import annotations

from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler

from crawler.assembly.build import crawl_of
from crawler.config.settings import IdentitySettings

# As browsers send it; some servers answer 406 or an empty page to */* alone.
ACCEPT = b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


class IdentityMiddleware:
    """Sets User-Agent, Accept and From, unless a spider has set them."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawl_of(crawler).settings.config.identity)

    def __init__(self, identity: IdentitySettings) -> None:
        # Names as `Headers` keeps them, so that each request need not normalize them: 2 us each.
        self._headers = {b"User-Agent": identity.user_agent.encode(), b"Accept": ACCEPT}
        if identity.mailbox:
            self._headers[b"From"] = identity.mailbox.encode()

    def process_request(self, request: Request) -> None:
        for name, value in self._headers.items():
            dict.setdefault(request.headers, name, [value])
