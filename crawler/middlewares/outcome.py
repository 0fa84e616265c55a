"""Set the rest of a host and the verdict on a URL by its answer: done, retry or dead.

Rule: policy.politeness decides. For a retry the answer is replaced by a copy of its request, which
the scheduler knows by its lease: no errback is called, and only the last try is archived.
"""

from __future__ import annotations

import dataclasses
from typing import Self

from msgspec.structs import replace
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError, HttpErrorMiddleware

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.crawl.errors import error_of
from crawler.crawl.in_flight import Fetch
from crawler.model.page import (
    AddressRefused,
    Truncated,
    header_value,
    incomplete_error,
)
from crawler.model.types import (
    HTTP_OK,
    Answer,
    Dead,
    Purpose,
    PutBack,
    RetryAt,
)
from crawler.policy.politeness import (
    is_host_down,
    is_retry_status,
    no_contact,
    retry_after_s,
    retry_decision,
)


def answer_of(response: Response, fetch: Fetch, crawl: Crawl) -> Answer:
    now = crawl.leases.clock.now()
    retry_after = header_value(response.headers, b"Retry-After")
    cap_s = crawl.settings.config.politeness.max_retry_after_s
    answer = Answer(
        _duration_s(fetch, crawl),
        status=response.status,
        # A status that is retried anyway is the more precise reason.
        error="" if is_retry_status(response.status) else incomplete_error(response.flags),
        retry_after_s=retry_after_s(retry_after, now, cap_s) if retry_after else None,
    )
    is_hung = crawl.fetching.slots.rules.is_hung(answer, len(response.body))
    return replace(answer, hung=True) if is_hung else answer


def failed_answer(
    exception: Exception, request: Request, fetch: Fetch, crawl: Crawl
) -> Answer | None:
    """Return the failed answer of the host, or None if the host did not cause *exception*."""
    error = error_of(exception)
    if not error:
        return None
    # Without it the host would be blamed for its proxy.
    detail = str(exception) if request.meta.get("proxy") else ""
    return Answer(_duration_s(fetch, crawl), error=error, detail=detail)


def _duration_s(fetch: Fetch, crawl: Crawl) -> float:
    """Return how long the fetch took, at most the total time-out. A longer time means that this
    process or its machine was suspended, which does not make the host slower."""
    return min(
        fetch.fetched_s(crawl.leases.clock.now()), crawl.settings.config.fetch.total_timeout_s
    )


def judge_answer(answer: Answer, fetch: Fetch, crawl: Crawl) -> Answer:
    """Return the answer as it counts. While our own connection is down a failure is not counted
    against host or URL, but as cancelled by us."""
    host, now = fetch.lease.candidate.host, crawl.leases.clock.now()
    crawl.fetching.uplink.observe(host, answer, now)
    if no_contact(answer) and not crawl.fetching.uplink.charges_host():
        fetch.reason = "our own connection is down"
        return Answer(answer.duration_s, error="cancelled")
    silent = crawl.fetching.silent_hosts
    if answer.status is None or host in silent.errors:
        silent.observe(host, fetch.lease.pace, answer)
    return answer


class OutcomeMiddleware:
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(
            crawl_of(crawler), crawler, crawler.settings.getbool("DOWNLOAD_FAIL_ON_DATALOSS")
        )

    def __init__(self, crawl: Crawl, crawler: Crawler, retry_broken_off: bool) -> None:
        self._crawl = crawl
        self._crawler = crawler
        self._retry_broken_off = retry_broken_off

    def process_response(self, request: Request, response: Response) -> Response | Request:
        fetch = self._crawl.leases.in_flight.fetch_of(request)
        if fetch is None or fetch.purpose is not Purpose.PAGE:
            return response
        exchange = fetch.exchange
        if exchange is not None and not exchange.truncated and incomplete_error(response.flags):
            fetch.exchange = replace(exchange, truncated=Truncated.DISCONNECT)
        answer = answer_of(response, fetch, self._crawl)
        if not request.meta.get("download_fail_on_dataloss", self._retry_broken_off):
            answer = replace(answer, error="")  # Scrapy's setting to accept an incomplete body
        is_retried = self._judge(request, fetch, answer)
        candidate = fetch.lease.candidate
        if candidate.request and response.status not in HTTP_OK and candidate.seed_url:
            fetch.is_wanted = self._is_wanted(request, response)
        return _retry_request(request) if is_retried else response

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        fetch = self._crawl.leases.in_flight.fetch_of(request)
        if fetch is None or fetch.purpose is not Purpose.PAGE or fetch.is_refused:
            return None
        answer = failed_answer(exception, request, fetch, self._crawl)
        if answer is not None:
            if self._judge(request, fetch, answer):
                return _retry_request(request)
        elif isinstance(exception, AddressRefused):
            fetch.reason = str(exception)
            self._crawl.stats.count(f"refused/{exception.reason}")
            if request.errback is None and fetch.lease.candidate.request:
                origins = self._crawl.selection.allowed_origins
                origins.log_refused(request.url, exception.reason, str(exception))
        elif isinstance(exception, IgnoreRequest):
            fetch.reason = f"ignored: {exception}".rstrip(": ")
            return None
        else:
            return None  # a middleware's own error: the downloader notes it
        if request.errback is None:
            # Without an errback the outcome log is enough: no traceback for each dead host.
            raise IgnoreRequest(fetch.reason or str(exception)) from exception
        return None

    def _is_wanted(self, request: Request, response: Response) -> bool:
        """Return whether the callback of *request* will be called with *response*, an error."""
        judge = self._crawler.get_spider_middleware(HttpErrorMiddleware)
        if judge is not None:
            try:
                judge.process_spider_input(response.replace(request=request))
            except HttpError:
                return False
        return True

    def _judge(self, request: Request, fetch: Fetch, answer: Answer) -> bool:
        """Note the answer and the verdict, and return whether the URL is fetched again."""
        crawl, candidate = self._crawl, fetch.lease.candidate
        rules, own_retries = crawl.settings.config.politeness, _own_retries(request)
        if own_retries is not None:
            rules = dataclasses.replace(rules, retries=own_retries)
        now = crawl.leases.clock.now()
        answer = fetch.answer = judge_answer(answer, fetch, crawl)
        rest = crawl.leases.completion.release(fetch)
        rest_s = rest.seconds if rest else 0.0
        is_down = own_retries is None and is_host_down(fetch.lease.pace, answer)
        verdict = retry_decision(
            candidate, answer, rest_s, rules, now, crawl.fetching.random, is_host_down=is_down
        )
        if isinstance(verdict, RetryAt | Dead | PutBack):
            fetch.verdict = verdict
        return isinstance(verdict, RetryAt | PutBack)


def _own_retries(request: Request) -> int | None:
    """Return the retries that a spider's request sets in Scrapy's meta keys, or None."""
    return 0 if request.meta.get("dont_retry") else request.meta.get("max_retry_times")


def _retry_request(request: Request) -> Request:
    return request.replace(dont_filter=True)
