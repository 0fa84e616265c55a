"""What waits to be told, and one pipeline of it.

Rule: each call goes out with what its answer means; the meaning decides whether it goes out again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

from crawler.core.errors import CrawlerError, StoreUnavailable
from crawler.core.types import Added, Candidate, Lease, Rest
from crawler.storage.redis.calls import Call
from crawler.storage.redis.ops import Finished, shard_of, shard_of_lease


class Nodes(Protocol):
    async def run(self, calls: Sequence[Call]) -> list[Any]: ...

    @property
    def single_server(self) -> bool: ...


@dataclass(slots=True)
class Events:
    """What becomes known later than it was asked for."""

    added: Callable[[Added], None]
    refused: Callable[[Lease], None]  # its verdict came too late
    crowded: Callable[[StoreUnavailable], None]  # a server has no memory for our links
    paused: Callable[[StoreUnavailable], None]  # our disk is full: it goes on when there is room
    failed: Callable[[CrawlerError], None]  # no waiting mends it


@dataclass(frozen=True, slots=True)
class Ended:
    """A fetch is over."""

    lease: Lease
    rest: Rest
    at: float  # monotonic


@dataclass(slots=True)
class Batch:
    """All that waits to be told."""

    links: list[Candidate] = field(default_factory=list)
    targets: list[tuple[Candidate, Candidate]] = field(default_factory=list)  # of redirects
    releases: list[Ended] = field(default_factory=list)
    finishes: list[Finished] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any((self.links, self.targets, self.releases, self.finishes))


class Sending:
    """One pipeline."""

    def __init__(self, nodes: Nodes, account: Callable[[Sequence[Call], Any, float], None]) -> None:
        """*account* hears every reply, with what is to be said again if it is forgotten, and when
        it was said (monotonic)."""
        self._nodes = nodes
        self._account = account
        self._calls: list[Call] = []
        self._again: list[Sequence[Call]] = []
        self._meanings: list[Callable[[Any], bool]] = []
        self.is_whole = True

    def put(self, call: Call, means: Callable[[Any], bool], again: Call | None = None) -> None:
        """*means* takes the reply; False: it must be sent again. *again*: what to say beside it
        when it is forgotten."""
        self._calls.append(call)
        self._again.append([call] if again is None else [call, again])
        self._meanings.append(means)

    async def send(self) -> bool:
        """False: something must be sent again."""
        if not self._calls:
            return self.is_whole
        asked_at = monotonic()
        replies = await self._nodes.run(self._calls)
        told = zip(self._again, self._meanings, replies, strict=True)
        for again, means, reply in told:
            self.is_whole = means(reply) and self.is_whole
            self._account(again, reply, asked_at)
        return self.is_whole


def links_by_shard(found: Sequence[Candidate], shards: int) -> dict[int, list[Candidate]]:
    by_shard: dict[int, list[Candidate]] = {}
    known: dict[str, int] = {}
    for candidate in found:
        shard = known.get(candidate.domain)
        if shard is None:
            shard = known[candidate.domain] = shard_of(candidate.domain, shards)
        by_shard.setdefault(shard, []).append(candidate)
    return by_shard


def ended_by_shard(ended: Sequence[Ended]) -> dict[int, list[Ended]]:
    by_shard: dict[int, list[Ended]] = {}
    for each in ended:
        by_shard.setdefault(shard_of_lease(each.lease), []).append(each)
    return by_shard
