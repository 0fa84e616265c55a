"""The server of the URL Frontier protocol, over whatever keeps the URLs (`port.py`).

Rule: nothing is acknowledged, and no URL is sent, before it is durable that it was taken. Who can
reach the server from another machine needs a token, and TLS hides it; without both the server
listens on loopback only.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
import time
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass, field
from functools import wraps
from ipaddress import ip_address
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from crawler.model.types import ConfigError, CrawlerError, StoreUnavailable
from crawler.urlfrontier import urlfrontier_pb2 as pb
from crawler.urlfrontier import urlfrontier_pb2_grpc as rpc
from crawler.urlfrontier.mapping import (
    LEASE_S,
    PAGE,
    InvalidRequest,
    checked_date,
    checked_key,
    crawl_of,
    put_item,
    queue_of,
    stats_message,
    url_filter,
    url_info,
    url_item,
)
from crawler.urlfrontier.port import (
    Crawls,
    NotServed,
    PutItem,
    PutStatus,
    QueuedUrl,
    QueueStats,
    ServedCrawl,
    Steps,
    UnknownQueue,
)

logger = logging.getLogger(__name__)

MOST_UNACKNOWLEDGED: Final = 1_024  # messages of a stream; then no more of it are read
_MOST_HELD_BYTES: Final = 1 << 20  # of them; one may have 4 MB, the bound of gRPC
_TAKEN_BYTES: Final = 64 << 10  # of messages that are put together, unless one has more
MOST_IN_BATCH: Final = 10_000  # URLs of one message: 60 ms of the event loop
_MOST_CALLS: Final = 256  # at once, of all clients (guess): each may hold some 5 MB of what is put
_BATCH: Final = 256  # items that are put at once: a few milliseconds of the event loop
_SLICE: Final = 256  # URLs that are leased before the first of them is sent
_SLICE_BYTES: Final = 1 << 20  # of them
_MOST_PER_QUEUE: Final = 10_000  # of a call, where a client names no limit: they are held at once
_MOST_ANSWER_BYTES: Final = 2 << 20  # of queues: a client's gRPC takes a message of 4 MB
_ALL: Final = 1 << 32
_LOG_ROOT: Final = "crawler"
_SERVICE: Final = pb.DESCRIPTOR.services_by_name["URLFrontier"].full_name
_LEVELS: Final = (logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)

Clock = Callable[[], float]
Q = TypeVar("Q")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """Who may call: by name, the tokens, of which a call needs one if there are any; and the files
    of the certificate and its key, in PEM."""

    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    certificate: Path | None = None
    key: Path | None = None

    def credentials(self, host: str) -> grpc.ServerCredentials | None:
        """Return what a port of *host* is opened with; None: without TLS. Raises ConfigError where
        others could reach it without a token, or could read the token."""
        if not _is_loopback(host) and not (self.tokens and self.certificate):
            raise ConfigError(
                f"the frontier is to be served on {host}, which others can reach: name a file of"
                " tokens, and a certificate with its key, or serve it on 127.0.0.1"
            )
        if self.certificate is None:
            if self.key is not None:
                raise ConfigError(f"{self.key} is a key without its certificate: name both")
            return None
        key = self.key or self.certificate
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                self.certificate, key, _no_password
            )
            pair = (key.read_bytes(), self.certificate.read_bytes())
            readable = key.stat().st_mode & 0o007
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"{self.certificate} and {key} are no certificate and its key: {error}"
            ) from None
        if readable:
            raise ConfigError(f"{key} is a key that others can read: chmod o= {key}")
        return grpc.ssl_server_credentials([pair])


def _no_password() -> str:
    raise ssl.SSLError("the key has a password: take one without")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class FrontierServer:
    """Serves crawls on a port."""

    def __init__(
        self, crawls: Crawls, access: ServerAccess | None = None, clock: Clock = time.time
    ) -> None:
        """*clock*: epoch seconds; where it goes back, time stands still."""
        self._access = access or ServerAccess()
        self._counts = ServedCounts()
        self._calls = _Calls(crawls, clock, self._counts)
        self._server: grpc.aio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port, which is another one for 0. Raises ConfigError."""
        credentials = self._access.credentials(host)
        server = grpc.aio.server(
            interceptors=[
                *([_TokenCheck(self._access.tokens)] if self._access.tokens else []),
                _RequestCheck(),
            ],
            options=[
                ("grpc.so_reuseport", 0),  # else a second server would share the port in silence
                ("grpc.keepalive_time_ms", 120_000),  # finds clients that are gone without a word
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),  # of clients' keepalive
            ],
            maximum_concurrent_rpcs=_MOST_CALLS,
        )
        rpc.add_URLFrontierServicer_to_server(self._calls, server)  # type: ignore[no-untyped-call]  # made by grpc
        server.add_registered_method_handlers(_SERVICE, self._calls.packed())  # instead of two
        address = f"{host}:{port}"
        try:
            taken: int = (
                server.add_insecure_port(address)
                if credentials is None
                else server.add_secure_port(address, credentials)
            )
        except RuntimeError:
            raise ConfigError(f"{address} cannot be listened on: is it in use?") from None
        await server.start()
        self._server = server
        self._calls.add_address(f"{host}:{taken}")
        return taken

    async def stop(self, grace_s: float = 1.0) -> None:
        """Take no more calls, and end those that are open after *grace_s*."""
        if self._server is not None:
            await self._server.stop(grace_s)

    def metrics(self) -> bytes:
        """Return what Prometheus scrapes, by the names of the reference's metrics."""
        return self._counts.text()


class _TokenCheck(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc is untyped
    """Refuses calls without one of the tokens in `authorization: Bearer TOKEN`."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._tokens = [f"Bearer {token}".encode() for token in tokens.values()]

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        handler = await continuation(details)
        given = dict(details.invocation_metadata).get("authorization", "")
        sent = given.encode() if isinstance(given, str) else given
        if handler is None or any(hmac.compare_digest(sent, token) for token in self._tokens):
            return handler
        return _refusal(handler)


class _RequestCheck(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc is untyped
    """Answers a request that cannot be read: grpc says UNKNOWN, and logs a traceback."""

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        handler = await continuation(details)
        if handler is None or handler.request_streaming:
            return handler
        read, call = handler.request_deserializer, handler.unary_unary or handler.unary_stream

        async def checked(packed: bytes, context: grpc.aio.ServicerContext) -> Any:
            try:
                request = read(packed)
            except DecodeError as error:
                reason = f"the request cannot be read: {error}"
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
            return await call(request, context)

        make = (
            grpc.unary_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        return make(checked, None, handler.response_serializer)


def _refusal(handler: Any) -> Any:
    """Return a handler of the kind of *handler* that ends a call at once."""

    async def refuse(_: object, context: grpc.aio.ServicerContext) -> None:
        await context.abort(
            grpc.StatusCode.UNAUTHENTICATED, "want the metadata authorization: Bearer TOKEN"
        )

    async def refuse_stream(_: object, context: grpc.aio.ServicerContext) -> AsyncIterator[object]:
        await refuse(_, context)
        yield None

    make, behaviour = {
        (False, False): (grpc.unary_unary_rpc_method_handler, refuse),
        (False, True): (grpc.unary_stream_rpc_method_handler, refuse_stream),
        (True, True): (grpc.stream_stream_rpc_method_handler, refuse_stream),
    }[handler.request_streaming, handler.response_streaming]
    return make(behaviour, handler.request_deserializer, handler.response_serializer)


@dataclass(slots=True, eq=False)  # a registry keeps it in a dictionary
class ServedCounts(Collector):
    """What was served since the start, by the reference's names: its dashboards show them."""

    get_calls: int = 0
    got: int = 0
    get_s: float = 0.0
    put_calls: int = 0
    batch_calls: int = 0
    discovered: int = 0
    known: int = 0
    ignored: int = 0
    completed: int = 0

    def count_put(self, items: Iterable[PutItem], statuses: Iterable[int]) -> None:
        for item, status in zip(items, statuses, strict=True):
            if item.refetch_at is None:
                self.discovered += 1
                self.ignored += status == PutStatus.SKIPPED
            else:
                self.known += 1
                self.completed += item.refetch_at == 0

    def collect(self) -> Iterator[Metric]:
        put = self.discovered + self.known
        for name, help_text, value in (
            ("getURLs_calls", "Calls of GetURLs.", self.get_calls),
            ("getURLs", "URLs sent to clients.", self.got),
            ("putURLs_calls", "Calls of PutURLs.", self.put_calls),
            ("putDiscovered_calls", "Calls of PutDiscovered.", self.batch_calls),
            ("putURLs", "URLs put by clients.", put),
            ("putURLs_ignored", "Discovered URLs that were known.", self.ignored),
            ("putURLs_completed", "URLs put as completed.", self.completed),
        ):
            yield CounterMetricFamily(f"frontier_{name}", help_text, value=value)
        kinds = CounterMetricFamily(
            "frontier_putURLs_discovered", "URLs put, by kind.", labels=["discovered"]
        )
        kinds.add_metric(["true"], self.discovered)
        kinds.add_metric(["false"], self.known)
        yield kinds
        yield SummaryMetricFamily(
            "frontier_getURLs_latency_seconds",
            "Time from a call of GetURLs to its last URL.",
            count_value=self.get_calls,
            sum_value=self.get_s,
        )

    def text(self) -> bytes:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)


class _NotFound(CrawlerError):
    """What a call is about is not known. Caller: answer so."""


class _Deleted(CrawlerError):
    """What a call is about is no longer there. Caller: answer so."""


_CODES: Final = (
    (InvalidRequest, grpc.StatusCode.INVALID_ARGUMENT),
    (_NotFound, grpc.StatusCode.NOT_FOUND),
    (UnknownQueue, grpc.StatusCode.NOT_FOUND),
    (_Deleted, grpc.StatusCode.ABORTED),
    (NotServed, grpc.StatusCode.UNIMPLEMENTED),
    (StoreUnavailable, grpc.StatusCode.UNAVAILABLE),
)

Context = Any  # grpc.aio.ServicerContext, which is untyped


def _answering(
    call: Callable[[_Calls, Q, Context], Awaitable[T]],
) -> Callable[[_Calls, Q, Context], Awaitable[T]]:
    """End a call by the status that belongs to its error, with the text for the user."""

    @wraps(call)
    async def answered(self: _Calls, request: Q, context: Context) -> T:
        try:
            return await call(self, request, context)
        except CrawlerError as error:
            codes = (code for kind, code in _CODES if isinstance(error, kind))
            await context.abort(next(codes, grpc.StatusCode.INTERNAL), str(error))
            raise

    return answered


class PutReader:
    """Reads a stream while what came before is put, up to MOST_UNACKNOWLEDGED messages and some
    bytes that are not acknowledged; the rest waits at the client. Messages stay packed: two bytes
    of one may take a hundred when it is read."""

    def __init__(self, requests: AsyncIterator[bytes]) -> None:
        self._came: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._messages = self._bytes = 0
        self._taken = (0, 0)
        self._ended = False
        self._task = asyncio.create_task(self._read(requests))

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        try:
            async for message in requests:
                self._messages += 1
                self._bytes += len(message)
                self._came.append(message)
                self._changed.set()
                while self._messages >= MOST_UNACKNOWLEDGED or self._bytes >= _MOST_HELD_BYTES:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self._ended = True
            self._changed.set()

    async def take(self) -> list[bytes]:
        """Return what has come, up to some hundred messages, when there is something; nothing at
        the end of the stream. What was taken before is acknowledged now."""
        self._messages -= self._taken[0]
        self._bytes -= self._taken[1]
        self._room.set()
        while not self._came and not self._ended:
            self._changed.clear()
            await self._changed.wait()
        taken: list[bytes] = []
        held = 0
        while self._came and len(taken) < _BATCH and held < _TAKEN_BYTES:
            taken.append(self._came.popleft())
            held += len(taken[-1])
        self._taken = len(taken), held
        if not taken:
            await self._task  # an error of the stream ends the call
        return taken

    def close(self) -> None:
        self._task.cancel()


def _unpack(message: bytes, into: Message) -> None:
    try:
        into.ParseFromString(message)
    except DecodeError as error:
        raise InvalidRequest(f"a message cannot be read: {error}") from None


class _Found:
    """What was put by some messages, sorted by its crawls, after what cannot be kept was left
    out."""

    def __init__(self) -> None:
        self.size = 0  # with what was left out
        self.of_crawls: dict[str, tuple[list[int], list[PutItem]]] = {}  # with their numbers
        self._of_ids: dict[str, tuple[list[int], list[PutItem]]] = {}  # "" and DEFAULT share one

    def add_item(self, message: bytes) -> str:
        """Add what a message of PutURLs has, and return its name. Raises InvalidRequest."""
        item = pb.URLItem()
        _unpack(message, item)
        if item.HasField("known"):
            info, refetch_at = item.known.info, item.known.refetchable_from_date
        else:
            info, refetch_at = item.discovered.info, None
        name = item.ID or info.url
        self._add(info, refetch_at)
        return name

    def add_batch(self, message: bytes) -> tuple[str, int]:
        """Add what a message of PutDiscovered has, and return its name, and how many URLs. Raises
        InvalidRequest."""
        batch = pb.DiscoveredBatch()
        _unpack(message, batch)
        size = len(batch.items)
        if size > MOST_IN_BATCH:
            raise InvalidRequest(f"a batch has {size} URLs: send up to {MOST_IN_BATCH} in one")
        for info in batch.items:
            self._add(info, None)
        return batch.ID, size

    def _add(self, info: pb.URLInfo, refetch_at: int | None) -> None:
        self.size += 1
        try:
            crawl_id = info.crawlID
            if crawl_id not in self._of_ids:
                self._of_ids[crawl_id] = self.of_crawls.setdefault(crawl_of(crawl_id), ([], []))
            numbers, items = self._of_ids[crawl_id]
            items.append(put_item(info, refetch_at))
            numbers.append(self.size - 1)
        except InvalidRequest as error:
            logger.debug("A URL was skipped: %s", error)


class _Calls(rpc.URLFrontierServicer):
    """The calls of the protocol, by their names in it."""

    def __init__(self, crawls: Crawls, clock: Clock, counts: ServedCounts) -> None:
        self._crawls = crawls
        self._clock = clock
        self._counts = counts
        self._latest = 0.0
        self._turn = 0  # of the crawl that a call for any crawl begins with
        self._failing: set[str] = set()  # crawls of which that was logged
        self._addresses: list[str] = []

    def add_address(self, address: str) -> None:
        self._addresses.append(address)

    def _now(self) -> float:
        self._latest = max(self._latest, self._clock())
        return self._latest

    def _crawl(self, crawl_id: str) -> ServedCrawl:
        name = crawl_of(crawl_id)
        crawl = self._crawls.find(name)
        if crawl is None:
            raise _NotFound(f"there is no crawl {name} yet: put a URL first")
        return crawl

    # What clients put.

    def packed(self) -> dict[str, grpc.RpcMethodHandler]:
        """Return handlers of what clients put, by names, which get the messages as they came."""
        return {
            call.__name__: grpc.stream_stream_rpc_method_handler(call, None, ack.SerializeToString)
            for call, ack in ((self.PutURLs, pb.AckMessage), (self.PutDiscovered, pb.BatchAck))
        }

    @_answering
    async def PutURLs(self, requests: AsyncIterator[bytes], context: Context) -> None:
        self._counts.put_calls += 1
        reader = PutReader(requests)
        try:
            while messages := await reader.take():
                found = _Found()
                names = [found.add_item(message) for message in messages]
                statuses = await self._put(found)
                for name, status in zip(names, statuses, strict=True):
                    await context.write(pb.AckMessage(ID=name, status=status))
        finally:
            reader.close()

    @_answering
    async def PutDiscovered(self, requests: AsyncIterator[bytes], context: Context) -> None:
        self._counts.batch_calls += 1
        reader = PutReader(requests)
        try:
            while messages := await reader.take():
                found = _Found()
                sizes = [found.add_batch(message) for message in messages]
                statuses = iter(await self._put(found))
                for name, size in sizes:
                    await context.write(pb.BatchAck(ID=name, statuses=islice(statuses, size)))
        finally:
            reader.close()

    async def _put(self, found: _Found) -> list[Any]:
        """Put what is *found*, and return the statuses when they are durable."""
        statuses: list[Any] = [PutStatus.SKIPPED] * found.size
        for name, (numbers, items) in found.of_crawls.items():
            if not items:
                continue
            try:
                put: list[PutStatus] = []
                for start in range(0, len(items), _BATCH):
                    if start:
                        await asyncio.sleep(0)
                    crawl = self._crawls.open(name)  # it may be deleted meanwhile
                    put += crawl.put(items[start : start + _BATCH], self._now())
                await crawl.wait_until_durable()
            except StoreUnavailable as error:
                logger.error("%d URLs were not taken: %s", len(items), error)
                put = [PutStatus.FAIL] * len(items)
            self._counts.count_put(items, put)
            for number, status in zip(numbers, put, strict=True):
                statuses[number] = status
        return statuses

    # What they get.

    @_answering
    async def GetURLs(self, request: pb.GetParams, context: Context) -> None:
        if not self._crawls.is_active():
            return
        self._counts.get_calls += 1
        begun = time.perf_counter()
        try:
            await self._get(request, context)
        finally:
            self._counts.get_s += time.perf_counter() - begun

    async def _get(self, request: pb.GetParams, context: Context) -> None:
        key = checked_key(request.key)
        if request.HasField("crawlID"):
            names = [crawl_of(request.crawlID)]
        elif key:
            return  # one queue of any crawl: nothing, as the reference has it
        else:
            names = self._crawls.names()
            self._turn += 1
            first = self._turn % max(1, len(names))
            names = names[first:] + names[:first]
        queues = 1 if key else request.max_queues or _ALL
        per_queue = min(request.max_urls_per_queue or _MOST_PER_QUEUE, _MOST_PER_QUEUE)
        lease_s = request.delay_requestable or LEASE_S
        now, failures = self._now(), 0
        for name in names:
            # What a slow client reads when half of its time is over had better be leased anew.
            while queues > 0 and self._now() - now <= lease_s / 2:
                try:
                    crawl = self._crawls.find(name)  # it may be deleted meanwhile
                    if crawl is None:
                        break
                    found = await crawl.lease(
                        now,
                        queues=min(queues, max(1, _SLICE // per_queue)),
                        per_queue=per_queue,
                        lease_s=lease_s,
                        key=key,
                        most_bytes=_SLICE_BYTES,
                    )
                except StoreUnavailable as error:
                    failures += 1
                    if failures == len(names):
                        raise
                    if name not in self._failing:
                        logger.error("The crawl %s is not served, others are: %s", name, str(error))
                    self._failing.add(name)
                    break
                self._failing.discard(name)
                if not found:
                    break
                for each in found:
                    await context.write(url_info(each, name))
                self._counts.got += len(found)
                queues -= len({each.key for each in found})

    @_answering
    async def GetURLStatus(self, request: pb.URLStatusRequest, _: Context) -> pb.URLItem:
        key = queue_of(request.url, request.key)
        found = self._crawl(request.crawlID).status(request.url, key, self._now())
        if found is None:
            raise _NotFound(f"{request.url} is not known in the queue {key}")
        return url_item(found, crawl_of(request.crawlID))

    @_answering
    async def ListURLs(self, request: pb.ListUrlParams, context: Context) -> None:
        name = crawl_of(request.crawlID)
        async for found in self._urls(request, request.start, request.size or PAGE):
            await context.write(url_item(found, name))

    @_answering
    async def CountURLs(self, request: pb.CountUrlParams, _: Context) -> pb.Long:
        if request.filter:
            return pb.Long(value=len([1 async for _found in self._urls(request, 0, _ALL)]))
        crawl = self._crawls.find(crawl_of(request.crawlID))
        key = checked_key(request.key)
        return pb.Long(value=crawl.count(key, self._now()) if crawl else 0)

    async def _urls(
        self, request: pb.ListUrlParams | pb.CountUrlParams, start: int, size: int
    ) -> AsyncIterator[QueuedUrl]:
        """Yield the URLs that pass the filter of *request*, up to *size* from the number *start*
        on."""
        key, wanted = checked_key(request.key), url_filter(request)
        name = crawl_of(request.crawlID)
        crawl = self._crawls.find(name)
        if crawl is None:
            return
        passed = 0
        async for found in self._steps(name, crawl, crawl.urls(key, self._now())):
            if wanted is None or wanted(found.url):
                passed += 1
                if passed > start:
                    yield found
                if passed >= start + size:
                    return

    async def _steps(
        self, name: str, crawl: ServedCrawl, steps: Steps[T], per_turn: int = _BATCH
    ) -> AsyncIterator[T]:
        """Yield what is found in *steps* of *crawl*, with other calls in between. Raises
        _Deleted."""
        for number, found in enumerate(steps, 1):
            if found is not None:
                yield found
            if number % per_turn == 0:
                await asyncio.sleep(0)
            if self._crawls.find(name) is not crawl:
                raise _Deleted(f"the crawl {name} was deleted while this call read it")

    # Crawls and queues.

    async def ListNodes(self, _: pb.Empty, __: Context) -> pb.StringList:
        return pb.StringList(values=self._addresses)

    async def ListCrawls(self, _: pb.Local, __: Context) -> pb.StringList:
        return pb.StringList(values=self._crawls.names())

    @_answering
    async def DeleteCrawl(self, request: pb.DeleteCrawlMessage, _: Context) -> pb.Long:
        return pb.Long(value=await self._crawls.delete(crawl_of(request.value)))

    @_answering
    async def ListQueues(self, request: pb.Pagination, _: Context) -> pb.QueueList:
        name = crawl_of(request.crawlID)
        crawl = self._crawls.find(name)
        size, left, keys = request.size or PAGE, request.start, list[str]()
        if crawl is not None:
            room = _MOST_ANSWER_BYTES
            found = crawl.queues(self._now(), include_inactive=request.include_inactive)
            async for key in self._steps(name, crawl, found):
                left -= 1
                if left < 0:
                    keys.append(key)
                    room -= len(key.encode())
                if len(keys) == size or room <= 0:
                    break
        return pb.QueueList(values=keys, start=request.start, size=len(keys), crawlID=name)

    @_answering
    async def GetStats(self, request: pb.QueueWithinCrawlParams, _: Context) -> pb.Stats:
        name, key = crawl_of(request.crawlID), checked_key(request.key)
        crawl = self._crawls.find(name)
        return stats_message(crawl.stats(key, self._now()) if crawl else QueueStats(), name)

    @_answering
    async def DeleteQueue(self, request: pb.QueueWithinCrawlParams, _: Context) -> pb.Long:
        key, name = checked_key(request.key), crawl_of(request.crawlID)
        if not key:
            raise InvalidRequest("want the key of the queue to be deleted")
        return await self._removed(name, lambda crawl: crawl.delete_queue(key, self._now()))

    async def _removed(self, name: str, remove: Callable[[ServedCrawl], Steps[int]]) -> pb.Long:
        crawl = self._crawls.find(name)
        if crawl is None:
            return pb.Long()
        removed = 0
        async for urls in self._steps(name, crawl, remove(crawl), per_turn=1):
            removed += urls
        await crawl.wait_until_durable()
        return pb.Long(value=removed)

    @_answering
    async def BlockQueueUntil(self, request: pb.BlockQueueParams, _: Context) -> pb.Empty:
        key, until = checked_key(request.key), checked_date(request.time)
        if key:  # without one nothing is blocked, as the reference has it
            crawl = self._crawl(request.crawlID)
            crawl.block(key, until, self._now())
            await crawl.wait_until_durable()
        return pb.Empty()

    @_answering
    async def SetDelay(self, request: pb.QueueDelayParams, _: Context) -> pb.Empty:
        key, crawl = checked_key(request.key), self._crawl(request.crawlID)
        steps = crawl.set_delay(key, request.delay_requestable, self._now())
        async for _rest in self._steps(crawl_of(request.crawlID), crawl, steps):
            pass
        await crawl.wait_until_durable()
        return pb.Empty()

    @_answering
    async def SetCrawlLimit(self, request: pb.CrawlLimitParams, _: Context) -> pb.Empty:
        key, crawl = checked_key(request.key), self._crawl(request.crawlID)
        crawl.set_limit(key, request.limit, self._now())
        await crawl.wait_until_durable()
        return pb.Empty()

    @_answering
    async def PurgeURLs(self, request: pb.PurgeUrlParams, _: Context) -> pb.Long:
        key, name = checked_key(request.key), crawl_of(request.crawlID)
        return await self._removed(name, lambda crawl: crawl.purge(key, request.days, self._now()))

    # The server itself.

    async def SetActive(self, request: pb.Active, _: Context) -> pb.Empty:
        self._crawls.set_active(request.state)
        return pb.Empty()

    async def GetActive(self, _: pb.Local, __: Context) -> pb.Boolean:
        return pb.Boolean(state=self._crawls.is_active())

    @_answering
    async def SetLogLevel(self, request: pb.LogLevelParams, _: Context) -> pb.Empty:
        if f"{request.package}.".startswith(f"{_LOG_ROOT}.") and request.level < len(_LEVELS):
            logging.getLogger(request.package).setLevel(_LEVELS[request.level])
            return pb.Empty()
        raise InvalidRequest(f"want the package {_LOG_ROOT} or one in it, and a level")
