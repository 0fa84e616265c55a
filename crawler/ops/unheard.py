"""Scrapy's lines about each page, where somebody hears them.

Rule: nothing is logged otherwise than by Scrapy; what no handler would take is not even made.
"""

from __future__ import annotations

import logging
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.logformatter import LogFormatter, LogFormatterResult
from twisted.python.failure import Failure


class PageLines(LogFormatter):
    """At LOG_LEVEL INFO, as here, Scrapy makes two records a page and throws both away: 50 us."""

    # Scrapy's document that None is no line; its types do not.
    def crawled(  # type: ignore[override]  # None
        self, request: Request, response: Response, spider: Spider
    ) -> LogFormatterResult | None:
        return super().crawled(request, response, spider) if _is_heard(_ENGINE) else None

    def scraped(  # type: ignore[override]  # None
        self, item: Any, response: Response | Failure | None, spider: Spider
    ) -> LogFormatterResult | None:
        return super().scraped(item, response, spider) if _is_heard(_SCRAPER) else None


_ENGINE = logging.getLogger("scrapy.core.engine")
_SCRAPER = logging.getLogger("scrapy.core.scraper")


def _is_heard(logger: logging.Logger) -> bool:
    """Whether any handler takes what *logger* says of a page."""
    if not logger.isEnabledFor(logging.DEBUG):
        return False
    above: logging.Logger | None = logger
    while above is not None:
        if any(handler.level <= logging.DEBUG for handler in above.handlers):
            return True
        above = above.parent if above.propagate else None
    return False
