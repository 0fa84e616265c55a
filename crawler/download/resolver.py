"""Host names to addresses, and which of them may be connected to.

Rule: every address is asked about before it is used, each time, be it an answer of DNS, of
the hosts file, or written in the URL. Answers are kept as long as they say, failures too.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from time import monotonic
from typing import Final, Protocol

import aiodns
from aiohttp.abc import AbstractResolver, ResolveResult

from crawler.model.page import AddressRefused
from crawler.policy.scope import AddressKind, place_of_ip

CACHE_SIZE: Final = 65_536  # about 20 MB; a host back after so many others is resolved anew
MIN_TTL_S: Final = 5.0  # guess: a TTL of 0, and the hosts file, are not asked for each page
MAX_TTL_S: Final = 86_400.0  # RFC 8767 5: a week is the most; a day is what resolvers keep
NEGATIVE_TTL_S: Final = 60.0  # guess; RFC 2308 allows up to 3 hours
LOOKUP_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ResolvedName:
    """What a name leads to. No addresses: the name does not exist, or has none."""

    ips: tuple[str, ...]
    ttl_s: float


class LookupFailed(OSError):
    """No answer about a name; another try may get one."""


Admits = Callable[[str, str, int], bool]
"""Address, the host name that led to it, and port."""


class Lookup(Protocol):
    """Who is asked about names."""

    async def __call__(self, name: str) -> ResolvedName:
        """Raises LookupFailed."""

    async def close(self) -> None:
        """May be asked again afterwards."""


class Resolver(AbstractResolver):
    """A cache over one lookup function. Bound: CACHE_SIZE names, least recently used."""

    def __init__(
        self,
        admits: Admits,
        lookup: Lookup,
        clock: Callable[[], float] = monotonic,
        size: int = CACHE_SIZE,
    ) -> None:
        self._admits = admits
        self._lookup = lookup
        self._clock = clock
        self._size = size
        self._known: OrderedDict[str, tuple[ResolvedName, float]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[ResolvedName]] = {}

    async def addresses(self, host: str, port: int) -> list[str]:
        """The addresses of *host* that may be connected to; at least one.
        Raises AddressRefused, or OSError: nothing is known of such a name."""
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
        """Refuse an address written in a URL, if it is one. (aiohttp resolves names only.)"""
        if not is_address(host):
            return
        if not self._admits(host, host, port):
            raise AddressRefused(f"{host} is {_what_is(host)}")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """For aiohttp."""
        return [_result(host, ip, port) for ip in await self.addresses(host, port)]

    async def close(self) -> None:
        """End lookups under way. What is known stays."""
        for task in self._asking.values():
            task.cancel()
        await self._lookup.close()

    async def _find(self, host: str) -> ResolvedName:
        name = host.lower().removesuffix(".")
        known = self._known.get(name)
        if known is not None and self._clock() < known[1]:
            self._known.move_to_end(name)
            return known[0]
        task = self._asking.get(name)
        if task is None:
            task = self._asking[name] = asyncio.create_task(self._ask(name), name=name)
            task.add_done_callback(self._asked)
        return await asyncio.shield(task)  # one waiter that gives up must not end the others'

    def _asked(self, task: asyncio.Task[ResolvedName]) -> None:
        self._asking.pop(task.get_name(), None)
        if not task.cancelled():
            task.exception()  # all who waited may have given up: then it is nobody's error

    async def _ask(self, name: str) -> ResolvedName:
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                found = await self._lookup(name)
        except TimeoutError as error:
            raise LookupFailed(None, f"no answer about {name}") from error
        ttl_s = min(max(found.ttl_s, MIN_TTL_S), MAX_TTL_S) if found.ips else NEGATIVE_TTL_S
        self._known[name] = (found, self._clock() + ttl_s)
        self._known.move_to_end(name)
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        return found


class AresLookup:
    """Asks the system's name servers through c-ares, which reads the hosts file first and
    answers for localhost itself (RFC 6761)."""

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


def is_address(host: str) -> bool:
    """An address is written where a name could be."""
    if ":" not in host and not host[-1:].isdigit():
        return False
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _what_is(refused: str) -> str:
    if place_of_ip(refused) is AddressKind.PUBLIC:
        return "a public address, and CRAWLER_CONTACT does not say who asks"
    return "an inside address"


def _result(host: str, ip: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=host, host=ip, port=port, family=family, proto=0, flags=flags)
