"""Tell the loop how a host has answered, or failed, a page's request.

Rule: the loop decides. For a retry the answer is replaced by a copy of its request, which
the scheduler knows by its lease: no errback is called, and only the last try is archived, and each
challenge, as evidence of what the host has answered.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Self

from msgspec.structs import replace
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError, HttpErrorMiddleware

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.content.to_capture import (
    archive_beside,
    archive_exchange,
    archive_unmodified,
    challenge_metadata,
)
from crawler.engine.errors import error_of
from crawler.loop.life import Life, Seen
from crawler.loop.loop import Loop
from crawler.loop.visit import seen_in_body
from crawler.model.choices import LaterVisits
from crawler.model.page import (
    AddressRefused,
    Truncated,
    header_value,
    incomplete_error,
)
from crawler.model.types import HTTP_OK, Answer, Claim, StoreUnavailable
from crawler.page.challenge import Challenge
from crawler.policy.politeness import WHOLE

logger = logging.getLogger(__name__)


def challenge_of(response: Response, crawl: Crawl) -> Challenge | None:
    return crawl.fetching.signatures.challenge_of(response.status, response.headers, response.body)


def answer_of(
    response: Response, life: Life, loop: Loop, challenge: Challenge | None = None
) -> Answer:
    return loop.answer(
        life,
        response.status,
        error=incomplete_error(response.flags),
        retry_after=header_value(response.headers, b"Retry-After"),
        body_bytes=len(response.body),
        challenge=challenge,
    )


def failed_answer(exception: Exception, request: Request, life: Life, loop: Loop) -> Answer | None:
    """Return the failed answer of the host, or None if the host did not cause *exception*."""
    error = error_of(exception, is_of_handler=life.is_fetched)
    # Without its words the host would be blamed for its proxy.
    detail = str(exception) if request.meta.get("proxy") else ""
    return loop.failure(life, error, detail) if error else None


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

    def process_response(
        self, request: Request, response: Response
    ) -> Response | Request | Awaitable[Request]:
        loop = self._crawl.loop
        life = loop.lives.of(request)
        if life is None or not life.is_of_page:
            return response
        exchange = life.exchange
        if exchange is not None and not exchange.truncated and incomplete_error(response.flags):
            cut = replace(exchange, truncated=Truncated.DISCONNECT)
            life.receive(*life.exchanges[:-1], cut)
        answer = answer_of(response, life, loop, challenge_of(response, self._crawl))
        retry = request.meta.get("download_fail_on_dataloss", self._retry_broken_off)
        if not retry and answer.error not in WHOLE:
            answer = replace(answer, error="")  # Scrapy's setting to accept an incomplete body
        is_retried = loop.answered(life, answer, _own_retries(request))
        candidate = life.candidate
        if candidate.request and request.method == "GET" and response.status in HTTP_OK:
            # What a browser has made of an answer has no validators.
            sent = life.exchange if life.rendered is None else None
            life.note_seen(seen_in_body(response.body, sent))
        if candidate.request and response.status not in HTTP_OK and candidate.seed_url:
            life.note_wanted(is_wanted=self._is_wanted(request, response))
        if is_retried:
            is_challenge = life.is_challenged and life.exchange is not None
            return self._archive(request, life) if is_challenge else _retry_request(request)
        if loop.unmodified(life, response.status, len(response.body)):
            return self._archive_unmodified(request, life)
        return response

    async def _archive(self, request: Request, life: Life) -> Request:
        """Archive the challenge that *request* got, and return the request to be sent later."""
        exchange, archive = life.exchange, self._crawl.storage.archive.open_writer()
        bodies, may_repeat = self._crawl.content.archived_bodies, life.candidate.may_be_archived
        assert exchange is not None, "a challenge that is archived was recorded"
        storable = self._crawl.content.preferences.storable
        if not storable((exchange,)):
            return _retry_request(request)
        try:
            others = storable(life.exchanges[:-1])
            await archive_beside(others, archive, bodies, may_repeat=may_repeat)
            noted = challenge_metadata(exchange)
            life.archive(
                await archive_exchange(exchange, archive, metadata=noted, may_repeat=may_repeat)
            )
        except StoreUnavailable as error:
            life.put_back()
            self._crawl.lifecycle.fail(error)
        return _retry_request(request)

    async def _archive_unmodified(self, request: Request, life: Life) -> Request:
        """Archive that the page is as it was, and return a request that only ends its lease: there
        is no page that a callback or a pipeline could be called with."""
        logger.debug("Not modified (304): %s: its callback is not called", request)
        history, archive = life.candidate.history, self._crawl.storage.archive.open_writer()
        assert history is not None, "its validators are in its history"
        try:
            later_visits = self._crawl.selection.allowed_origins.later_visits
            exchange, storable = life.exchange, self._crawl.content.preferences.storable
            is_refused = exchange is not None and not storable((exchange,))
            if is_refused:  # since it was stored
                life.note_seen(Seen(content=0, compared=history.compared, is_hidden=True))
            is_kept = later_visits is not LaterVisits.EACH and not is_refused
            is_archived = history.stored_at and is_kept
            for each in life.exchanges if is_archived else ():
                stored = Claim(b"", each.url, at=history.stored_at)
                life.archive(await archive_unmodified(each, archive, stored))
        except StoreUnavailable as error:
            life.put_back()
            self._crawl.lifecycle.fail(error)
        return _retry_request(request)

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        loop = self._crawl.loop
        life = loop.lives.of(request)
        if life is None or not life.is_of_page or life.is_refused:
            return None
        answer = failed_answer(exception, request, life, loop)
        if answer is not None:
            if loop.answered(life, answer, _own_retries(request)):
                return _retry_request(request)
        elif isinstance(exception, AddressRefused):
            life.note_reason(str(exception))
            self._crawl.stats.count(f"refused/{exception.reason}")
            if request.errback is None and life.candidate.request:
                origins = self._crawl.selection.allowed_origins
                origins.log_refused(request.url, exception.reason, str(exception))
        elif isinstance(exception, IgnoreRequest):
            life.note_reason(f"ignored: {exception}".rstrip(": "))
            return None
        else:
            return None  # a middleware's own error: the downloader notes it
        if request.errback is None:
            # Without an errback the outcome log is enough: no traceback for each dead host.
            raise IgnoreRequest(life.reason or str(exception)) from exception
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


def _own_retries(request: Request) -> int | None:
    """Return the retries that a spider's request sets in Scrapy's meta keys, or None."""
    return 0 if request.meta.get("dont_retry") else request.meta.get("max_retry_times")


def _retry_request(request: Request) -> Request:
    return request.replace(dont_filter=True)
