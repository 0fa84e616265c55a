"""The download handler of http and https: Scrapy's requests go through the fetch port, and what
comes back becomes Scrapy's responses.

Rule: here alone exchanges are given to the lease that they were fetched under.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from ipaddress import ip_address
from typing import Final, TypeVar
from urllib.request import getproxies
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadCancelledError, StopDownload
from scrapy.http import Response
from scrapy.responsetypes import responsetypes
from scrapy.utils._download_handlers import normalize_bind_address

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.download.network import NetworkFetch
from crawler.download.port import Fetched, FetchPort, WireRequest
from crawler.download.replay import ReplayFetch
from crawler.download.resolver import AresLookup, LookedUpAddresses, NamePrefetch, Resolver
from crawler.download.watch import RequestWatch, WatchParts, headers_of
from crawler.loop.life import Life
from crawler.model.choices import HostUnit
from crawler.model.page import STOPPED, head_fields
from crawler.model.types import HostKey, StoreUnavailable
from crawler.model.url import split
from crawler.policy.validators import conditions

HTTP_1_0: Final = b"HTTP/1.0"

T = TypeVar("T")


class Transfers:
    """The fetches under way, so that a stop can cancel them all. O(1) a fetch.

    A cancelled fetch fails with DownloadCancelledError, which is not counted against its host.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()
        self._cancelled: set[asyncio.Task[object]] = set()

    async def run(self, fetch: Awaitable[T]) -> T:
        """Await *fetch* in the present task, which Scrapy gave to this one request."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine that awaits runs in a task"
        self._tasks.add(task)
        try:
            return await fetch
        except asyncio.CancelledError as error:
            if task not in self._cancelled:
                raise
            raise DownloadCancelledError("the crawl stops") from error
        finally:
            self._tasks.discard(task)
            self._cancelled.discard(task)

    def cancel_all(self) -> None:
        """Cancel the fetches under way, but not those that begin later."""
        for task in self._tasks - self._cancelled:
            self._cancelled.add(task)
            task.cancel()

    def __len__(self) -> int:
        return len(self._tasks)


_HANDLERS: Final[WeakKeyDictionary[Crawler, FetchHandler]] = WeakKeyDictionary()


class FetchHandler(BaseDownloadHandler):
    """The download handler of http and https: one for both, so that the number of connections is
    bounded for both together."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> FetchHandler:
        known = _HANDLERS.get(crawler)
        if known is None:
            known = _HANDLERS[crawler] = cls._built(crawler)
        return known

    @classmethod
    def _built(cls, crawler: Crawler) -> FetchHandler:
        crawl = crawl_of(crawler)
        parts = WatchParts(
            crawler, crawl.download_options(), crawl.loop, crawl.fetching.body_memory
        )
        handler = cls(crawler, _port(crawler, crawl), parts)
        crawl.lifecycle.call_at_stop(handler.transfers.cancel_all)
        return handler

    def __init__(self, crawler: Crawler, port: FetchPort, parts: WatchParts) -> None:
        super().__init__(crawler)
        self.transfers = Transfers()
        self.port = port
        self._parts = parts

    async def download_request(self, request: Request) -> Response:
        watch = RequestWatch(self._parts, request)
        wire = wire_request(request, watch.life, self._parts.options.may_have_gone)
        fetched = await self.transfers.run(watch.in_time(self.port.fetch(wire, watch)))
        response = response_of(request, fetched, watch)
        if watch.life is not None:
            watch.life.receive(*fetched.exchanges)
            if not wire.proxy and wire.address is None:
                watch.life.note_address(fetched.exchanges[-1].ip)
        return response

    async def close(self) -> None:
        self.transfers.cancel_all()
        await self.port.close()


def _port(crawler: Crawler, crawl: Crawl) -> FetchPort:
    options = crawl.download_options()
    if crawl.fetching.replay is not None:
        return ReplayFetch(
            crawl.fetching.replay,
            options.head_max_bytes,
            count=crawl.stats.count,
            fail=crawl.lifecycle.fail,
        )
    resolver = Resolver(
        options.admits,
        AresLookup(crawl.settings.config.fetch.name_servers),
        shared=crawl.fetching.shared_names,
        on_lookup=crawl.stats.count_lookup,
        on_use=crawl.stats.count_name,
    )
    crawl.loop.silent_hosts.probe_with(resolver.reaches_name_servers)
    prefetch = None
    if not getproxies().keys() & {"http", "https"}:  # as Scrapy's middleware for proxies
        prefetch = NamePrefetch(resolver, partial(_upcoming_names, crawl, resolver))
        crawl.lifecycle.call_at_stop(prefetch.end)
        if crawl.leases.addresses is not None:
            addresses = LookedUpAddresses(resolver, prefetch, partial(_note_known, crawl))
            crawl.leases.addresses.answer_with(addresses)
    local_address = normalize_bind_address(crawler.settings.get("DOWNLOAD_BIND_ADDRESS"))
    return NetworkFetch(options, resolver, local_address, prefetch, crawl.fetching.signer)


def _note_known(crawl: Crawl, host: HostKey) -> None:
    """Let *host*, whose name was looked up, be leased."""
    frontier = crawl.leases.own_frontier
    assert frontier is not None, "a URL Frontier knows no addresses"
    try:
        frontier.note_known(host, crawl.leases.clock.now())
    except StoreUnavailable as error:
        crawl.lifecycle.fail(error)
    crawl.lifecycle.wake()


_UPCOMING: Final = 4096
"""Names of one look, of which most are known: at 1.5 us each, a look takes some milliseconds at
most."""


def _upcoming_names(crawl: Crawl, resolver: Resolver, within_s: float) -> list[str]:
    """Return the unknown names of the hosts that are fetched from next, but not of those that the
    operator has refused or paused."""
    now, frontier = crawl.leases.clock.now(), crawl.leases.own_frontier
    if frontier is None or not crawl.loop.may_lease():
        return []
    names: list[str] = []
    try:
        hosts = frontier.upcoming_hosts(now + within_s, _UPCOMING)
        if crawl.settings.config.politeness.host_unit is not HostUnit.DOMAIN:
            names += hosts
        else:
            urls = map(frontier.next_url, hosts)
            names += [split(url).hostname for url in urls if url is not None]
    except StoreUnavailable as error:
        crawl.lifecycle.fail(error)
    operator = crawl.selection.allowed_origins.operator

    def is_admitted(name: str) -> bool:
        overrides = operator.of_host(name)
        return not overrides.refuse and overrides.paused_until(now) is None

    return [name for name in names if resolver.needs_lookup(name, within_s) and is_admitted(name)]


def wire_request(
    request: Request, life: Life | None, may_have_gone: Callable[[float], bool] | None = None
) -> WireRequest:
    """Return *request*, of *life* if it has a lease, as it is sent. *may_have_gone*: whether the
    archive may have no answer any more that was fetched at a time, in epoch seconds."""
    address = None if life is None else life.lease.address
    if life is not None and address is not None:
        name = split(request.url).hostname.rstrip(".")
        address = address if name == life.candidate.host else None  # a middleware sent it elsewhere
    # `items` of Scrapy's Headers would normalize each name once more.
    fields = dict.items(request.headers)
    sent = [(name, value) for name, values in fields for value in values]
    if life is not None and life.plan.validators is not None and _may_ask(request):
        history = life.candidate.history
        has_gone = history and may_have_gone and may_have_gone(history.stored_at)
        if not has_gone:
            # Here, and not in the headers of the request: copies of that are for other URLs, too.
            sent += conditions(life.plan.validators)
            life.note_conditional()
    return WireRequest(
        url=request.url,
        method=request.method,
        fields=tuple(sent),
        body=request.body,
        proxy=request.meta.get("proxy") or "",
        is_leased=life is not None,
        address=address,
    )


_OWN_CONDITIONS: Final = (
    *(b"If-None-Match", b"If-Modified-Since", b"If-Match", b"If-Unmodified-Since"),
    *(b"If-Range", b"Range"),
)


def _may_ask(request: Request) -> bool:
    """Return whether *request* is a plain GET: a spider's own may ask for something else."""
    is_plain = request.method == "GET" and not request.body
    return is_plain and not any(name in request.headers for name in _OWN_CONDITIONS)


def response_of(request: Request, fetched: Fetched, watch: RequestWatch) -> Response:
    """Make Scrapy's response. Raises StopDownload, with it, if a component of the user's has ended
    the fetch so."""
    exchange, head = fetched.exchanges[-1], fetched.head
    headers = watch.headers if watch.head is head else headers_of(head_fields(head.clean))
    url = request.url.partition("#")[0]  # as Scrapy's handlers do
    cls = responsetypes.from_args(headers=headers, url=url, body=exchange.body)
    response = cls(
        url,
        status=head.status,
        body=exchange.body,
        flags=[exchange.truncated.flag] if exchange.truncated else [],
        certificate=fetched.certificate,
        ip_address=_address(exchange.ip) if exchange.ip else None,
        protocol="HTTP/1.0" if exchange.head.startswith(HTTP_1_0) else "HTTP/1.1",
    )
    response.headers = headers  # handed over: the constructor would copy them, 10 us a page
    if watch.stop is not None:
        _mark_stopped(response, watch.stop)
    return response


_address = lru_cache(maxsize=4096)(ip_address)


def _mark_stopped(response: Response, stop: StopDownload) -> None:
    """Mark the response as Scrapy does for StopDownload, and raise that if it asks to fail."""
    response.flags.append(STOPPED)
    if stop.fail:
        stop.response = response
        raise stop
