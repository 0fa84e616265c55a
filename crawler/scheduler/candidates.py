"""A spider's own requests as candidates, and what a middleware put in place of one.

Rule: whatever Scrapy hands to its scheduler becomes a candidate, a verdict or a refusal here.
"""

from __future__ import annotations

from msgspec.structs import replace
from scrapy import Request, Spider

from crawler.core.types import Candidate, Done, Moved, Verdict
from crawler.parts import Parts
from crawler.policy.priority import Hints
from crawler.policy.refusal import Refusal
from crawler.scheduler.flights import Flight
from crawler.scheduler.requests import pack


def candidate_of(
    request: Request, spider: Spider, parts: Parts, *, is_returned: bool = False
) -> Candidate | Refusal:
    """*is_returned*: by a downloader middleware, perhaps as the redirect of a start request, whose
    meta it has. Raises UnstorableRequest."""
    is_start = bool(request.meta.get("is_start_request"))
    depth = int(request.meta.get("depth", 0))
    # A callback may have copied the meta of its answer, whose depth a link does not have.
    if is_start and not depth and not is_returned:
        parts.doors.open_also(request.url)
    hints = Hints(depth=depth, is_seed=is_start, priority=request.priority)
    return parts.doors.admission.candidate(
        request.url,
        depth=depth,
        level=parts.prioritizer.level(hints),
        request=pack(request, spider),
        key=_key(request, spider),
        filtered=not request.dont_filter,
    )


def verdict_on_returned(request: Request, flight: Flight, spider: Spider, parts: Parts) -> Verdict:
    """A downloader middleware returned *request* in place of an answer: a retry or redirect of
    its own. It is this lease's Moved, and meets no seen test: its author wants it fetched."""
    found = candidate_of(request, spider, parts, is_returned=True)
    if isinstance(found, Refusal):
        flight.reason = f"a middleware asked for {request.url}: {found.explain()}"
        return Done()
    origin = flight.lease.candidate
    return Moved(replace(found, depth=origin.depth, level=origin.level, filtered=False))


def _key(request: Request, spider: Spider) -> int | None:
    """None: its URL says all. Else the spider's own idea of what makes two requests the same."""
    if request.method == "GET" and not request.body:
        return None
    fingerprinter = spider.crawler.request_fingerprinter
    assert fingerprinter is not None
    return int.from_bytes(fingerprinter.fingerprint(request)[:8])
