"""The feeds in Redis that URLs are pushed to, in the formats of scrapy-redis, but without loss.

Rule: an item stays in Redis until the frontier has acknowledged it. A taken item is kept beside its
feed; if its worker does not renew it within a lease, another worker takes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from crawler.model.types import Candidate
from crawler.shared import keys
from crawler.shared.client import Nodes
from crawler.shared.connection import Argument
from crawler.shared.keys import Scripts

MAX_ITEM_BYTES: Final = 64 * 1024
"""The longest item: a URL is at most 4,096 characters, the rest is meta and form data."""
_MOST_KEPT: Final = 4096  # characters of a refused item that are kept
_HOSTS_AT_ONCE: Final = 500
_ITEMS_AT_ONCE: Final = 50
_encode = msgspec.json.Encoder().encode
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

T = TypeVar("T")


class PushedItem(NamedTuple):
    id: bytes  # given when it is taken, a new one each time
    text: bytes  # as it was pushed


class OpenedHost(NamedTuple):
    """A host that pushed seeds opened, and its place in the order of all of them."""

    host: str
    mark: int


class Feed:
    """One key that URLs are pushed to. All methods raise a Fault."""

    def __init__(
        self, nodes: Nodes, scripts: Scripts, key: str, session: str, lease_s: float
    ) -> None:
        """*session* must be unique among all Feeds of this key, past ones included."""
        self.key = key
        self.too_long = 0  # items refused for their size
        self._nodes = nodes
        self._scripts = scripts
        self.refused_key = keys.refused(key)
        self.lease_s = lease_s
        self._keys = (key, keys.taken(key), self.refused_key)
        self._session = session
        self._calls = count()

    def __repr__(self) -> str:
        return f"Feed({self.key!r})"

    async def take(self, limit: int) -> list[PushedItem]:
        """Take up to *limit* items for a lease. `hold` renews it."""
        token = f"{self._session}/{next(self._calls)}"
        reply = await self._run("feed_take", token, limit, self.lease_s, MAX_ITEM_BYTES)
        self.too_long += int(reply[0])
        return [PushedItem(*pair) for pair in _parts(reply[1:], 2)]

    async def hold(self, items: Sequence[PushedItem]) -> list[PushedItem]:
        """Renew the lease of *items*, and return those that are still this worker's."""
        reply = await self._run("feed_hold", *(item.id for item in items))
        return [item for item, held in zip(items, reply, strict=True) if held]

    async def remove(self, items: Sequence[PushedItem]) -> None:
        """Remove *items*, which the frontier has, from Redis."""
        taken = self._keys[1]
        for part in _parts(items, _ITEMS_AT_ONCE):
            await self._nodes.checked_command(taken, "HDEL", taken, *(item.id for item in part))

    async def refuse(self, items: Sequence[tuple[PushedItem, str]]) -> None:
        """Refuse items, each with its reason. The last thousand are kept in Redis."""
        for part in _parts(items, _ITEMS_AT_ONCE):
            args = [each for item, why in part for each in (item.id, _entry(item, why))]
            await self._run("feed_refuse", *args)

    async def length(self) -> int:
        """Return how many items are not in the frontier yet: waiting, or taken by any worker."""
        return sum(map(int, await self._run("feed_length")))

    async def _run(self, script: str, *args: Argument) -> Any:
        text = self._scripts.text(script)
        return await self._nodes.checked_command(
            self.key, "EVAL", text, len(self._keys), *self._keys, *args
        )


class OpenedHosts:
    """Hosts that pushed seeds opened, in one order for all workers. All methods raise a Fault."""

    def __init__(self, nodes: Nodes, scripts: Scripts, name: str) -> None:
        self._nodes = nodes
        self._scripts = scripts
        self._key = keys.opened_hosts(name)

    async def open(self, hosts: Sequence[str]) -> int:
        """Open *hosts*, and return the mark up to which a worker must read to know them all."""
        text = self._scripts.text("open_hosts")
        mark = 0
        for part in _parts(hosts, _HOSTS_AT_ONCE):
            reply = await self._nodes.checked_command(self._key, "EVAL", text, 1, self._key, *part)
            mark = max(mark, int(reply))
        return mark

    async def since(self, mark: int) -> list[OpenedHost]:
        """Return the first few hosts behind *mark*, in their order."""
        limit = ("LIMIT", 0, _HOSTS_AT_ONCE)
        command = ("ZRANGEBYSCORE", self._key, f"({mark}", "+inf", "WITHSCORES", *limit)
        reply = await self._nodes.checked_command(self._key, *command)
        return [OpenedHost(host.decode(), int(float(score))) for host, score in _parts(reply, 2)]


@dataclass(frozen=True, slots=True)
class SentCandidates:
    """The result of sending candidates, by shard."""

    runs: dict[int, bytes]  # the server's run of shards that acknowledged all of theirs
    failed: frozenset[int]  # shards that could not be asked


class PushedDelivery(Protocol):
    """Puts pushed candidates where they wait."""

    @property
    def durable_after_s(self) -> float:
        """After so long an acknowledged candidate is on the server's disk, or the server restarted;
        0 if it is there at once."""

    def shard(self, candidate: Candidate) -> int: ...

    async def add(self, found: Iterable[Candidate], is_urgent: bool) -> SentCandidates:
        """Raises a Fault that waiting cannot repair."""

    async def restarted_shards(self, runs: dict[int, bytes]) -> set[int] | None:
        """Return the shards that are in another run now, or None if not all could be asked."""


@dataclass(frozen=True, slots=True)
class PushedFeeds:
    """All feeds and hosts that pushing URLs uses in Redis."""

    start_urls: Feed
    urgent: Feed
    opened_hosts: OpenedHosts
    delivery: PushedDelivery

    @classmethod
    def of(
        cls,
        nodes: Nodes,
        delivery: PushedDelivery,
        name: str,
        key: str,
        session: str,
        lease_s: float,
    ) -> PushedFeeds:
        """*name* is that of the crawl, *key* the one that its seeds are pushed to."""
        scripts = Scripts()
        return cls(
            Feed(nodes, scripts, key, session, lease_s),
            Feed(nodes, scripts, keys.urgent(name), session, lease_s),
            OpenedHosts(nodes, scripts, name),
            delivery,
        )


def _parts(sequence: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (sequence[begin : begin + size] for begin in range(0, len(sequence), size))


def _entry(item: PushedItem, why: str) -> bytes:
    text = item.text.decode("utf-8", "backslashreplace")
    return _encode({"why": _SURROGATE.sub("?", why), "item": text[:_MOST_KEPT]})
