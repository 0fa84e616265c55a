"""Resolve host names, and refuse the addresses that may not be connected to.

Rule: every address is checked each time before its use, be it from DNS, the hosts file or the URL.
Answers are cached for their TTL, and names without an address for NEGATIVE_TTL_S.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from time import monotonic
from typing import Final, Protocol

import aiodns

from crawler.model.page import AddressRefused
from crawler.policy.scope import AddressKind, address_kind

CACHE_SIZE: Final = 65_536  # about 20 MB
MIN_TTL_S: Final = 5.0  # guess: no lookup for each page where the TTL is 0 (the hosts file)
MAX_TTL_S: Final = 86_400.0  # RFC 8767 5: a week is the most; a day is what resolvers keep
NEGATIVE_TTL_S: Final = 60.0  # guess; RFC 2308 allows up to 3 hours
LOOKUP_TIMEOUT_S: Final = 5.0
PROBED_NAME: Final = "a.root-servers.net"
"""Every resolver begins with it."""


@dataclass(frozen=True, slots=True)
class ResolvedName:
    """The addresses of a name; empty if it does not exist or has none."""

    ips: tuple[str, ...]
    ttl_s: float


class LookupFailed(OSError):
    """The name servers did not answer; a retry may succeed."""


Admits = Callable[[str, str, int], bool]
"""Whether a connection is allowed, given the address, its host name and the port."""


class Lookup(Protocol):
    """The DNS client behind the cache."""

    async def __call__(self, name: str) -> ResolvedName:
        """Raises LookupFailed."""

    async def close(self) -> None:
        """End the lookups under way. May be called again afterwards."""


class Resolver:
    """A cache over one lookup function. Bound: CACHE_SIZE names, least recently used."""

    def __init__(
        self,
        admits: Admits,
        lookup: Lookup,
        clock: Callable[[], float] = monotonic,
        size: int = CACHE_SIZE,
        *,
        on_lookup: Callable[[str, float], None] | None = None,
    ) -> None:
        """*on_lookup* is called after each lookup that the cache could not answer, with its result
        (found, absent, failed) and its seconds; None: they are not counted."""
        self._admits = admits
        self._lookup = lookup
        self._clock = clock
        self._size = size
        self._on_lookup = on_lookup
        self._cache: OrderedDict[str, tuple[ResolvedName, float]] = OrderedDict()
        self._lookups: dict[str, asyncio.Task[ResolvedName]] = {}

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of *host* that may be connected to; at least one.
        Raises AddressRefused, or OSError if the name has no address."""
        if is_address(host):
            self.check_literal(host, port)
            return [host]
        ips = (await self._find(host)).ips
        if not ips:
            raise OSError(None, f"no address for {host}")
        admitted = [ip for ip in ips if self._admits(ip, host, port)]
        if not admitted:
            raise AddressRefused(f"{host} is {', '.join(ips[:3])}: {_what_is(ips[0])}")
        return admitted

    def check_literal(self, host: str, port: int) -> None:
        """Raise AddressRefused if *host* is a refused address."""
        if not is_address(host):
            return
        if not self._admits(host, host, port):
            raise AddressRefused(f"{host} is {_what_is(host)}")

    async def reaches_name_servers(self) -> bool:
        """Return whether any name server answers, by a question to which all know the answer."""
        try:
            await self._ask(PROBED_NAME)
        except LookupFailed:
            return False
        return True

    async def close(self) -> None:
        """Cancel the lookups under way. The cache stays."""
        for task in self._lookups.values():
            task.cancel()
        await self._lookup.close()

    async def _find(self, host: str) -> ResolvedName:
        name = host.lower().removesuffix(".")
        cached = self._cache.get(name)
        if cached is not None and self._clock() < cached[1]:
            self._cache.move_to_end(name)
            return cached[0]
        task = self._lookups.get(name)
        if task is None:
            task = self._lookups[name] = asyncio.create_task(self._ask(name), name=name)
            task.add_done_callback(self._lookup_ended)
        try:
            # A waiter that is cancelled must not cancel the others.
            return await asyncio.shield(task)
        finally:
            del task  # its error has a traceback, in which this frame would keep the task

    def _lookup_ended(self, task: asyncio.Task[ResolvedName]) -> None:
        self._lookups.pop(task.get_name(), None)
        if not task.cancelled():
            task.exception()  # or asyncio would log it, if all waiters were cancelled

    async def _ask(self, name: str) -> ResolvedName:
        began_at, result = self._clock(), "failed"
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                found = await self._lookup(name)
            result = "found" if found.ips else "absent"
        except TimeoutError as error:
            raise LookupFailed(None, f"no answer about {name}") from error
        finally:
            if self._on_lookup is not None:
                self._on_lookup(result, self._clock() - began_at)
        ttl_s = min(max(found.ttl_s, MIN_TTL_S), MAX_TTL_S) if found.ips else NEGATIVE_TTL_S
        self._cache[name] = (found, self._clock() + ttl_s)
        self._cache.move_to_end(name)
        while len(self._cache) > self._size:
            self._cache.popitem(last=False)
        return found


class AresLookup:
    """The system's name servers through c-ares, which reads the hosts file first and answers for
    localhost itself (RFC 6761)."""

    def __init__(self, nameservers: tuple[str, ...] = ()) -> None:
        self._nameservers = nameservers
        self._ares: aiodns.DNSResolver | None = None  # made late: it belongs to a running loop

    async def __call__(self, name: str) -> ResolvedName:
        if self._ares is None:
            self._ares = aiodns.DNSResolver(self._nameservers or None, timeout=2.0, tries=2)
        try:
            answer = await self._ares.getaddrinfo(name, type=socket.SOCK_STREAM)
        except aiodns.error.DNSError as error:
            if error.args[0] in _NO_SUCH_NAME:
                return ResolvedName((), NEGATIVE_TTL_S)
            raise LookupFailed(None, f"{name}: {error.args[-1]}") from error
        ips = tuple(dict.fromkeys(node.addr[0].decode("ascii") for node in answer.nodes))
        return ResolvedName(ips, min((float(node.ttl) for node in answer.nodes), default=0.0))

    async def close(self) -> None:
        if self._ares is not None:
            await self._ares.close()
            self._ares = None


_NO_SUCH_NAME: Final = frozenset(
    {aiodns.error.ARES_ENOTFOUND, aiodns.error.ARES_ENODATA, aiodns.error.ARES_EBADNAME}
)


@lru_cache(maxsize=1024)
def is_address(host: str) -> bool:
    """Return whether *host* is an IP address instead of a name."""
    if ":" not in host and not host[-1:].isdigit():
        return False
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _what_is(refused: str) -> str:
    if address_kind(refused) is AddressKind.PUBLIC:
        return "a public address, and CRAWLER_CONTACT does not say who asks"
    return "an inside address"
