"""The take-over of a shard: all that Redis has of it, into the local store of the new owner.

Rule: step by step, each of some milliseconds, so that the event loop is never held. What is loaded
is as after a crash: the frontier that takes it in puts the leases back and files the hosts.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from crawler.frontier import records as keys
from crawler.frontier.port import DurableStore, FrontierLimits
from crawler.frontier.reader import count_spilled
from crawler.frontier.records import (
    COUNTED,
    FrontierTotals,
    HostPlace,
    HostRecord,
    decode_host,
    decode_open,
    decode_totals,
    encode,
)
from crawler.frontier.run_files import Keys
from crawler.frontier.seen import stored_keys
from crawler.frontier.staging import all_records
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import HostKey
from crawler.shared.client import Nodes
from crawler.shared.faults import FAULTS, ForeignData
from crawler.shared.owned.mirror import AS_THEY_ARE, Changes, unpack_chunk
from crawler.shared.owned.owner import OwnedShard
from crawler.shared.owned.scripts import ACTS, SEEN_KEYS, ClaimedShard, Command

_FIELDS: Final = 1_000  # of a hash, read at once at most
_FIRST_FIELDS: Final = 100
_PAGE_URLS: Final = 2_000  # unpacked in one step: 5 ms
_ELEMENTS: Final = 1_000  # of the list of seen keys: 1 MB at most
_LOADED: Final = 1 << 47  # in the numbers of records of loaded keys: no frontier counts so far


class NotedRest(NamedTuple):
    """The rest of a host that asked for one, as a dead process of this worker had noted it."""

    until: float  # epoch seconds
    asked_s: float


def noted_rests(store: DurableStore, now: float) -> dict[HostKey, NotedRest]:
    """Return the rests after a Retry-After, which end after *now*, in the local store of a dead
    process: Redis may have been out of reach when they were noted."""
    found = {}
    for key, packed in all_records(store, keys.HOST):
        record = decode_host(packed)
        if record.trouble_at and record.rest_until > now:
            host = HostKey(keys.name_in_shard(key))
            found[host] = NotedRest(record.rest_until, record.retry_after_s)
    for _, packed in all_records(store, keys.OPEN):
        lost = decode_open(packed)
        if lost.pace is not None and lost.rest_until > now:
            noted, host = NotedRest(lost.rest_until, lost.asked_s), lost.candidate.host
            found[host] = max(noted, found.get(host, noted), key=lambda rest: rest.until)
    return found


class ShardLoader:
    """Loads one shard."""

    def __init__(
        self,
        shard: OwnedShard,
        claimed: ClaimedShard,
        store: DurableStore,
        limits: FrontierLimits,
        now: float,
        rests: Mapping[HostKey, NotedRest],
    ) -> None:
        """*store*: the local one, without its mirrors, which has nothing of the shard. *now*: epoch
        seconds. *rests*: of hosts, which Redis may lack."""
        self._shard = shard
        self._claimed = claimed
        self._store = store
        self._limits = limits
        self._now = now
        self._rests = rests
        self.key = shard.commands.shard.to_bytes(keys.SHARD_BYTES)  # as in names of records
        self.seen: list[Keys] = []
        """The keys of its seen URLs, when the steps are over."""

    def steps(self) -> Generator[Command, Any, None]:
        """Yield the commands to be sent, whose replies are sent in. Raises ForeignData if a part of
        the shard is lost, or cannot be read."""
        if self._claimed.is_filling:
            raise ForeignData(
                "the server came back without its data, and the worker that had them ended before"
                " all were there again. Put the server's data back, or begin another crawl"
            )
        if self._claimed.totals:
            try:
                yield from self._load()
            except (msgspec.MsgspecError, ValueError, struct.error) as error:
                raise ForeignData(
                    f"a record of the crawl in Redis cannot be read: {error}"
                ) from error
        # A host that is new in the lost second is unknown, and its first fetch may be under way.
        quiet_s = self._limits.longest_fetch_s + self._limits.min_gap_s
        self._shard.note_loaded(quiet_s if self._claimed.is_lossy else 0.0, self.seen)

    def _load(self) -> Iterator[Command]:
        yield from self._read_hash(keys.HOST, self._load_hosts)
        yield from self._read_hash(keys.QUEUED, self._load_chunks)
        for prefix in AS_THEY_ARE:
            if prefix == keys.OPEN:
                yield from self._read_hash(prefix, self._load_leases)
            elif prefix != keys.HOST:
                yield from self._read_hash(prefix, self._load_fields)
        yield from self._load_seen_keys()
        if (acts := (yield self._shard.commands.get_acts())) is not None:
            self._shard.mirror.root_fields[ACTS] = acts
        yield from self._load_totals(decode_totals(self._claimed.totals))

    def _load_totals(self, totals: FrontierTotals) -> Generator[Command, Any, None]:
        """Load the counters, but those whose records can be counted. What waits, or is spilled, is
        counted when it is filed."""
        counted = {"waiting": 0, "seen": sum(map(len, self.seen))} | count_spilled([])
        for name, prefix in COUNTED.items():
            counted[name] = yield ("HLEN", self._shard.commands.key(prefix.decode()))
        self._store.write({keys.TOTALS + self.key: encode(replace(totals, **counted))})

    def _record(self, prefix: bytes, name: bytes) -> bytes:
        return keys.record_of_shard(prefix, self.key, name)

    def _read_hash(
        self, prefix: bytes, load: Callable[[bytes, list[tuple[bytes, bytes]]], int]
    ) -> Generator[Command, Any, None]:
        """Read a hash page by page. *load* returns how many URLs a page had."""
        key, cursor, count = self._shard.commands.key(prefix.decode()), b"0", _FIRST_FIELDS
        while True:
            cursor, flat = yield ("HSCAN", key, cursor, "COUNT", count)
            urls = load(prefix, list(zip(flat[::2], flat[1::2], strict=True)))
            count = max(10, min(_FIELDS, count * _PAGE_URLS // max(urls, 1)))
            if cursor == b"0":
                return

    def _load_fields(self, prefix: bytes, fields: list[tuple[bytes, bytes]]) -> int:
        self._store.write({self._record(prefix, name): value for name, value in fields})
        return 0

    def _load_hosts(self, prefix: bytes, fields: list[tuple[bytes, bytes]]) -> int:
        """Load hosts, to be filed again. If a lease may be lost, its fetch may be under way, at any
        host."""
        changes: Changes = {}
        rested: Changes = {}
        for name, packed in fields:
            record = decode_host(packed)
            record.place = HostPlace.EMPTY
            if record.waits_for_address:  # its own rest was over, and its place is forgotten
                record.rest_until = 0.0
            before = record.rest_until
            if self._claimed.is_lossy:
                rest_until = self._now + self._longest_s(record)
                record.rest_until = max(record.rest_until, rest_until)
            if noted := self._rests.get(HostKey(name.decode())) if self._rests else None:
                record.rest_until = max(record.rest_until, noted.until)
                record.note_trouble(noted.asked_s, self._now)
            key = self._record(prefix, name)
            changes[key] = encode(record)
            if record.rest_until > before:
                rested[key] = changes[key]
        self._store.write(changes)
        if rested:
            self._shard.mirror.note(rested)
        return 0

    def _load_leases(self, prefix: bytes, fields: list[tuple[bytes, bytes]]) -> int:
        """Load open leases. Unless the process that held them is certainly dead, it may still run,
        and its last request may have been sent until the end of its lease of the shard. So the host
        rests as if that fetch had been the longest possible one."""
        ended_at = self._now - self._claimed.ended_s
        changes: Changes = {}
        for name, packed in fields:
            lost = decode_open(packed)
            host = self._store.get(keys.in_shard(keys.HOST, self.key, lost.candidate.host))
            record = decode_host(host) if host else HostRecord([])
            if lost.pace is not None:
                record.pace = lost.pace
                record.note_trouble(lost.asked_s, self._now)
            rest_until = lost.rest_until
            if not self._claimed.is_owner_dead:
                rest_until = max(rest_until, ended_at + self._longest_s(record))
            candidate = replace(lost.candidate, may_be_archived=True)
            put_back = replace(lost, candidate=candidate, rest_until=rest_until)
            changes[self._record(prefix, name)] = encode(put_back)
        self._store.write(changes)
        return 0

    def _longest_s(self, record: HostRecord) -> float:
        """Return for how long after its begin a fetch may concern its host: the longest one, and
        the longest rest after it."""
        limits, pace = self._limits, record.pace
        gap_s = max(pace.gap_s, pace.crawl_delay_s, limits.min_gap_s)
        own_s = limits.rest_after_s(limits.longest_fetch_s, gap_s)
        asked_s = record.remembered_s(self._now, limits.max_retry_after_s)
        return limits.longest_fetch_s + min(max(own_s, asked_s), limits.max_rest_s)

    def _load_chunks(self, prefix: bytes, fields: list[tuple[bytes, bytes]]) -> int:
        changes: Changes = {}
        urls = 0
        for name, packed in fields:
            some, changes[self._record(prefix, name)] = unpack_chunk(name, packed)
            urls += some
        self._store.write(changes)
        return urls

    def _load_seen_keys(self) -> Generator[Command, Any, None]:
        key, at = self._shard.commands.key(SEEN_KEYS), 0
        while elements := (yield ("LRANGE", key, at, at + _ELEMENTS - 1)):
            name = keys.numbered(b"", _LOADED | at)[keys.SHARD_BYTES :]
            packed = b"".join(elements)
            self._store.write({self._record(keys.ADMITTED_KEYS, name): packed})
            self.seen.append(stored_keys(packed))
            at += len(elements)


async def load(
    nodes: Nodes, shard: OwnedShard, loader: ShardLoader, now_s: Callable[[], float]
) -> None:
    """Load *shard*, and renew its lease meanwhile. Raises a Fault, or ForeignData."""
    steps, reply, number = loader.steps(), None, shard.commands.shard
    while True:
        try:
            command = steps.send(reply)
        except StopIteration:
            return
        renewals = shard.next_commands(now_s(), 0) if now_s() >= shard.renewed_at_s else []
        asked = [each.command for each in renewals]
        sent_at_s = now_s()
        reply, *others = await nodes.commands([(number, each) for each in (command, *asked)])
        if renewals:
            shard.on_replies(others, sent_at_s, now_s())
        if isinstance(reply, FAULTS):
            raise reply


async def take_in(frontier: TwoTierFrontier, loader: ShardLoader, now: Callable[[], float]) -> None:
    """Let *frontier* lease the URLs of a shard that was loaded, and may be leased."""
    merged = asyncio.get_running_loop().create_future()
    frontier.import_seen(loader.seen, partial(merged.set_result, None))
    await merged
    for _ in frontier.take_in(loader.key, now()):
        await asyncio.sleep(0)
