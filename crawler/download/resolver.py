"""Resolve host names, before the turn of their hosts if possible, and refuse the addresses that may
not be connected to.

Rule: every address is checked each time before its use, be it from DNS, the hosts file or the URL.
Answers are cached for their TTL, and names without an address for NEGATIVE_TTL_S. While the name
servers do not answer, addresses are used for up to a day longer. Another worker's answer counts as
one of a name server, for as long as that is left, but only where its addresses are admitted.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from ipaddress import ip_address
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

import aiodns

from crawler.model.page import AddressRefused, ResolvedName
from crawler.model.types import HostKey
from crawler.policy.addresses import AddressKind, address_kind

if TYPE_CHECKING:  # only a shared crawl imports it: 30 ms
    from crawler.shared.worker.names import SharedNames

CACHE_SIZE: Final = 65_536  # about 30 MB
MIN_TTL_S: Final = 60.0  # as Chromium (kMinimumTTLSeconds), also for the hosts file, whose TTL is 0
MAX_TTL_S: Final = 86_400.0  # RFC 8767 4: a week is the most; a day is what resolvers keep
NEGATIVE_TTL_S: Final = 60.0  # guess; RFC 2308 allows up to 3 hours
STALE_S: Final = 86_400.0  # RFC 8767 5: one to three days after the TTL
RECHECK_S: Final = 30.0  # RFC 8767 5: the least until servers that did not answer are asked again
LOOKUP_TIMEOUT_S: Final = 5.0
PROBED_NAME: Final = "a.root-servers.net"
"""Every resolver begins with it."""


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


@dataclass(slots=True)
class _CachedName:
    """What is known of a name."""

    ips: tuple[str, ...] | None  # None: the name servers did not answer
    fresh_until: float
    usable_until: float = 0.0  # so long they are used if the name servers do not answer
    is_shared: bool = False  # another worker was told so
    is_stale: bool = False  # they are used so now


class Resolver:
    """A cache over one lookup function. Bound: CACHE_SIZE names, least recently used."""

    def __init__(
        self,
        admits: Admits,
        lookup: Lookup,
        clock: Callable[[], float] = monotonic,
        size: int = CACHE_SIZE,
        *,
        shared: SharedNames | None = None,
        on_lookup: Callable[[str, float], None] | None = None,
        on_use: Callable[[str], None] | None = None,
    ) -> None:
        """*shared* has what the name servers said to other workers. *on_lookup* is called after
        each question to the name servers, with its result (found, absent, failed) and its seconds.
        *on_use* is called for each name that a connection needs (cached, stale, or waited for), for
        each that is prefetched, shared (another worker had it), disbelieved (what that had is
        refused), or evicted. None: they are not counted."""
        self._admits = admits
        self._lookup = lookup
        self._clock = clock
        self._size = size
        self._shared = shared
        self._on_lookup = on_lookup
        self._on_use = on_use
        self._cache: OrderedDict[str, _CachedName] = OrderedDict()
        self._lookups: dict[str, asyncio.Task[tuple[str, ...]]] = {}

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of *host* that may be connected to; at least one.
        Raises AddressRefused, or OSError if the name has no address."""
        if is_address(host):
            self.check_literal(host, port)
            return [host]
        ips = await self._find(host)
        admitted = [ip for ip in ips if self._admits(ip, host, port)]
        if not admitted and self._is_shared(host):
            # Anyone who can write to Redis could stop the fetches of a host so.
            self._count("disbelieved")
            ips = (await self._ask(_lookup_form(host))).ips
            admitted = [ip for ip in ips if self._admits(ip, host, port)]
        if not ips:
            raise OSError(None, f"no address for {host}")
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
        if self._shared is not None:
            self._shared.close()
        await self._lookup.close()

    def needs_lookup(self, host: str, within_s: float) -> bool:
        """Return whether a connection to *host* within that time would wait for the name servers,
        and they were not asked just now without an answer."""
        name = _lookup_form(host)
        if is_address(host.strip("[]")) or name in self._lookups:
            return False
        known = self._cache.get(name)
        return known is None or known.fresh_until <= self._clock() + within_s

    def known(self, host: str) -> tuple[str, ...] | None:
        """Return the addresses of *host*, the preferred one first: only public ones, if it has any.
        Returns none if it has none, or the name servers did not answer just now, and None if they
        are to be asked."""
        literal = host.strip("[]")
        if is_address(literal):
            return (literal,)
        known = self._cache.get(_lookup_form(host))
        if known is None or known.fresh_until <= self._clock():
            return None
        ips = known.ips or ()
        public = tuple(ip for ip in ips if address_kind(ip) is AddressKind.PUBLIC)
        return public or ips

    def check_known(self, ip: str, host: str, port: int) -> None:
        """Raise AddressRefused unless *ip*, an address of *host*, may be connected to."""
        self._count("cached")
        if not self._admits(ip, host, port):
            raise AddressRefused(f"{host} is {ip}: {_what_is(ip)}")

    def prefetch(self, host: str, on_ended: Callable[[], None]) -> None:
        """Look *host* up, which is no address, and call *on_ended* after that."""
        self._count("prefetched")
        name = _lookup_form(host)
        task = self._lookups.get(name) or self._begin(name)
        task.add_done_callback(lambda _: on_ended())

    async def _find(self, host: str) -> tuple[str, ...]:
        name = _lookup_form(host)
        known = self._cache.get(name)
        if known is not None and known.ips is not None and self._clock() < known.fresh_until:
            self._cache.move_to_end(name)
            self._count("stale" if known.is_stale else "cached")
            return known.ips
        self._count("waited")
        task = self._lookups.get(name) or self._begin(name)
        try:
            # A waiter that is cancelled must not cancel the others.
            return await asyncio.shield(task)
        finally:
            del task  # its error has a traceback, in which this frame would keep the task

    def _begin(self, name: str) -> asyncio.Task[tuple[str, ...]]:
        task = self._lookups[name] = asyncio.create_task(self._renew(name), name=name)
        task.add_done_callback(self._lookup_ended)
        return task

    def _lookup_ended(self, task: asyncio.Task[tuple[str, ...]]) -> None:
        self._lookups.pop(task.get_name(), None)
        if not task.cancelled():
            task.exception()  # or asyncio would log it, if all waiters were cancelled

    def _is_shared(self, host: str) -> bool:
        known = self._cache.get(_lookup_form(host))
        return known is not None and known.is_shared

    async def _renew(self, name: str) -> tuple[str, ...]:
        """Return what another worker or the name servers answer, or what they answered before.
        Raises LookupFailed."""
        found = None if self._shared is None else await self._shared.find(name)
        if found is not None and not any(self._admits(ip, name, 0) for ip in found.ips):
            # Anyone who can write to Redis could stop the fetches of a host so.
            self._count("disbelieved")
            found = None
        if found is not None:
            self._count("shared")
            fresh_until = self._clock() + min(found.ttl_s, MAX_TTL_S)
            self._keep(
                name, _CachedName(found.ips, fresh_until, fresh_until + STALE_S, is_shared=True)
            )
            return found.ips
        try:
            return (await self._ask(name)).ips
        except LookupFailed:
            now, known = self._clock(), self._cache.get(name)
            if known is None or not known.ips or now >= known.usable_until:
                self._keep(name, _CachedName(None, now + RECHECK_S))
                raise
            known.fresh_until, known.is_stale = now + RECHECK_S, True
            return known.ips

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
        now = self._clock()
        if found.ips:
            ttl_s = min(max(found.ttl_s, MIN_TTL_S), MAX_TTL_S)
            self._keep(name, _CachedName(found.ips, now + ttl_s, now + ttl_s + STALE_S))
            if self._shared is not None:
                self._shared.add(name, ResolvedName(found.ips, ttl_s))
        else:
            self._keep(name, _CachedName((), now + NEGATIVE_TTL_S))
        return found

    def _keep(self, name: str, known: _CachedName) -> None:
        self._cache[name] = known
        self._cache.move_to_end(name)
        while len(self._cache) > self._size:
            self._cache.popitem(last=False)
            self._count("evicted")

    def _count(self, event: str) -> None:
        if self._on_use is not None:
            self._on_use(event)


PREFETCHES: Final = 200  # at once: 4,000 names a second from name servers that take 50 ms
LOOK_S: Final = 0.5  # between two looks at the hosts that come next
AHEAD_S: Final = 2.0  # guess: some looks, and the time of a slow look-up


class NamePrefetch:
    """Looks names up before the turn of their hosts, so that fetches find them in the cache.

    A proxy looks names up itself, and it may be used so that nobody sees which. So nothing is
    prefetched before a request goes without one, nor ever after one goes through it."""

    def __init__(self, resolver: Resolver, upcoming: Callable[[float], Iterable[str]]) -> None:
        """*upcoming* returns the names of the hosts that are fetched from next, as far as that can
        be seen, within the seconds that it is given. Names that are known may be left out."""
        self._resolver = resolver
        self._upcoming = upcoming
        self._room = asyncio.Semaphore(PREFETCHES)
        self._task: asyncio.Task[None] | None = None
        self.is_over = False
        """Whether nothing is looked up ahead any more: the crawl stops, or uses a proxy."""

    def note_request(self, *, by_proxy: bool) -> None:
        """Note that a request is sent."""
        if by_proxy:
            self.end()
        elif self._task is None and not self.is_over:
            self._task = asyncio.create_task(self._run(), name="names")

    def end(self) -> None:
        """Begin no look-up any more."""
        self.is_over = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            for name in self._upcoming(AHEAD_S):
                if self._resolver.needs_lookup(name, AHEAD_S):
                    await self._room.acquire()
                    self._resolver.prefetch(name, self._room.release)
            await asyncio.sleep(LOOK_S)


class LookedUpAddresses:
    """Implements frontier.port.HostAddresses: looks names up as hosts come to their turns. That
    many of them were looked up before is the work of NamePrefetch, and when that is over, no host
    has an address here."""

    def __init__(
        self, resolver: Resolver, prefetch: NamePrefetch, on_known: Callable[[HostKey], None]
    ) -> None:
        """*on_known* is called with a host for which `addresses` has returned None, when it was
        looked up."""
        self._resolver = resolver
        self._on_known = on_known
        self._prefetch = prefetch
        self._looked_up: set[HostKey] = set()

    def addresses(self, host: HostKey) -> tuple[str, ...] | None:
        if self._prefetch.is_over:
            return ()
        known = self._resolver.known(host)
        if known is None and host not in self._looked_up and len(self._looked_up) < PREFETCHES:
            self._looked_up.add(host)
            self._resolver.prefetch(host, partial(self._note_known, host))
        return known

    def _note_known(self, host: HostKey) -> None:
        self._looked_up.discard(host)
        if not self._prefetch.is_over:
            self._on_known(host)


# For the answers to all that is asked at once, in memory of the kernel: 1 kB each.
_RECEIVED_BYTES: Final = 512 * 1024
# c-ares keeps answers for an hour, 2 kB for a name, without a bound, and aiodns has no option for
# that. So another channel is opened, in 0.1 ms, after so many names: 20 MB.
RENEWED_AFTER: Final = 10_000


class AresLookup:
    """The system's name servers through c-ares, which reads the hosts file first and answers for
    localhost itself (RFC 6761)."""

    def __init__(
        self, nameservers: tuple[str, ...] = (), renewed_after: int = RENEWED_AFTER
    ) -> None:
        """*nameservers*: in place of the system's. *renewed_after*: look-ups of one channel."""
        self._nameservers = nameservers
        self._renewed_after = renewed_after
        self._ares: aiodns.DNSResolver | None = None  # made late: it belongs to a running loop
        self._asked = 0  # of its look-ups

    async def __call__(self, name: str) -> ResolvedName:
        ares = self._opened()  # until the answer is here: one without a reference is closed
        try:
            answer = await ares.getaddrinfo(name, type=socket.SOCK_STREAM)
        except aiodns.error.DNSError as error:
            if error.args[0] in _NO_SUCH_NAME:
                return ResolvedName((), NEGATIVE_TTL_S)
            raise LookupFailed(None, f"{name}: {error.args[-1]}") from error
        ips = tuple(dict.fromkeys(node.addr[0].decode("ascii") for node in answer.nodes))
        return ResolvedName(ips, min((float(node.ttl) for node in answer.nodes), default=0.0))

    def _opened(self) -> aiodns.DNSResolver:
        if self._ares is None or self._asked >= self._renewed_after:
            self._asked = 0
            self._ares = aiodns.DNSResolver(
                self._nameservers or None,
                timeout=2.0,
                tries=2,
                socket_receive_buffer_size=_RECEIVED_BYTES,
            )
        self._asked += 1
        return self._ares

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


def _lookup_form(host: str) -> str:
    return host.lower().removesuffix(".")


def _what_is(refused: str) -> str:
    if address_kind(refused) is AddressKind.PUBLIC:
        return "a public address, and CRAWLER_CONTACT does not say who asks"
    return "an inside address"
