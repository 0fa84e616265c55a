"""Our shared frontier, asked as a worker asks it: in pipelines, many URLs a call.

Rule: what is measured begins with Candidates and ends with replies that are read.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from itertools import cycle, islice
from typing import Any, Final

from xxhash import xxh3_64_intdigest

from bench.frontier import links
from crawler.frontier.port import FrontierLimits
from crawler.model.types import (
    Candidate,
    Claim,
    Done,
    HostKey,
    Lease,
    Pace,
    Rest,
    Standing,
)
from crawler.shared import keys
from crawler.shared.address import Address
from crawler.shared.client import BlockingNodes, Call, Nodes
from crawler.shared.keys import Scripts
from crawler.shared.shard import (
    FinishedLease,
    ReleasedLease,
    ShardOperations,
    read_added,
    read_held,
    read_leases,
    shard_of_lease,
)

NAME: Final = "gossamer"
SHARDS: Final = 64
A_SHARD: Final = 25  # leases of one call
LEASE_S: Final = 120.0
RULES: Final = FrontierLimits(min_gap_s=0.0, gap_factor=0.0)
AT_ONCE: Final = Rest(0.0, Pace())
_NEW: Final = {Standing.NEW: A_SHARD}  # hosts of this measurement stay so


class Ours:
    def __init__(self, url: str, client: links.Client) -> None:
        opening = (0, LEASE_S, keys.SCHEMA)  # no second is lost of a server that is new
        nodes = Nodes(Address.parse(url), Scripts(), NAME, SHARDS, opening)
        self._link = BlockingNodes(nodes)
        self._session = f"bench-{client.number}"
        self._ops = ShardOperations(self._session, SHARDS, RULES, LEASE_S)
        # As workers prefer shards: each has its own, and takes of others when these are empty.
        own = [shard for shard in range(SHARDS) if shard % client.of == client.number]
        others = [shard for shard in range(SHARDS) if shard not in own]
        self._turns = [(len(shards), cycle(shards)) for shards in (own, others) if shards]

    def prepare(self, found: Iterable[links.Link]) -> list[Any]:
        return [_candidate(link) for link in found]

    def add(self, prepared: Sequence[Any]) -> int:
        replies = self._link.run(self._ops.add(prepared, time.time()))
        return sum(read_added(reply).new for reply in replies)

    def lease(self, limit: int) -> list[Any]:
        leases: list[Lease] = []
        for shards, turn in self._turns:
            asked = 0
            while len(leases) < limit and asked < shards:
                some = list(islice(turn, -(-(limit - len(leases)) // A_SHARD)))
                replies = self._link.run([self._ops.lease(shard, _NEW) for shard in some])
                for shard, reply in zip(some, replies, strict=True):
                    leases += read_leases(reply, shard).leases
                asked += len(some)
        return leases

    def release(self, leases: Sequence[Any]) -> None:
        calls = [
            self._ops.release(shard, [ReleasedLease(lease, AT_ONCE) for lease in each])
            for shard, each in _by_shard(leases).items()
        ]
        self._run_held(calls)

    def finish(self, leases: Sequence[Any]) -> None:
        now = time.time()
        calls = [
            self._ops.finish(shard, [FinishedLease(lease, Done()) for lease in each], now)
            for shard, each in _by_shard(leases).items()
        ]
        self._run_held(calls)

    def claim(self, count: int) -> None:
        calls = [self._claim(number) for number in range(count)]
        for at in range(0, count, 100):
            self._link.run(calls[at : at + 100])

    def _claim(self, number: int) -> Call:
        digest, sent = secrets.token_bytes(20), secrets.token_bytes(20)  # SHA-1, both
        record = f"{self._session}-20260101000000-00001.warc.gz:{number * 9000}"
        claim = Claim(digest, links.url_of(links.Link(number, 0)), record, time.time(), sent)
        return self._ops.claim(digest, number, claim)

    def _run_held(self, calls: Sequence[Call]) -> None:
        for reply in self._link.run(calls):
            if not all(read_held(reply)):
                raise RuntimeError("a lease was lost that nobody let expire")


def _candidate(link: links.Link) -> Candidate:
    url, domain = links.url_of(link), links.domain_of(link)
    key = xxh3_64_intdigest(url.encode())
    return Candidate(url, key, HostKey(f"www.{domain}"), domain, depth=3, level=2)


def _by_shard(leases: Iterable[Lease]) -> dict[int, list[Lease]]:
    groups: dict[int, list[Lease]] = {}
    for lease in leases:
        groups.setdefault(shard_of_lease(lease), []).append(lease)
    return groups
