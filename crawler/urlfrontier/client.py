"""A client for any server of the URL Frontier protocol, for asyncio and on the command line.

Rule: it needs grpcio, protobuf and the two generated modules beside it, and nothing else of this
package: copied with them, in their folders, it works alone.

    async with FrontierClient("127.0.0.1:7071", crawl_id="news") as frontier:
        await frontier.put_discovered(["https://example.org/"])
        for found in await frontier.get_urls(queues=10, per_queue=1, lease_s=60):
            ...
            await frontier.put([known(found, refetch_at=0)])
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import random
import re
import sys
import time
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from ipaddress import ip_address
from itertools import groupby, islice
from pathlib import Path
from typing import IO, Any, Final, Self, TypeVar

import grpc
import grpc.aio
from google.protobuf import json_format

from crawler.urlfrontier import urlfrontier_pb2 as pb
from crawler.urlfrontier import urlfrontier_pb2_grpc as rpc

OK: Final = 0
SKIPPED: Final = 1  # known before, or malformed: not to be sent again
FAIL: Final = 2  # may be sent again
MOST_UNACKNOWLEDGED: Final = 1_024  # of a PutStream; with more a server reads no further
_BATCH: Final = 100  # URLs of a message of PutDiscovered, as StormCrawler sends them
_SHOWN: Final = 200  # characters of a URL in a message
_CHUNK: Final = 10_000  # lines of a dump that are put at once
_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 10.0
# Of what no server takes: it says SKIPPED, as of what it knows.
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x1f\x7f]+")
_WITHOUT_HOST: Final = re.compile(r"[^:]+://([:/?&]|$)")
_ALL: Final = 2**31 - 1  # the most that the reference, which reads an int, understands

T = TypeVar("T")
Tell = Callable[[str], None]


def url_info(
    url: str,
    *,
    key: str = "",
    metadata: Mapping[str, Sequence[str]] | None = None,
    crawl_id: str = "",
) -> pb.URLInfo:
    """Return a URL as it is put. *key*: of its queue; without one it is its host name."""
    info = pb.URLInfo(url=url, key=key, crawlID=crawl_id)
    for name, texts in (metadata or {}).items():
        info.metadata[name].values.extend(texts)
    return info


def metadata_of(info: pb.URLInfo) -> dict[str, list[str]]:
    return {name: list(texts.values) for name, texts in info.metadata.items()}


def known(info: str | pb.URLInfo, refetch_at: int = 0) -> pb.URLItem:
    """Return the update of a URL that was fetched: to be fetched again at *refetch_at*, epoch
    seconds, or never, for 0. The queue and the metadata are those that it is to have."""
    info = pb.URLInfo(url=info) if isinstance(info, str) else info
    return pb.URLItem(known=pb.KnownURLItem(info=info, refetchable_from_date=refetch_at))


def discovered(info: str | pb.URLInfo) -> pb.URLItem:
    info = pb.URLInfo(url=info) if isinstance(info, str) else info
    return pb.URLItem(discovered=pb.DiscoveredURLItem(info=info))


class FrontierClient:
    """The calls of the protocol for one crawl. A server that cannot be reached is tried again for
    some time; then, and for every other error, grpc.aio.AioRpcError is raised."""

    def __init__(
        self,
        address: str,
        *,
        crawl_id: str = "",
        token: str = "",
        certificate: Path | None = None,
        patience_s: float = 60.0,
    ) -> None:
        """*address*: HOST:PORT, grpc://HOST:PORT, or grpcs://HOST:PORT for TLS. *certificate*: a
        file of those to be trusted, in place of the system's; it means TLS. *token*: sent with each
        call. Raises ValueError: it would be sent without TLS to another machine."""
        scheme, _, target = address.rpartition("://")
        if scheme not in ("", "grpc", "grpcs") or ":" not in target:
            raise ValueError(f"{address}: want HOST:PORT, grpc://HOST:PORT or grpcs://HOST:PORT")
        with_tls = scheme == "grpcs" or certificate is not None
        if token and not with_tls and not _is_loopback(target.rpartition(":")[0]):
            raise ValueError(f"{address}: a token is sent to another machine by grpcs:// only")
        options = [
            ("grpc.keepalive_time_ms", 60_000),  # finds a server that is gone without a word
            ("grpc.initial_reconnect_backoff_ms", int(_FIRST_WAIT_S * 1000)),
            ("grpc.max_reconnect_backoff_ms", int(_LONGEST_WAIT_S * 1000)),
            ("grpc.max_receive_message_length", 64 << 20),  # a list of 100,000 queues
        ]
        if with_tls:
            roots = None if certificate is None else certificate.read_bytes()
            trusted = grpc.ssl_channel_credentials(roots)
            self.channel = grpc.aio.secure_channel(target, trusted, options)
        else:
            self.channel = grpc.aio.insecure_channel(target, options)
        self._stub: Any = rpc.URLFrontierStub(self.channel)  # type: ignore[no-untyped-call]  # made by grpc
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._takes_batches = True
        self.crawl_id = crawl_id
        self.patience_s = patience_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.channel.close()

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Make *attempt* again while the server cannot be reached."""
        patience = Patience(self.patience_s)
        while True:
            try:
                return await attempt()
            except (grpc.aio.AioRpcError, ConnectionError) as error:
                await patience.wait(error)

    def begin(self, name: str, *request: object) -> Any:
        """Begin the call *name*, and return grpc's object for it."""
        return getattr(self._stub, name)(*request, metadata=self._metadata)

    async def _call(self, name: str, request: object) -> Any:
        async def attempt() -> Any:
            return await self.begin(name, request)

        return await self._patiently(attempt)

    # URLs are put.

    async def put_discovered(
        self, urls: Iterable[str | pb.URLInfo], batch: int = _BATCH
    ) -> list[int]:
        """Put URLs that were found, and return their statuses in order. A server without batches,
        older than 2.6, gets them one by one."""
        infos = [self._own(url) for url in urls]
        if self._takes_batches:
            parts = [infos[start : start + batch] for start in range(0, len(infos), batch)]
            try:
                acks = await self._put_all(
                    "PutDiscovered", [pb.DiscoveredBatch(items=part) for part in parts]
                )
                return [status for ack in acks for status in ack.statuses]
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.UNIMPLEMENTED:
                    raise
                self._takes_batches = False
        return await self.put([discovered(info) for info in infos])

    async def put(self, items: Iterable[pb.URLItem]) -> list[int]:
        """Put items, and return their statuses in order. What many calls put one by one, a
        PutStream puts faster."""
        owned = [self.own_item(item) for item in items]
        return [ack.status for ack in await self._put_all("PutURLs", owned)]

    async def _put_all(self, name: str, messages: Sequence[Any]) -> list[Any]:
        """Send *messages* as a stream, and return their acknowledgements in order. After a broken
        connection those that have none are sent again."""
        acks: dict[str, Any] = {}
        waiting = {str(number): message for number, message in enumerate(messages)}
        for number, message in waiting.items():
            message.ID = number

        async def attempt() -> None:
            call = self.begin(name)

            async def send() -> None:
                for number in [number for number in waiting if number not in acks]:
                    await call.write(waiting[number])
                await call.done_writing()

            sending = asyncio.create_task(send())
            try:
                async for ack in call:
                    acks[ack.ID] = ack
            finally:
                await _end(sending)
            if len(acks) < len(waiting):
                raise ConnectionError(f"{name} ended after {len(acks)} of {len(waiting)} answers")

        if waiting:
            await self._patiently(attempt)
        return [acks[number] for number in waiting]

    def _own(self, url: str | pb.URLInfo) -> pb.URLInfo:
        """Return *url* as one of this crawl, if it names no other."""
        info = pb.URLInfo(url=url) if isinstance(url, str) else url
        if self.crawl_id and not info.crawlID:
            info.crawlID = self.crawl_id
        return info

    def own_item(self, item: pb.URLItem) -> pb.URLItem:
        self._own(item.known.info if item.HasField("known") else item.discovered.info)
        return item

    # URLs are taken, and looked at.

    async def get_urls(
        self,
        *,
        queues: int = 10,
        per_queue: int = 10,
        lease_s: int = 30,
        key: str = "",
        any_crawl: bool = False,
    ) -> list[pb.URLInfo]:
        """Take URLs that are due, for *lease_s* seconds: until then put them as known. If the
        connection breaks they are those that have come."""
        params = pb.GetParams(
            max_queues=queues, max_urls_per_queue=per_queue, delay_requestable=lease_s, key=key
        )
        if any_crawl:
            params.anyCrawlID.SetInParent()
        else:
            params.crawlID = self.crawl_id
        found: list[pb.URLInfo] = []

        async def attempt() -> None:
            try:
                async for info in self.begin("GetURLs", params):
                    found.append(info)  # noqa: PERF401  # kept when the next one raises
            except grpc.aio.AioRpcError:
                if not found:
                    raise

        await self._patiently(attempt)
        return found

    async def status(self, url: str, key: str = "") -> pb.URLItem | None:
        """Return what is known of *url*, or None."""
        request = pb.URLStatusRequest(url=url, key=key, crawlID=self.crawl_id)
        try:
            item: pb.URLItem = await self._call("GetURLStatus", request)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.NOT_FOUND:
                return None
            raise
        return item

    async def list_urls(
        self, *, key: str = "", start: int = 0, size: int = _ALL, crawl_id: str | None = None
    ) -> AsyncIterator[pb.URLItem]:
        """Yield all URLs, completed ones too, as known. A broken connection ends it."""
        crawl = self.crawl_id if crawl_id is None else crawl_id
        params = pb.ListUrlParams(start=start, size=size, key=key, crawlID=crawl)
        async for item in self.begin("ListURLs", params):
            yield item

    async def count_urls(self, key: str = "") -> int:
        request = pb.CountUrlParams(key=key, crawlID=self.crawl_id)
        return int((await self._call("CountURLs", request)).value)

    async def stats(self, key: str = "") -> pb.Stats:
        """Return the counts of a queue, or of the crawl."""
        request = pb.QueueWithinCrawlParams(key=key, crawlID=self.crawl_id)
        stats: pb.Stats = await self._call("GetStats", request)
        return stats

    # Queues and crawls.

    async def queues(
        self, *, start: int = 0, size: int = 100, include_inactive: bool = False
    ) -> list[str]:
        request = pb.Pagination(
            start=start, size=size, include_inactive=include_inactive, crawlID=self.crawl_id
        )
        return list((await self._call("ListQueues", request)).values)

    async def block_queue(self, key: str, until: int) -> None:
        """Get no URL of a queue until *until*, epoch seconds; 0 ends the block."""
        request = pb.BlockQueueParams(key=key, time=until, crawlID=self.crawl_id)
        await self._call("BlockQueueUntil", request)

    async def set_delay(self, delay_s: int, key: str = "") -> None:
        """Let a queue rest so long after it was served, or all that have no delay of their own."""
        request = pb.QueueDelayParams(key=key, delay_requestable=delay_s, crawlID=self.crawl_id)
        await self._call("SetDelay", request)

    async def set_limit(self, key: str, limit: int) -> None:
        """Get no URL of a queue of which *limit* are completed."""
        request = pb.CrawlLimitParams(key=key, limit=limit, crawlID=self.crawl_id)
        await self._call("SetCrawlLimit", request)

    async def delete_queue(self, key: str) -> int:
        request = pb.QueueWithinCrawlParams(key=key, crawlID=self.crawl_id)
        return int((await self._call("DeleteQueue", request)).value)

    async def crawls(self) -> list[str]:
        """Return the names of all crawls of the server."""
        return list((await self._call("ListCrawls", pb.Local())).values)

    async def delete_crawl(self) -> int:
        request = pb.DeleteCrawlMessage(value=self.crawl_id)
        return int((await self._call("DeleteCrawl", request)).value)

    async def set_active(self, active: bool) -> None:
        """Let the server serve URLs, or not, of all its crawls."""
        await self._call("SetActive", pb.Active(state=active))

    # Dumps: a URLItem in JSON on each line, as the reference writes and reads them.

    async def dump(self, out: IO[str], crawl_id: str | None = None) -> int:
        """Write all URLs of one crawl, or of all crawls of the server, and return how many."""
        crawls = await self.crawls() if crawl_id is None else [crawl_id]
        lines = 0
        for crawl in crawls:
            async for item in self.list_urls(crawl_id=crawl):
                out.write(_json(item) + "\n")
                lines += 1
        return lines

    async def load(self, lines: Iterable[str], tell: Tell) -> int:
        """Put the URLs of a dump, or of lines that are URLs, and return how many the server has
        taken or knew. *tell*: what is wrong with a line, which is left out, and which URLs the
        server has refused."""
        taken = 0
        items = _read_items(lines, tell)
        while chunk := list(islice(items, _CHUNK)):
            for is_known, same in groupby(chunk, key=lambda item: item.HasField("known")):
                part = list(same)
                infos = [each.known.info if is_known else each.discovered.info for each in part]
                urls = [info.url for info in infos]
                statuses = await (self.put(part) if is_known else self.put_discovered(infos))
                # A known URL is skipped only if it is more than the server keeps.
                refused = (FAIL, SKIPPED) if is_known else (FAIL,)
                for url, status in zip(urls, statuses, strict=True):
                    if status in refused:
                        tell(f"the server has not taken {url[:_SHOWN]}")
                    else:
                        taken += 1
        return taken


def _read_items(lines: Iterable[str], tell: Tell) -> Iterator[pb.URLItem]:
    for number, line in enumerate(lines, 1):
        text = line.lstrip("\ufeff").strip()
        if not text:
            continue
        item = discovered(text)
        if text.startswith("{"):
            try:
                item = json_format.Parse(text, pb.URLItem(), ignore_unknown_fields=True)
            except json_format.ParseError as error:
                tell(f"line {number} is left out, it is no URLItem: {error}")
                continue
            if item.WhichOneof("item") is None:
                tell(f"line {number} is left out: it has neither known nor discovered")
                continue
        info = (item.known if item.HasField("known") else item.discovered).info
        if not _URL.fullmatch(info.url) or (not info.key and _WITHOUT_HOST.match(info.url)):
            tell(f"line {number} is left out, it has no URL: {info.url[:_SHOWN]!r}")
            continue
        yield item


class PutStream:
    """A stream of PutURLs that stays open. Connections that break are made again, and what was not
    acknowledged is sent again, in order; after `patience_s` of the client it is given up, and each
    future raises the error."""

    def __init__(self, client: FrontierClient) -> None:
        self._client = client
        self._patience = Patience(client.patience_s)
        self._sent = 0
        self._open: dict[str, tuple[pb.URLItem, asyncio.Future[int]]] = {}
        self._outgoing: deque[str] = deque()
        self._closing = False
        self._changed = asyncio.Event()
        self._room = asyncio.Semaphore(MOST_UNACKNOWLEDGED)
        self._task = asyncio.create_task(self._run())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, item: pb.URLItem) -> asyncio.Future[int]:
        """Send *item* when there is room, and return the future of its status."""
        await self._room.acquire()
        if self._task.done():
            self._room.release()
            await self._task  # raises why it has ended
            raise ConnectionError("the stream is closed")
        self._sent += 1
        item.ID = str(self._sent)
        status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._open[item.ID] = self._client.own_item(item), status
        self._outgoing.append(item.ID)
        self._changed.set()
        return status

    async def close(self) -> None:
        """Wait for the acknowledgements of all that was sent, and end the stream."""
        self._closing = True
        self._changed.set()
        await self._task

    async def _run(self) -> None:
        try:
            while self._open or not self._closing:
                try:
                    await self._exchange()
                except (grpc.aio.AioRpcError, ConnectionError) as error:
                    await self._patience.wait(error)
        except BaseException as error:
            for _, status in self._open.values():
                if not status.done():
                    status.set_exception(error)
                    status.exception()  # what nobody waits for is not logged
            self._room.release()
            raise

    async def _exchange(self) -> None:
        """Send all that is not acknowledged, and what comes, until the stream ends."""
        call = self._client.begin("PutURLs")
        sending = asyncio.create_task(self._send_to(call))
        try:
            async for ack in call:
                self._patience.renew()
                _, status = self._open.pop(ack.ID, (None, None))
                if status is not None:
                    self._room.release()
                    if not status.done():
                        status.set_result(ack.status)
        finally:
            await _end(sending)
        if self._open or not self._closing:
            raise ConnectionError("the server has ended the stream")

    async def _send_to(self, call: Any) -> None:
        self._outgoing = deque(self._open)
        while True:
            while self._outgoing:
                item, _ = self._open[self._outgoing.popleft()]
                await call.write(item)
            if self._closing:
                await call.done_writing()
                return
            self._changed.clear()
            await self._changed.wait()


class Patience:
    """How long to wait before a server that cannot be reached is tried again, and for how long."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self.renew()

    def renew(self) -> None:
        self._wait_s, self._until = _FIRST_WAIT_S, time.monotonic() + self._patience_s

    async def wait(self, error: Exception) -> None:
        """Wait twice as long as the last time. Raises *error* where trying again is of no use."""
        code = error.code() if isinstance(error, grpc.aio.AioRpcError) else _WITHOUT_SERVER[0]
        if code not in _WITHOUT_SERVER or time.monotonic() > self._until:
            raise error
        await asyncio.sleep(self._wait_s * random.uniform(0.5, 1.0))
        self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)


# The second: it is being stopped. The third: the connection broke while something was written.
_WITHOUT_SERVER: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


# The command line.


async def command(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line, and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m crawler.urlfrontier.client",
        description="Ask a server of the URL Frontier protocol.",
    )
    of_all = argparse.ArgumentParser(add_help=False)
    of_all.add_argument("address", metavar="ADDRESS", help="HOST:PORT, or grpcs://HOST:PORT")
    of_all.add_argument("--crawl", metavar="ID", help="one crawl; dump: all without it")
    of_all.add_argument("--token-file", type=Path, help="a file with nothing but the token")
    of_all.add_argument("--ca", type=Path, help="the certificates to be trusted; it means TLS")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, text in (
        ("dump", "write all URLs as lines of JSON; gzip where FILE ends in .gz"),
        ("load", "put the URLs of a dump, or of lines that are URLs"),
        ("get", "take URLs that are due, and print them as lines of JSON"),
        ("stats", "print the counts of a crawl or queue"),
    ):
        own = verbs.add_parser(verb, help=text, parents=[of_all])
        if verb in ("dump", "load"):
            own.add_argument("file", metavar="FILE", type=Path)
        else:
            own.add_argument("--key", default="", help="of the queue")
        if verb == "get":
            own.add_argument("--queues", type=int, default=10)
            own.add_argument("--per-queue", type=int, default=10)
            own.add_argument("--lease", metavar="SECONDS", type=int, default=30)
    given = parser.parse_args(arguments)
    try:
        return await _answer(given)
    except grpc.aio.AioRpcError as error:
        reason = f"{error.code().name}: {error.details()}"
    except (OSError, ValueError) as error:
        reason = str(error)
    print(f"{given.verb} {given.address}: {reason}", file=sys.stderr)
    return 1


async def _answer(given: argparse.Namespace) -> int:
    token = given.token_file.read_text(encoding="utf-8").strip() if given.token_file else ""
    async with FrontierClient(
        given.address,
        crawl_id=given.crawl or "",
        token=token,
        certificate=given.ca,
        patience_s=5.0,
    ) as client:
        if given.verb == "stats":
            print(_json(await client.stats(given.key)))
        elif given.verb == "get":
            for info in await client.get_urls(
                queues=given.queues,
                per_queue=given.per_queue,
                lease_s=given.lease,
                key=given.key,
                any_crawl=given.crawl is None and not given.key,
            ):
                print(_json(info))
        elif given.verb == "dump":
            with _new_file(given.file) as out:
                lines = await client.dump(out, given.crawl)
            print(f"{lines} URLs", file=sys.stderr)
        else:
            wrong: list[str] = []
            with _opened(given.file, "rt") as dump:
                taken = await client.load(dump, wrong.append)
            for text in wrong:
                print(f"{given.file}, {text}", file=sys.stderr)
            print(f"{taken} URLs", file=sys.stderr)
            return 1 if wrong else 0
    return 0


def _json(message: Any) -> str:
    return str(json_format.MessageToJson(message, indent=None, ensure_ascii=False))


def _opened(path: Path, mode: str) -> IO[str]:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    return opened(path, mode, encoding="utf-8")  # type: ignore[no-any-return]  # a file of text


@contextmanager
def _new_file(path: Path) -> Iterator[IO[str]]:
    """Open a file that is called *path* once it is whole, and never in place of another."""
    partial = path.with_name(f".partial-{path.name}")
    if path.exists():
        raise FileExistsError(f"{path} is there already")
    try:
        with _opened(partial, "xt") as out:
            yield out
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


if __name__ == "__main__":
    sys.exit(asyncio.run(command()))
