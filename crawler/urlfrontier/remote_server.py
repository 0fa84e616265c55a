"""The server of a URL Frontier as a crawl uses it: where it is, and the calls that are made.

Rule: what gRPC raises is translated here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self, TypeVar
from urllib.parse import parse_qsl, urlsplit

from crawler.model.types import ConfigError, CrawlerError, StoreUnavailable
from crawler.shared.faults import Unreachable
from crawler.urlfrontier.remote_frontier import RemoteStats
from crawler.urlfrontier.remote_urls import RemoteUrl

# Else gRPC's own library writes to stderr when a connection is lost; all of that is raised, too.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
try:
    import grpc
    import grpc.aio

    from crawler.urlfrontier import urlfrontier_pb2 as pb
    from crawler.urlfrontier.client import FrontierClient, known, metadata_of, url_info
except ImportError as missing:
    raise ConfigError(
        "CRAWLER_FRONTIER_URL names a URL Frontier, for which gRPC is missing"
        f" ({missing.name or missing}): pip install 'gossamer-crawler[urlfrontier]'"
    ) from missing

T = TypeVar("T")

DEFAULT_PORT: Final = 7071
START_S: Final = 10.0  # for so long a server is tried at the start
CALL_S: Final = 30.0
"""A call that is not over by then has failed. A server may wait for its disk, or look at all of its
queues."""
_OPTIONS: Final = frozenset(("token_file", "ca_file"))
_SHUT: Final = "lets us in with a token only (?token_file=PATH behind its port)"
_SURE: Final = {
    grpc.StatusCode.UNAUTHENTICATED: _SHUT,
    grpc.StatusCode.PERMISSION_DENIED: _SHUT,
    grpc.StatusCode.UNIMPLEMENTED: "is no URL Frontier, or an old one",
    grpc.StatusCode.INVALID_ARGUMENT: "refuses a call",
}
"""What a server says when it is of no use to try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlFrontierAddress:
    """Where a URL Frontier is. `str()` shows no token."""

    url: str  # grpc://host:port, or grpcs://
    token: str = field(default="", repr=False)
    ca_file: Path | None = None  # of certificates; None: those of this machine

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse *url*, after which options may follow: `token_file` and `ca_file`, paths. Raises
        ConfigError."""
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := options.keys() - _OPTIONS:
            raise ConfigError(
                f"CRAWLER_FRONTIER_URL has an unknown option {min(unknown)!r}; for a URL Frontier"
                f" there are {' and '.join(sorted(_OPTIONS))}"
            )
        if parts.scheme == "grpc" and "ca_file" in options:
            raise ConfigError("CRAWLER_FRONTIER_URL has a ca_file, but TLS is what grpcs:// is for")
        token, ca = options.get("token_file", ""), options.get("ca_file", "")
        if ca:
            _read(ca)
        port = "" if parts.port else f":{DEFAULT_PORT}"
        return cls(
            url=f"{parts.scheme}://{parts.netloc}{port}",
            token=_read(token).strip() if token else "",
            ca_file=Path(ca) if ca else None,
        )

    def __str__(self) -> str:
        return self.url


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as refused:
        raise ConfigError(f"CRAWLER_FRONTIER_URL: {path} cannot be read: {refused}") from refused


class UrlFrontierServer:
    """Implements remote_frontier.RemoteServer."""

    def __init__(self, address: UrlFrontierAddress, crawl_id: str) -> None:
        self.address = address
        self.connections = 0
        self._crawl_id = crawl_id
        self._client: FrontierClient | None = None
        self._watch: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return str(self.address)

    def check(self) -> None:
        """Return when the server answers. Raises Unreachable if it does not in START_S, and
        ConfigError if it is none, or does not let us in."""

        async def asked() -> None:
            async with self._new_client(START_S) as client:
                await self._translated(client.stats(), START_S + CALL_S)

        try:
            with ThreadPoolExecutor(1) as thread:  # the crawl's loop may be running in this one
                thread.submit(lambda: asyncio.run(asked())).result()
        except StoreUnavailable as away:
            raise Unreachable(
                f"{away}. Start it, or mend CRAWLER_FRONTIER_URL. Gave up after {START_S:g} s"
            ) from away

    async def put_discovered(self, urls: Sequence[RemoteUrl]) -> Sequence[int]:
        infos = [_info(url) for url in urls]
        return await self._call(lambda client: client.put_discovered(infos, len(infos)))

    async def put_known(self, urls: Sequence[tuple[RemoteUrl, int]]) -> Sequence[int]:
        items = [known(_info(url), date) for url, date in urls]
        return await self._call(lambda client: client.put(items))

    async def get_urls(self, queues: int, lease_s: int) -> Sequence[RemoteUrl]:
        infos = await self._call(
            lambda client: client.get_urls(queues=queues, per_queue=1, lease_s=lease_s)
        )
        return [RemoteUrl(each.url, each.key, metadata_of(each)) for each in infos]

    async def block(self, key: str, until: int) -> None:
        async def blocked(client: FrontierClient) -> None:
            try:
                await client.block_queue(key, until)
            except grpc.aio.AioRpcError as error:
                # There is no such crawl, or the queue is another server's: nothing of it is served.
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    raise

        await self._call(blocked)

    async def stats(self) -> RemoteStats:
        said = await self._call(lambda client: client.stats())
        return RemoteStats(said.size, said.inProcess, said.counts.get("completed", 0))

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._client is not None:
            await self._client.close()

    def _new_client(self, patience_s: float) -> FrontierClient:
        try:
            return FrontierClient(
                self.address.url,
                crawl_id=self._crawl_id,
                token=self.address.token,
                certificate=self.address.ca_file,
                patience_s=patience_s,
            )
        except ValueError as refused:
            raise ConfigError(f"CRAWLER_FRONTIER_URL: {refused}") from refused

    async def _call(self, call: Callable[[FrontierClient], Awaitable[T]]) -> T:
        if self._client is None:  # it belongs to the event loop that is running
            self._client = self._new_client(0.0)  # who calls tries again
            self._watch = asyncio.ensure_future(self._count_connections(self._client.channel))
        return await self._translated(call(self._client), CALL_S)

    async def _translated(self, call: Awaitable[T], patience_s: float) -> T:
        try:
            async with asyncio.timeout(patience_s):
                return await call
        except TimeoutError as error:
            raise StoreUnavailable(
                f"the URL Frontier at {self} has not answered for {patience_s:g} s"
            ) from error
        except ConnectionError as error:
            raise StoreUnavailable(f"the URL Frontier at {self}: {error}") from error
        except grpc.aio.AioRpcError as error:
            raise self._translation(error) from error

    def _translation(self, error: grpc.aio.AioRpcError) -> CrawlerError:
        details, sure = error.details() or error.code().name, _SURE.get(error.code())
        if sure is not None:
            return ConfigError(f"CRAWLER_FRONTIER_URL: what listens at {self} {sure}: {details}")
        return StoreUnavailable(f"the URL Frontier at {self} does not answer: {details}")

    async def _count_connections(self, channel: grpc.aio.Channel) -> None:
        state = channel.get_state()
        while True:
            await channel.wait_for_state_change(state)
            state = channel.get_state()
            if state is grpc.ChannelConnectivity.READY:
                self.connections += 1


def _info(url: RemoteUrl) -> pb.URLInfo:
    return url_info(url.url, key=url.key, metadata=url.metadata)
