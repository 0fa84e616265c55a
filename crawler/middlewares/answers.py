"""How a host answered, read off what the downloader brought."""

from __future__ import annotations

from dataclasses import replace

from scrapy.http import Response

from crawler.core.exchange import breakage
from crawler.core.types import Answer
from crawler.failures import error_of
from crawler.parts import Parts
from crawler.policy.retry import RETRIED
from crawler.policy.retry_after import retry_after_s
from crawler.policy.uplink import no_contact
from crawler.scheduler.flights import Flight


def answer_of(response: Response, flight: Flight, parts: Parts) -> Answer:
    now = parts.clock.now()
    asked = response.headers.get(b"Retry-After")
    cap_s = parts.config.politeness.max_retry_after_s
    answer = Answer(
        _duration_s(flight, parts),
        status=response.status,
        # A status that is tried again anyway says more.
        error="" if response.status in RETRIED else breakage(response.flags),
        retry_after_s=retry_after_s(asked, now, cap_s) if asked else None,
    )
    is_hung = parts.slots.rules.is_hung(answer, len(response.body))
    return replace(answer, hung=True) if is_hung else answer


def failed_answer(exception: Exception, flight: Flight, parts: Parts) -> Answer | None:
    """None: the host has no part in it."""
    error = error_of(exception)
    return Answer(_duration_s(flight, parts), error=error) if error else None


def _duration_s(flight: Flight, parts: Parts) -> float:
    """No fetch takes longer than the total time-out. One that seems to, stood still with us, or
    its machine slept: its host is no slower for that."""
    return min(flight.fetched_s(parts.clock.now()), parts.config.fetch.total_timeout_s)


def judged(answer: Answer, flight: Flight, parts: Parts) -> Answer:
    """The answer as it counts. While our own line is down no host and no URL is to blame, and
    what failed counts as cancelled by us."""
    parts.uplink.observe(flight.lease.candidate.host, answer, parts.clock.now())
    if no_contact(answer) and not parts.uplink.charges():
        flight.reason = "our own connection is down"
        return Answer(answer.duration_s, error="cancelled")
    return answer
