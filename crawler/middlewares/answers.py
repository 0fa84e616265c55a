"""How a host answered, read off what the downloader brought."""

from __future__ import annotations

from scrapy.http import Response

from crawler.core.types import Answer
from crawler.download.failures import error_of
from crawler.policy.retry_after import retry_after_s
from crawler.scheduler.flights import Flight
from crawler.wiring import Parts


def answer_of(response: Response, flight: Flight, parts: Parts) -> Answer:
    now = parts.clock.now()
    asked = response.headers.get(b"Retry-After")
    cap_s = parts.config.politeness.max_retry_after_s
    return Answer(
        now - flight.begun,
        status=response.status,
        # Only where it is a wish to be left alone: on a 301 it speaks of the redirect.
        retry_after_s=retry_after_s(asked, now, cap_s) if asked and response.status >= 400 else None,
    )


def failed_answer(exception: Exception, flight: Flight, parts: Parts) -> Answer | None:
    """None: the host has no part in it."""
    error = error_of(exception)
    return Answer(parts.clock.now() - flight.begun, error=error) if error else None
