"""Look at a shared crawl in Redis, whose shards are owned by workers.

Rule: reading changes nothing and loads no scripts. A key that can be large is read in slices. What
an owner has not sent yet is not seen: mostly that of its last 20 ms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from heapq import nsmallest
from itertools import chain, islice
from math import inf
from pathlib import Path
from statistics import fmean
from struct import error as struct_error
from typing import Any, Final, NamedTuple, Self, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from crawler.config.arguments import read_kept, read_kept_settings
from crawler.config.settings import Config, PatternSettings
from crawler.data.data_dir import WORKER, folders_of_crawl, worker_folders
from crawler.data.local_stores import LocalPatternStats, RobotsRecords
from crawler.data.operator_files import Act, ActResult, read_audit
from crawler.frontier import records
from crawler.frontier.budgets import spilled_urls
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.port import DurableStore, FrontierLimits, ReadableStore
from crawler.frontier.reader import count_spilled
from crawler.frontier.records import (
    COUNTED,
    ONE_SHARD,
    DeadLetter,
    DomainRecord,
    FrontierTotals,
    HostRecord,
    QueueEnds,
    RoundState,
    decode_domain,
    decode_host,
    decode_letter,
    decode_open,
    decode_totals,
    decode_urls,
    encode,
)
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.run_files import Keys
from crawler.frontier.seen import stored_keys
from crawler.frontier.shards import Shards, shard_of
from crawler.frontier.staging import all_records
from crawler.model.counts import Counts
from crawler.model.types import Candidate, Claim, ConfigError, HostKey, Outcome
from crawler.model.url import authority_of, registered_domain
from crawler.policy.patterns import OTHER_PATTERNS, PatternStats
from crawler.shared import keys
from crawler.shared.address import Address, RedisAddress
from crawler.shared.client import BlockingNodes, Nodes
from crawler.shared.codec import WorkerRecord, buckets_of, read_filed
from crawler.shared.connection import Argument
from crawler.shared.crawl_format import read_format
from crawler.shared.faults import ForeignData
from crawler.shared.owned.inbox import unpack_links
from crawler.shared.owned.mirror import Mirror, unpack_chunk
from crawler.shared.owned.owner import OwnedShard
from crawler.shared.owned.readings import worker_of
from crawler.shared.owned.rounds import rounds_key
from crawler.shared.owned.scripts import (
    INBOX,
    SEEN_KEYS,
    ClaimedShard,
    Command,
    OwnedScripts,
    ShardCommands,
)
from crawler.shared.owned.takeover import ShardLoader
from crawler.view.budgets import DomainQuery, domain_figures
from crawler.view.hosts import HostQuery, TopHosts, figures_of, is_asked_for, usual_fetch_s
from crawler.view.local import (
    find_url,
    host_state,
    open_read_only,
    outcomes_of,
    pages_visited_again,
    remembered_of,
)
from crawler.view.port import (
    CrawlIdentity,
    DuplicateOwner,
    Grounds,
    HostState,
    KnownUrl,
    LastStart,
    LaterUrl,
    UnfinishedLease,
    UrlRecord,
    VisitTotals,
)

SLICE: Final = 1000
"""Entries of one reply: a millisecond of the server, mostly."""
_LISTS: Final = 50  # of 10 to 200 entries each, in one batch
_ROUND: Final = ("number", "first", "leased", "granted", "began")  # as of `rounds_key`
_Pairs = list[tuple[bytes, bytes]]


class OwnedCrawlReader:
    """A connection to one shared crawl. Raises a Fault if it is unreachable or foreign, ConfigError
    if there is no such crawl."""

    def __init__(self, address: Address, name: str, slice_entries: int = SLICE) -> None:
        self.name = name
        self.where = f"the crawl {name} in Redis at {address}"
        self.slice_entries = slice_entries
        key = keys.format_key(name)
        with BlockingNodes(Nodes(address, OwnedScripts(), name, 1)) as link:
            stored = link.command(key, "GET", key)
        if stored is None:
            raise ConfigError(
                f"Redis at {address} has no crawl {name}: none has begun there, or its"
                " CRAWLER_FRONTIER_NAME is another"
            )
        self.format = read_format(stored, key)
        self.shards = [ShardReader(self, shard) for shard in range(self.format.shards)]
        self.link = BlockingNodes(Nodes(address, OwnedScripts(), name, self.format.shards))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()

    def shard(self, domain: str) -> ShardReader:
        """Return the shard of a registered domain."""
        return self.shards[shard_of(domain, len(self.shards))]

    def hosts(self) -> Iterator[tuple[HostKey, HostRecord]]:
        """Yield each known host and its record."""
        for shard in self.shards:
            yield from shard.hosts()

    def waiting(self, host: HostKey) -> Iterator[Candidate]:
        """Yield the waiting URLs of *host*, the best level first, in the order of their turns."""
        yield from self.shard(registered_domain(host)).waiting(host)

    def ask(self, key: str, command: str, *args: Argument) -> Any:
        return self.link.command(key, command, key, *args)

    def ask_each(self, asks: Sequence[tuple[str, ...]]) -> list[Any]:
        """Send commands in one batch, each with its key as the second word, and return the
        replies."""
        return self.link.ask([(ask[1], ask) for ask in asks])

    def ask_shards(self, command: str, *args: str) -> list[Any]:
        """Send *command* on the root of each shard."""
        return self.ask_each([(command, shard.root, *args) for shard in self.shards])

    def slices(self, command: str, key: str, match: str = "*") -> Iterator[list[bytes]]:
        """Yield the replies of a scan of *key*, each a list of fields and values, or of members and
        scores."""
        cursor: bytes = b"0"
        while True:
            cursor, found = self.ask(
                key, command, cursor, "MATCH", match, "COUNT", self.slice_entries
            )
            yield found
            if cursor == b"0":
                return

    def pairs(self, key: str, match: str = "*") -> Iterator[_Pairs]:
        """Yield the fields and values of a hash. A field that is there all the time is yielded once
        or more."""
        for found in self.slices("HSCAN", key, match):
            yield list(zip(found[::2], found[1::2], strict=True))

    def now(self) -> float:
        """Return epoch seconds by the server that the workers take the time from."""
        time = self.link.command(keys.workers(self.name), "TIME")
        return int(time[0]) + int(time[1]) / 1e6

    @contextmanager
    def reading(self, key: str) -> Iterator[None]:
        """Raise ForeignData for values of *key*, or below it, that cannot be decoded in the
        block."""
        try:
            yield
        except (msgspec.MsgspecError, struct_error, ValueError, IndexError) as broken:
            raise ForeignData(
                f"{self.where}: under {key} is what this version does not write ({broken})"
            ) from broken


class _Chunk(NamedTuple):
    """A packed chunk of waiting URLs."""

    name: bytes
    packed: bytes
    most: int  # of its last URLs, at most so many wait; others are taken, or in a chunk before it


class _UnseenLoader(ShardLoader):
    """Leaves out which URLs were seen: a plan finds none."""

    def _load_seen_keys(self) -> Generator[Command, Any, None]:
        yield from ()


class ShardReader:
    """Implements local.SearchableRecords over the hashes of one shard."""

    def __init__(self, reader: OwnedCrawlReader, number: int) -> None:
        self.number = number
        self.root = keys.root(reader.name, number)
        self._reader = reader

    def key(self, kind: bytes | str) -> str:
        """Return the key of a *kind* of records."""
        return f"{self.root}:{kind if isinstance(kind, str) else kind.decode()}"

    def read_totals(self, packed: bytes | None) -> FrontierTotals:
        with self._reader.reading(self.root):
            return decode_totals(packed) if packed else FrontierTotals()

    def host(self, host: HostKey) -> HostRecord | None:
        packed = self._reader.ask(self.key(records.HOST), "HGET", host)
        return None if packed is None else decode_host(packed)

    def pairs(self, prefix: bytes, match: str = "*") -> Iterator[_Pairs]:
        """Yield the names of records, and the records, packed."""
        return self._reader.pairs(self.key(prefix), match)

    def named_records(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return chain.from_iterable(self.pairs(prefix))

    def undecided(self) -> Iterator[Candidate]:
        """Yield the URLs of which it is not decided yet whether they are new: first those that no
        owner has read."""
        for _, entry in self.named_records(INBOX.encode()):
            yield from unpack_links(entry)
        for prefix in (records.ARRIVED, records.UNDECIDED):
            for _, packed in self.named_records(prefix):
                yield from decode_urls(packed)

    def waiting(self, host: HostKey) -> Iterator[Candidate]:
        record = self.host(host)
        if record is not None:
            for chunk in self._chunks([(host, record)]):
                yield from decode_urls(unpack_chunk(chunk.name, chunk.packed)[1])[-chunk.most :]

    def domain(self, domain: str) -> DomainRecord:
        """Return what is known of a registered *domain*."""
        packed = self._reader.ask(self.key(records.DOMAIN), "HGET", domain)
        return decode_domain(packed) if packed else DomainRecord()

    def domains(self, match: str = "*") -> Iterator[tuple[str, DomainRecord]]:
        """Yield each known registered domain once, with its record."""
        known: set[bytes] = set()  # a scan may return one twice
        for name, packed in chain.from_iterable(self.pairs(records.DOMAIN, match)):
            if name not in known:
                known.add(name)
                yield name.decode(), decode_domain(packed)

    def spilled(self, domain: str) -> list[Candidate]:
        """Return as SearchableRecords. A chunk is named by the number of its last URL, so that all
        numbers are asked for."""
        record = self.domain(domain)
        prefix = records.name_of_record(records.spilled_prefix(ONE_SHARD, domain))
        names = (records.numbered(prefix, each) for each in range(record.head, record.tail))
        chunks: list[tuple[bytes, bytes]] = []
        for some in parts(names, self._reader.slice_entries):
            found = self._reader.ask(self.key(records.SPILLED), "HMGET", *some)
            pairs = zip(some, found, strict=True)
            chunks += [(name, packed) for name, packed in pairs if packed is not None]
        return spilled_urls(chunks, record)

    def count_again(self) -> dict[str, int]:
        """Return what the counters should be, by their names in FrontierTotals."""
        with self._reader.reading(self.root):
            counted = {
                "waiting": sum(
                    min(unpack_chunk(chunk.name, chunk.packed)[0], chunk.most)
                    for chunk in self._chunks(self.hosts())
                ),
                "seen": sum(map(len, self.seen_keys())),
                **count_spilled(record for _, record in self.domains()),
            }
        lengths = [("HLEN", self.key(prefix)) for prefix in COUNTED.values()]
        return counted | dict(zip(COUNTED, self._reader.ask_each(lengths), strict=True))

    def copy(self, store: DurableStore) -> None:
        """Copy the records of a frontier into *store*, as the next owner loads them, but for the
        keys of seen URLs."""
        commands = ShardCommands(OwnedScripts(), self._reader.name, self.number, "", 0.0)
        totals = self._reader.ask(self.root, "HGET", "totals") or b""
        claimed = ClaimedShard(0, totals, False, False, inf, b"")
        shard = OwnedShard(commands, claimed, 0.0, Mirror(0, lambda: None), lambda: iter(()))
        steps = _UnseenLoader(shard, claimed, store, FrontierLimits(), 0.0, {}).steps()
        reply = None
        with suppress(StopIteration):
            while True:
                reply = self._reader.link.command(self.root, *steps.send(reply))

    def hosts(self) -> Iterator[tuple[HostKey, HostRecord]]:
        """Yield each host once, with its record."""
        known: set[bytes] = set()  # a scan may return a host twice
        for found in self.pairs(records.HOST):
            for name, packed in found:
                if name not in known:
                    known.add(name)
                    yield HostKey(name.decode()), decode_host(packed)

    def _chunks(self, hosts: Iterable[tuple[HostKey, HostRecord]]) -> Iterator[_Chunk]:
        """Yield the chunks of the queues of *hosts*, in the order of their turns. A hash has no
        order, but a chunk is named by the number of its last URL: so all numbers are asked for."""
        names = (
            (name, ends.head)
            for host, record in hosts
            for level, ends in enumerate(record.queue_ends)
            for name in _chunk_names(host, level, ends)
        )
        queue, first = b"", 0
        for some in parts(names, self._reader.slice_entries):
            asked = [name for name, _ in some]
            found = self._reader.ask(self.key(records.QUEUED), "HMGET", *asked)
            for (name, head), packed in zip(some, found, strict=True):
                if packed is not None:
                    first = first if name[:-8] == queue else head
                    queue, last = name[:-8], records.number_of(name)
                    yield _Chunk(name, packed, last + 1 - first)
                    first = last + 1

    def seen_keys(self) -> Iterator[Keys]:
        """Yield the keys of all URLs that were ever admitted."""
        key, size = self.key(SEEN_KEYS), self._reader.slice_entries
        begin = 0
        while elements := self._reader.ask(key, "LRANGE", begin, begin + size - 1):
            yield stored_keys(b"".join(elements))
            begin += len(elements)

    def claims(self, host: HostKey) -> Iterator[Claim]:
        """Yield the claims on contents by pages of *host*, and perhaps by others. Claims are filed
        by digest, so that all are read."""
        total = int(self._reader.ask(self.root, "HGET", "claims") or 0)
        name, part = self._reader.name, host.encode()
        buckets = [keys.claims(name, self.number, n) for n in range(buckets_of(total))]
        files: dict[bytes, bytes] = {}
        for some in parts(buckets, _LISTS):
            found = self._reader.link.ask([(key, ("LRANGE", key, 0, -1)) for key in some])
            for filed in chain.from_iterable(found):
                if part in filed:
                    files = files or self._files()
                    yield read_filed(filed, files)

    def _files(self) -> dict[bytes, bytes]:
        """Return the names of archive files by their numbers, and their numbers by their names."""
        key = keys.key_files(self._reader.name, self.number)
        return dict(pair for found in self._reader.pairs(key) for pair in found)


def _chunk_names(host: HostKey, level: int, ends: QueueEnds) -> Iterator[bytes]:
    """Return the names that chunks of this queue may have."""
    queue = records.name_of_record(records.url_queue(ONE_SHARD, host, level))
    return (records.numbered(queue, number) for number in range(ends.head, ends.tail))


class ShardClaim(NamedTuple):
    """The claim of a shard."""

    worker: str  # that claimed it last; empty: it was released, or never claimed
    is_valid: bool  # the lease of the claim is not over


class OwnedView:
    """Implements view.port.CrawlView. All times are the server's. Of logs, archives, robots.txt and
    links on workers' disks is known what is in data directories on this machine."""

    def __init__(self, reader: OwnedCrawlReader, path: Path) -> None:
        """*path*: the data directory of the crawl, or of one of its workers, if there is one."""
        known = reader.format
        self.crawl = CrawlIdentity(reader.where, True, known.key_seed, known.identity)
        self.now = reader.now
        self._reader = reader
        self._folders = worker_folders(path) or folders_of_crawl(path)

    def last_start(self) -> LastStart:
        arguments, settings = keys.arguments(self._reader.name), keys.settings(self._reader.name)
        kept_arguments, kept_settings = self._reader.ask_each(
            [("GET", arguments), ("GET", settings)]
        )
        return LastStart(
            None if kept_arguments is None else read_kept(kept_arguments, arguments),
            read_kept_settings(kept_settings, settings),
        )

    def records(self, folder: Path) -> tuple[ReadableStore, Shards | None]:
        before = self._last_batches()
        if any(claim.is_valid for claim in self._shard_claims()):
            raise ConfigError(
                f"workers are in {self._reader.where}: a plan of it needs records that stand still,"
                " and is made when they have stopped"
            )
        store = RocksStore(folder)
        for shard in self._reader.shards:
            shard.copy(store)
        if self._last_batches() != before:
            raise ConfigError(f"{self._reader.where} has changed while it was read: try again")
        kept = self._reader.ask(rounds_key(self._reader.name), "HMGET", *_ROUND)
        number, first, leased, granted, began = (int(each or 0) for each in kept)
        # What a killed worker had reserved is missing in the round.
        totals = FrontierTotals(round=RoundState(number, first, max(leased, granted), began / 1000))
        store.write({records.TOTALS: encode(totals)})
        store.close()
        return open_read_only(folder), Shards(len(self._reader.shards))

    def _last_batches(self) -> list[Any]:
        """Return the number of the last batch of each shard."""
        return self._reader.ask_shards("HGET", "seq")

    def opened_hosts(self) -> set[str]:
        key = keys.opened_hosts(self._reader.name)
        with self._reader.reading(key):
            found = self._reader.slices("ZSCAN", key)
            return {place.decode() for some in found for place in some[::2]}

    def counts(self) -> Counts:
        """Return the counters, with the links on workers' disks among those undecided. Which hosts
        are active only their workers know: at least those of the leases."""
        replies = self._reader.ask_shards("HGET", "totals")
        totals = map(ShardReader.read_totals, self._reader.shards, replies)
        counts = sum((each.counts(each.leased, 0) for each in totals), Counts())
        on_disks = sum(worker.outbox for worker in worker_records(self._reader))
        return counts + Counts(undecided=self._count_undecided() + on_disks)

    def _count_undecided(self) -> int:
        kinds = (records.ARRIVED, records.UNDECIDED, INBOX)
        lengths = self._reader.ask_each(
            [("HLEN", shard.key(kind)) for shard in self._reader.shards for kind in kinds]
        )
        found = 0
        for at, shard in enumerate(self._reader.shards):
            if any(lengths[at * len(kinds) : (at + 1) * len(kinds)]):
                with self._reader.reading(shard.root):
                    found += sum(1 for _ in shard.undecided())
        return found

    def workers(self) -> list[WorkerRecord]:
        """Return as `CrawlView.workers`, with the shards that each owns by now."""
        valid = [claim.worker for claim in self._shard_claims() if claim.is_valid]
        return [
            replace(worker, shards=valid.count(worker.name))
            for worker in worker_records(self._reader)
        ]

    def unowned_shards(self) -> int:
        return sum(1 for claim in self._shard_claims() if not claim.is_valid)

    def _shard_claims(self) -> list[ShardClaim]:
        """Return the claim of each shard."""
        now = self.now()
        claims = []
        replies = self._reader.ask_shards("HMGET", "owner", "until")
        for shard, (token, until) in zip(self._reader.shards, replies, strict=True):
            with self._reader.reading(shard.root):
                is_valid = bool(token) and int(until or 0) / 1000 > now
            claims.append(ShardClaim(worker_of(token or b"") or "", is_valid))
        return claims

    def hosts(self, query: HostQuery) -> list[HostState]:
        """Return the hosts of *query*. No key orders them, so that all are read, unless one is
        named (docs/decisions/0043)."""
        names = [query.host] if query.host is not None else self._names(query)
        return [
            host_state(host, record)
            for some in parts(names, SLICE)
            for host, record in self._host_records(some)
        ]

    def _names(self, query: HostQuery) -> list[HostKey]:
        first = TopHosts(query.top, query.offset)
        match = f"*{escaped(query.match)}*" if query.match else "*"
        for shard in self._reader.shards:
            with self._reader.reading(shard.key(records.HOST)):
                for some in shard.pairs(records.HOST, match):
                    found = some
                    if query.is_filtered:
                        found = [each for each in some if is_asked_for(query, each[1])]
                    if found:
                        names, packed = zip(*found, strict=True)
                        first.add(names, figures_of(packed, query.sort))
        return first.names()

    def _host_records(self, hosts: Sequence[HostKey]) -> Iterator[tuple[HostKey, HostRecord]]:
        """Yield the records of those of *hosts* that are known."""
        places = [self._reader.shard(registered_domain(host)).key(records.HOST) for host in hosts]
        replies = self._reader.ask_each(
            [("HGET", key, host) for key, host in zip(places, hosts, strict=True)]
        )
        for host, key, packed in zip(hosts, places, replies, strict=True):
            if packed is not None:
                with self._reader.reading(key):
                    record = decode_host(packed)
                yield host, record

    def leases(self) -> list[UnfinishedLease]:
        found: list[UnfinishedLease] = []
        for shard, claim in zip(self._reader.shards, self._shard_claims(), strict=True):
            with self._reader.reading(shard.key(records.OPEN)):
                # By name: a scan may return one twice.
                opened = dict(shard.named_records(records.OPEN)).values()
                leases = list(map(decode_open, opened))
            hosts = sorted({each.candidate.host for each in leases})
            usual_s = {
                host: usual_fetch_s(record.pace)
                for some in parts(hosts, SLICE)
                for host, record in self._host_records(some)
            }
            found += [
                UnfinishedLease(
                    each.candidate,
                    each.taken_at,
                    usual_s.get(each.candidate.host, 0.0),
                    claim.is_valid,
                    claim.worker,
                )
                for each in leases
            ]
        return found

    def domains(self, query: DomainQuery) -> list[tuple[str, DomainRecord]]:
        match = f"*{escaped(query.match)}*" if query.match else "*"
        first = TopHosts(query.top, query.offset)
        for shard in self._reader.shards:
            with self._reader.reading(shard.key(records.DOMAIN)):
                for some in parts(shard.domains(match), SLICE):
                    found = domain_figures([record for _, record in some], query.sort)
                    first.add([name.encode() for name, _ in some], found)
        return [(name, self._domain(name)) for name in first.names()]

    def _domain(self, domain: str) -> DomainRecord:
        shard = self._reader.shard(domain)
        with self._reader.reading(shard.key(records.DOMAIN)):
            return shard.domain(domain)

    def degrees(self) -> list[int]:
        totals = FrontierTotals()
        replies = self._reader.ask_shards("HGET", "totals")
        for each in map(ShardReader.read_totals, self._reader.shards, replies):
            totals.add(each)
        return totals.degrees

    def dead(self, limit: int) -> list[DeadLetter]:
        """Read all letters, as those of a shard are in no order, and return the *limit* oldest."""
        found: dict[tuple[int, bytes], DeadLetter] = {}  # by name: a scan may return some twice
        for shard in self._reader.shards:
            with self._reader.reading(shard.key(records.DEAD)):
                for pairs in shard.pairs(records.DEAD):
                    found |= {(shard.number, name): decode_letter(each) for name, each in pairs}
                    found = dict(nsmallest(limit, found.items(), key=lambda pair: pair[1].at))
        return list(found.values())

    def rules(self) -> str:
        text = self._reader.ask(keys.rules(self._reader.name), "HGET", "text")
        return bytes(text or b"").decode(errors="replace")

    def audit(self) -> list[Act | ActResult]:
        key = keys.audit(self._reader.name)
        return list(read_audit(self._reader.ask(key, "LRANGE", 0, -1)))

    def seen(self, urls: Sequence[KnownUrl]) -> list[bool]:
        """Return of each URL whether it was ever admitted. The keys of a shard are in no order, so
        that all are read: 8 bytes for each URL that it has seen."""
        wanted: defaultdict[ShardReader, set[int]] = defaultdict(set)
        for url in urls:
            wanted[self._reader.shard(url.domain)].add(url.key)
        found: set[int] = set()
        for shard, missing in wanted.items():
            with self._reader.reading(shard.key(SEEN_KEYS)):
                for seen in shard.seen_keys():
                    are_there = np.isin(seen, np.array(list(missing), np.uint64))
                    found.update(seen[are_there].tolist())
                    missing.difference_update(found)
                    if not missing:
                        break
        return [url.key in found for url in urls]

    def url(self, url: KnownUrl, is_same_url: Callable[[str], bool]) -> UrlRecord:
        shard = self._reader.shard(url.domain)
        token = self._reader.ask(shard.root, "HGET", "owner")
        with self._reader.reading(shard.root):
            place, is_undecided = find_url(shard, url, worker_of(token or b"") or "")
        outcomes = self._outcomes(url, is_same_url)
        is_elsewhere = not outcomes and self.seen([url])[0]
        owner = self._owner(url, is_same_url) if is_elsewhere else None
        return UrlRecord(place, outcomes, owner, is_undecided)

    def _outcomes(self, url: KnownUrl, is_same_url: Callable[[str], bool]) -> list[Outcome]:
        logs = (outcomes_of(folder, url.host, is_same_url) for folder in self._folders)
        return sorted(chain.from_iterable(logs), key=lambda outcome: outcome.at)

    def _owner(self, url: KnownUrl, is_same_url: Callable[[str], bool]) -> DuplicateOwner | None:
        """Return the claim of *url* on its content, which may be in any shard."""
        for shard in self._reader.shards:
            with self._reader.reading(shard.root):
                for claim in shard.claims(url.host):
                    if is_same_url(claim.url):
                        return DuplicateOwner(claim.at, claim.record)
        return None

    def visit_totals(self, url: KnownUrl | None) -> VisitTotals:
        """Return as CrawlView.visit_totals: each owner has a threshold of its own, which is the
        budget's for all of them."""
        replies = self._reader.ask_shards("HGET", "totals")
        totals = list(map(ShardReader.read_totals, self._reader.shards, replies))
        by_worth = sum(each.by_worth for each in totals)
        own = totals if url is None else [totals[self._reader.shard(url.domain).number]]
        known = [each for each in own if each.worth] or [each for each in totals if each.worth]
        weights = [each.by_worth + 1e-9 for each in known]
        worth = fmean([each.worth for each in known], weights) if known else 0.0
        return VisitTotals(by_worth, worth)

    def visited_again(self, host: HostKey | None) -> Iterator[LaterUrl]:
        shards = self._reader.shards
        if host is not None:
            shards = [self._reader.shard(registered_domain(host))]
        for shard in shards:
            with self._reader.reading(shard.key(records.LATER)):
                yield from pages_visited_again(shard.named_records(records.LATER), host)

    def grounds(self, url: KnownUrl) -> Grounds:
        domain = self._domain(url.domain)
        return Grounds(self._remembered(url), self._opened_hosts(url), domain)

    def pattern_stats(self, url: KnownUrl, pattern: str) -> tuple[str, PatternStats]:
        known = [
            records.in_shard(records.PATTERN, ONE_SHARD, url.host),
            *(
                records.pattern_of_host(ONE_SHARD, url.host, each)
                for each in (pattern, OTHER_PATTERNS)
            ),
        ]
        key = self._reader.shard(url.domain).key(records.PATTERN)
        found = self._reader.ask(key, "HMGET", *map(records.name_of_record, known))
        copy = MemoryStore()
        copy.write(dict(zip(known, found, strict=True)))
        return LocalPatternStats(copy, PatternSettings()).pattern_and_stats(url.host, pattern)

    def _opened_hosts(self, url: KnownUrl) -> set[str]:
        """Return the pushed hosts of its domain, as a scope may depend on them."""
        key = keys.opened_hosts(self._reader.name)
        same_domain: set[str] = set()
        with self._reader.reading(key):
            for found in self._reader.slices("ZSCAN", key):
                for place in map(bytes.decode, found[::2]):
                    if registered_domain(place.partition("/")[0]) == url.domain:
                        same_domain.add(place)
        return same_domain

    def _remembered(self, url: KnownUrl) -> MemoryStore:
        """Return what the workers have stored whose data directories are on this machine: of a
        robots.txt that several have, the latest."""
        remembered, authority = MemoryStore(), authority_of(url.url)
        robots = RobotsRecords(remembered)
        for folder in self._folders:
            if not (folder / WORKER).is_dir():
                continue
            with closing(open_read_only(folder / WORKER)) as store:
                copy = remembered_of(store, url)
            remembered.write(dict(all_records(copy, records.LOOPBACK)))
            found, known = RobotsRecords(copy).get(authority), robots.get(authority)
            if found is not None and (known is None or known.fetched_at < found.fetched_at):
                robots.put(found)
        return remembered


decode_worker = msgspec.json.Decoder(WorkerRecord).decode


def worker_records(reader: OwnedCrawlReader) -> list[WorkerRecord]:
    """Return the last record of each worker, sorted by name."""
    key = keys.workers(reader.name)
    with reader.reading(key):
        found = {
            name: decode_worker(packed) for pairs in reader.pairs(key) for name, packed in pairs
        }
    return [found[name] for name in sorted(found)]


def open_owned_reader(address: RedisAddress, config: Config) -> OwnedCrawlReader:
    """Return a connection to the shared crawl at *address*."""
    where = Address.parse(address.url, address.params)
    return OwnedCrawlReader(where, config.shared.frontier_name)


def escaped(text: str) -> str:
    """Escape the characters that MATCH of Redis treats as a pattern."""
    return "".join(f"\\{char}" if char in "*?[]\\^" else char for char in text)


Each = TypeVar("Each")


def parts(entries: Iterable[Each], size: int) -> Iterator[list[Each]]:
    """Yield *entries* in lists of up to *size*."""
    rest = iter(entries)
    while part := list(islice(rest, size)):
        yield part
