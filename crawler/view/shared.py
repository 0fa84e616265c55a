"""Look at a shared crawl in Redis.

Rule: reading changes nothing and loads no scripts. A key that can be large is read in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from heapq import nsmallest
from itertools import chain, compress, islice
from pathlib import Path
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, Self, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from crawler.config.settings import Config, read_kept, read_kept_settings
from crawler.data.data_dir import WORKER
from crawler.data.local_stores import RobotsRecords
from crawler.data.operator_files import Act, ActResult, read_audit
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.records import DeadLetter, RefusedRecord, decode_letter
from crawler.model.counts import Counts
from crawler.model.types import (
    Claim,
    ConfigError,
    HostKey,
)
from crawler.model.url import authority_of, registered_domain
from crawler.policy.patterns import (
    NO_STATS,
    OTHER_PATTERNS,
    PatternStats,
)
from crawler.policy.robots_cache import RobotsState, unknown_record
from crawler.shared import keys
from crawler.shared.address import Address, RedisAddress
from crawler.shared.client import BlockingNodes, Nodes
from crawler.shared.codec import (
    ShardTotals,
    WorkerRecord,
    buckets_of,
    counts_of,
    read_filed,
    read_robots,
)
from crawler.shared.connection import Argument
from crawler.shared.crawl_format import read_format
from crawler.shared.faults import ForeignData
from crawler.shared.keys import Scripts
from crawler.shared.shard import (
    ShardHost,
    ShardLease,
    read_host,
    read_later,
    read_lease,
    read_refused,
    read_waiting,
    shard_of,
)
from crawler.shared.worker.join import open_args
from crawler.shared.worker.patterns import MAX_PATTERNS, field_of
from crawler.view.hosts import HostQuery, HostSort, SortFigures, TopHosts
from crawler.view.local import open_read_only, outcomes_of, remembered_of
from crawler.view.port import (
    CrawlIdentity,
    DuplicateOwner,
    Grounds,
    HostState,
    KnownUrl,
    LastStart,
    LaterUrl,
    LeasedUrl,
    Place,
    UrlRecord,
    WaitingUrl,
)

SLICE: Final = 1000
"""Entries of one reply: a millisecond of the server at most."""
KEYS_PER_BATCH: Final = 500
"""Keys of one batch of commands."""
_LISTS: Final = 50  # of 10 to 200 entries each


class RedisCrawlReader:
    """A connection to one shared crawl. Raises a Fault if it is unreachable or foreign, ConfigError
    if there is no such crawl."""

    def __init__(self, address: Address, name: str, open_args: tuple[Argument, ...]) -> None:
        """*open_args*: as of Nodes, for the operations that write."""
        self.name = name
        self.where = f"the crawl {name} in Redis at {address}"
        key = keys.format_key(name)
        with BlockingNodes(Nodes(address, Scripts(), name, 1, open_args)) as link:
            stored = link.command(key, "GET", key)
        if stored is None:
            raise ConfigError(
                f"Redis at {address} has no crawl {name}: none has begun there, or its"
                " CRAWLER_FRONTIER_NAME is another"
            )
        self.format = read_format(stored, key)
        self.shards = range(self.format.shards)
        self.link = BlockingNodes(Nodes(address, Scripts(), name, self.format.shards, open_args))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()

    def ask(self, key: str, command: str, *args: Argument) -> Any:
        return self.link.command(key, command, key, *args)

    def ask_each(self, asks: Sequence[tuple[str, str]]) -> list[Any]:
        """Send pairs of command and key in one batch, and return the replies."""
        return self.link.ask([(key, (command, key)) for command, key in asks])

    def pairs(self, key: str) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield the fields and values of a hash. A field that is there all the time is yielded once
        or more."""
        for found in self.slices("HSCAN", key):
            yield list(zip(found[::2], found[1::2], strict=True))

    def scored(self, key: str, match: str = "*") -> Iterator[list[tuple[bytes, float]]]:
        """Yield the members and scores of a zset, in no order; else as `pairs`."""
        for found in self.slices("ZSCAN", key, match):
            yield list(zip(found[::2], map(float, found[1::2]), strict=True))

    def lists(self, names: Sequence[str]) -> Iterator[bytes]:
        """Yield the entries of many short lists."""
        for begin in range(0, len(names), _LISTS):
            part = names[begin : begin + _LISTS]
            for found in self.link.ask([(key, ("LRANGE", key, 0, -1)) for key in part]):
                yield from found

    def now(self) -> float:
        """Return epoch seconds by the server that the workers take the time from."""
        time = self.link.command(keys.workers(self.name), "TIME")
        return int(time[0]) + int(time[1]) / 1e6

    @contextmanager
    def reading(self, key: str) -> Iterator[None]:
        """Raise ForeignData for values of *key* that cannot be decoded in the block."""
        try:
            yield
        except (msgspec.MsgspecError, struct_error, ValueError) as broken:
            raise ForeignData(
                f"{self.where}: under {key} is what this version does not write ({broken})"
            ) from broken

    def slices(self, command: str, key: str, match: str = "*") -> Iterator[list[bytes]]:
        """Yield the replies of a scan of *key*, each a list of fields and values, or of members and
        scores."""
        cursor: bytes = b"0"
        while True:
            cursor, found = self.ask(key, command, cursor, "MATCH", match, "COUNT", SLICE)
            yield found
            if cursor == b"0":
                return


# The hosts. No key orders them, so that all are read for a query (docs/decisions/0043).

_COLUMNS: Final = np.dtype(
    [
        ("before", "V8"),
        ("rest_until", "<f8"),
        ("admitted", "<u4"),
        ("gap", "<f8"),
        ("crawl_delay", "V8"),
        ("failures", "<u2"),
        ("between", "V12"),
        ("waiting", "<u4"),
    ]
)
"""The record of a host, as lua/shard.lua packs it."""
_COLUMN_OF: Final = {
    HostSort.WAITING: "waiting",
    HostSort.NEXT: "rest_until",
    HostSort.FAILURES: "failures",
    HostSort.ADMITTED: "admitted",
    HostSort.REST: "gap",
}

_AT_ONCE: Final = 20_000
"""Hosts of a shard that are read in one reply: in 10 ms, half the time of slices."""


def hosts(reader: RedisCrawlReader, query: HostQuery, at_once: int = _AT_ONCE) -> list[HostState]:
    """Return the hosts of *query*. Those of a shard are read *at_once* if they are no more."""
    first = TopHosts(query)
    for shard in reader.shards:
        key = keys.hosts(reader.name, shard)
        with reader.reading(key):
            for names, packed in _host_records(reader, key, query.match, at_once):
                first.add(names, _figures(packed, query.sort))
    states = (_host_states(reader, part) for part in parts(first.names(), KEYS_PER_BATCH))
    return list(chain.from_iterable(states))


def _host_records(
    reader: RedisCrawlReader, key: str, match: str, at_once: int
) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Yield the names of hosts with *match* in them, and their records."""
    if reader.ask(key, "HLEN") > at_once:
        for found in reader.slices("HSCAN", key, f"*{escaped(match)}*"):
            yield found[::2], found[1::2]
        return
    found = reader.ask(key, "HGETALL")
    names, packed = found[::2], found[1::2]
    if match:
        wanted = match.encode()
        fitting = [wanted in name for name in names]
        names, packed = list(compress(names, fitting)), list(compress(packed, fitting))
    yield names, packed


def _figures(packed: list[bytes], sort: HostSort) -> SortFigures:
    """Return what orders the hosts with these records."""
    if sort is HostSort.NAME:
        return np.zeros(len(packed))
    size = _COLUMNS.itemsize
    rows = np.frombuffer(b"".join(record[:size] for record in packed), _COLUMNS)
    return rows[_COLUMN_OF[sort]].astype(float)


def _host_states(reader: RedisCrawlReader, hosts: Sequence[HostKey]) -> list[HostState]:
    """Return the states of those of *hosts* that are known."""
    shards = [shard_of(registered_domain(host), len(reader.shards)) for host in hosts]
    places = [
        (keys.hosts(reader.name, shard), host) for shard, host in zip(shards, hosts, strict=True)
    ]
    replies = reader.link.ask([(key, ("HGET", key, host)) for key, host in places])
    records = []
    for shard, (key, host), packed in zip(shards, places, replies, strict=True):
        with reader.reading(key):
            if packed is not None:
                records.append((shard, host, read_host(packed)))
    return _states(reader, records)


def host_record(reader: RedisCrawlReader, shard: int, host: HostKey) -> ShardHost | None:
    key = keys.hosts(reader.name, shard)
    packed = reader.ask(key, "HGET", host)
    with reader.reading(key):
        return None if packed is None else read_host(packed)


def _states(
    reader: RedisCrawlReader, records: Sequence[tuple[int, HostKey, ShardHost]]
) -> list[HostState]:
    """*records*: shards, hosts and their records."""
    queues = [
        (host, keys.queue(reader.name, shard, front, host))
        for shard, host, record in records
        for front in record.fronts
    ]
    lengths = reader.ask_each([("LLEN", key) for _, key in queues])
    waiting = dict.fromkeys((host for _, host, _ in records), 0)
    for (host, _), length in zip(queues, lengths, strict=True):
        waiting[host] += length
    return [
        HostState(
            host=host,
            waiting=waiting[host],
            place=record.place.name.lower(),
            rest_until=record.rest_until,
            pace=record.pace,
            admitted=record.admitted,
        )
        for _, host, record in records
    ]


# A dead letter that is put back waits as if it had never failed. Workers may run meanwhile: only
# letters that were there at the beginning are put back, so that it ends.

Letter = tuple[int, DeadLetter]
"""The number of a dead letter in its shard, and the letter."""


def dead_letters(reader: RedisCrawlReader, shard: int) -> Iterator[Letter]:
    """Yield the letters of *shard* in no order, some perhaps twice."""
    key = keys.dead(reader.name, shard)
    with reader.reading(key):
        for found in reader.pairs(key):
            for number, letter in found:
                yield int(number), decode_letter(letter)


decode_worker = msgspec.json.Decoder(WorkerRecord).decode


def worker_records(reader: RedisCrawlReader) -> list[WorkerRecord]:
    """Return the records of all workers, sorted by name."""
    key = keys.workers(reader.name)
    with reader.reading(key):
        found = {
            name: decode_worker(packed) for pairs in reader.pairs(key) for name, packed in pairs
        }
    return [found[name] for name in sorted(found)]


# The queue of a URL's host is searched up to a bound, which the answer contains; other keys without
# a usable order are scanned to the end.

MAX_SEARCHED: Final = 100_000
"""Waiting URLs of a host that are searched: 10 MB, and a second."""
_OVERLAP: Final = 10
"""Entries by which slices of a queue overlap, as it moves up when its head is leased. The host
rests after each lease, so that there are fewer than ten meanwhile."""


class UrlSearch:
    """The search for one URL in its shard."""

    def __init__(self, reader: RedisCrawlReader, url: KnownUrl) -> None:
        self._reader = reader
        self._url = url
        self._shard = shard_of(url.domain, len(reader.shards))

    def place(self) -> tuple[Place, int]:
        """Return where the URL is, and how many waiting URLs of its host were not looked at."""
        waiting, unsearched = self._waiting()
        place = waiting or self._leased() or self._later() or self._dead() or self._refused()
        return place, unsearched

    def _waiting(self) -> tuple[WaitingUrl | None, int]:
        host = self._url.host
        record = host_record(self._reader, self._shard, host)
        room = MAX_SEARCHED
        unsearched = 0
        for front in record.fronts if record else ():
            key = keys.queue(self._reader.name, self._shard, front, host)
            length = self._reader.ask(key, "LLEN")
            with self._reader.reading(key):
                for ahead, packed_url in self._queue(key, room):
                    candidate = read_waiting(packed_url, host, front)
                    if candidate.key == self._url.key:
                        return WaitingUrl(candidate, ahead, is_urgent=front == keys.URGENT), 0
            unsearched += max(0, length - room)
            room = max(0, room - length)
        return None, unsearched

    def _leased(self) -> LeasedUrl | None:
        for session, lease in self._leases():
            if lease.candidate.key == self._url.key:
                return LeasedUrl(lease.taken_at, self._worker_of(session))
        return None

    def _later(self) -> LaterUrl | None:
        key = keys.later(self._reader.name, self._shard)
        with self._reader.reading(key):
            for found in self._reader.scored(key, match=f"*{escaped(self._url.host)}*"):
                for entry, when in found:
                    candidate = read_later(entry, when)
                    if candidate.key == self._url.key:
                        return LaterUrl(candidate)
        return None

    def _dead(self) -> DeadLetter | None:
        letters = (letter for _, letter in dead_letters(self._reader, self._shard))
        return next((each for each in letters if each.candidate.key == self._url.key), None)

    def _refused(self) -> RefusedRecord | None:
        key = keys.refused_urls(self._reader.name, self._shard)
        with self._reader.reading(key):
            for found in self._reader.pairs(key):
                for _, packed in found:
                    candidate, rule, at = read_refused(packed)
                    if candidate.key == self._url.key:
                        return RefusedRecord(candidate, rule, at)
        return None

    def owner(self, is_same_url: Callable[[str], bool]) -> DuplicateOwner | None:
        """Return its claim. Claims are filed by digest, so that all may have to be read."""
        for shard in self._reader.shards:
            for claim in self._claims(shard):
                if is_same_url(claim.url):
                    return DuplicateOwner(claim.at, claim.record)
        return None

    def _claims(self, shard: int) -> Iterator[Claim]:
        """Yield the claims of its host, and perhaps of others."""
        name, host = self._reader.name, self._url.host.encode()
        total = int(self._reader.ask(keys.totals(name, shard), "HGET", "claims") or 0)
        buckets = [keys.claims(name, shard, bucket) for bucket in range(buckets_of(total))]
        files: dict[bytes, bytes] = {}
        with self._reader.reading(buckets[0]):
            for filed in self._reader.lists(buckets):
                if host in filed:
                    files = files or self._files(shard)
                    yield read_filed(filed, files)

    def _files(self, shard: int) -> dict[bytes, bytes]:
        key = keys.key_files(self._reader.name, shard)
        return {number: file for found in self._reader.pairs(key) for number, file in found}

    def _queue(self, key: str, most: int) -> Iterator[tuple[int, bytes]]:
        """Yield up to *most* entries with their positions, some twice."""
        for begin in range(0, most, SLICE - _OVERLAP):
            found = self._reader.ask(key, "LRANGE", begin, min(begin + SLICE, most) - 1)
            yield from enumerate(found, begin)
            if len(found) < SLICE:
                return

    def _leases(self) -> Iterator[tuple[str, ShardLease]]:
        """Yield the leases of the shard with their sessions."""
        name = self._reader.name
        for sessions in self._reader.scored(keys.sessions(name, self._shard)):
            for session, _ in sessions:
                key = keys.leases(name, self._shard, session.decode())
                with self._reader.reading(key):
                    for found in self._reader.pairs(key):
                        for _, packed in found:
                            yield session.decode(), read_lease(packed)

    def _worker_of(self, session: str) -> str:
        """Return the name of the worker, also if it has begun another session since."""
        named = {worker.session: worker.name for worker in worker_records(self._reader)}
        return named.get(session) or session.rpartition(".")[0] or session


def bucket_of(key: int, buckets: int) -> int:
    """Return the bucket of *key* as lua/add.lua does: linear hashing by the last nine digits."""
    half = 1 << buckets.bit_length() - 1
    bucket = int(str(abs(key))[-9:]) % (half * 2)
    return bucket - half if bucket >= buckets else bucket


def escaped(text: str) -> str:
    """Escape the characters that MATCH of Redis treats as a pattern."""
    return "".join(f"\\{char}" if char in "*?[]\\^" else char for char in text)


_STATS: Final = Struct("<IIId")  # as add_stats.lua packs it
_OTHER_FIELD: Final = b""


class SharedView:
    """Implements view.port.CrawlView. All times are the server's. Logs, archives and links on
    workers' disks are known only if they are in this data directory."""

    def __init__(self, reader: RedisCrawlReader, path: Path, max_bytes: int) -> None:
        """*path*: a worker's data directory, if it exists; *max_bytes*: of a robots.txt."""
        known = reader.format
        self.crawl = CrawlIdentity(reader.where, True, known.key_seed, known.identity)
        self.now = reader.now
        self._reader = reader
        self._most_bytes = max_bytes
        self._path = path

    def last_start(self) -> LastStart:
        arguments, settings = keys.arguments(self._reader.name), keys.settings(self._reader.name)
        kept_arguments, kept_settings = self._reader.ask_each(
            [("GET", arguments), ("GET", settings)]
        )
        return LastStart(
            None if kept_arguments is None else read_kept(kept_arguments, arguments),
            read_kept_settings(kept_settings, settings),
        )

    def counts(self) -> Counts:
        names = [keys.totals(self._reader.name, shard) for shard in self._reader.shards]
        replies = self._reader.ask_each([("HGETALL", name) for name in names])
        undecided = sum(worker.outbox for worker in worker_records(self._reader))
        return counts_of(map(ShardTotals.of_reply, replies)) + Counts(undecided=undecided)

    def workers(self) -> list[WorkerRecord]:
        return worker_records(self._reader)

    def unowned_shards(self) -> int:
        return 0

    def hosts(self, query: HostQuery) -> list[HostState]:
        if query.host is not None:
            return _host_states(self._reader, [query.host])
        return hosts(self._reader, query)

    def dead(self, limit: int) -> list[DeadLetter]:
        """Read all letters, as those of a shard are in no order, and return the *limit* oldest."""
        found: dict[tuple[int, int], DeadLetter] = {}  # by number: a scan may return some twice

        for shard in self._reader.shards:
            for number, letter in dead_letters(self._reader, shard):
                found[shard, number] = letter
                if len(found) >= limit + SLICE:
                    found = _oldest(found, limit)
        return list(_oldest(found, limit).values())

    def rules(self) -> str:
        text = self._reader.ask(keys.rules(self._reader.name), "HGET", "text")
        return bytes(text or b"").decode(errors="replace")

    def audit(self) -> list[Act | ActResult]:
        key = keys.audit(self._reader.name)
        return list(read_audit(self._reader.ask(key, "LRANGE", 0, -1)))

    def seen(self, urls: Sequence[KnownUrl]) -> list[bool]:
        """Return of each URL whether it was ever admitted. Looks again if buckets were split
        meanwhile."""
        placed = [
            (self._shard(url), int.from_bytes(url.key.to_bytes(8), signed=True)) for url in urls
        ]
        shards = sorted({shard for shard, _ in placed})
        found, buckets = [False] * len(urls), list[int]()
        while buckets != (now := self._buckets(shards)):
            buckets, of_shard = now, dict(zip(shards, now, strict=True))
            named = [
                (keys.seen(self._reader.name, shard, bucket_of(key, of_shard[shard])), key)
                for shard, key in placed
            ]
            replies = self._reader.link.ask(
                [(name, ("SISMEMBER", name, key)) for name, key in named]
            )
            found = [bool(is_in) or before for is_in, before in zip(replies, found, strict=True)]
        return found

    def url(self, url: KnownUrl, is_same_url: Callable[[str], bool]) -> UrlRecord:
        search = UrlSearch(self._reader, url)
        place, unsearched = search.place()
        outcomes = outcomes_of(self._path, url.host, is_same_url)
        is_elsewhere = not outcomes and self.seen([url])[0]
        owner = search.owner(is_same_url) if is_elsewhere else None
        return UrlRecord(place, unsearched, outcomes, owner)

    def grounds(self, url: KnownUrl) -> Grounds:
        remembered = self._remembered(url)
        authority = authority_of(url.url)
        key = keys.robots(self._reader.name, self._shard(url), authority)
        packed, left_ms = self._reader.ask_each([("GET", key), ("PTTL", key)])
        shared = read_robots(authority, packed, left_ms, self._reader.now(), self._most_bytes)
        robots, own = RobotsRecords(remembered), RobotsRecords(remembered).get(authority)
        if shared is not None:
            # The time of the fetch is not shared, so the record is valid from 0 until it expires.
            robots.put(replace(shared, fetched_at=0.0))
        elif own is not None and own.kind is RobotsState.UNREACHABLE:
            robots.put(unknown_record(authority, 0.0))  # withdrawn: see shared.worker.robots
        domains = keys.domains(self._reader.name, self._shard(url))
        used = self._reader.ask(domains, "HGET", url.domain)
        with self._reader.reading(domains):
            return Grounds(remembered, self._opened_hosts(url), int(used or 0))

    def pattern_stats(self, url: KnownUrl, pattern: str) -> tuple[str, PatternStats]:
        key = keys.pattern_stats(self._reader.name, self._shard(url), url.host)
        packed = self._reader.ask(key, "HGET", field_of(pattern))
        if packed is None and self._reader.ask(key, "HLEN") >= MAX_PATTERNS:
            pattern, packed = OTHER_PATTERNS, self._reader.ask(key, "HGET", _OTHER_FIELD)
        if packed is None:
            return pattern, NO_STATS
        with self._reader.reading(key):
            return pattern, PatternStats(*_STATS.unpack(packed))

    def _shard(self, url: KnownUrl) -> int:
        return shard_of(url.domain, len(self._reader.shards))

    def _buckets(self, shards: Sequence[int]) -> list[int]:
        """Return how many buckets of seen URLs each of *shards* has."""
        totals = [keys.totals(self._reader.name, shard) for shard in shards]
        found = self._reader.link.ask([(key, ("HGET", key, "buckets")) for key in totals])
        return [int(buckets or 1) for buckets in found]

    def _opened_hosts(self, url: KnownUrl) -> set[str]:
        """Return the pushed hosts of its domain, as a scope may depend on them."""
        key = keys.opened_hosts(self._reader.name)
        same_domain: set[str] = set()
        for found in self._reader.scored(key):
            with self._reader.reading(key):
                hosts = [host.decode() for host, _ in found]
            same_domain |= {host for host in hosts if registered_domain(host) == url.domain}
        return same_domain

    def _remembered(self, url: KnownUrl) -> MemoryStore:
        """Return what the worker has stored whose data directory this is; empty if none has."""
        if not (self._path / WORKER).is_dir():
            return MemoryStore()
        with closing(open_read_only(self._path / WORKER)) as store:
            return remembered_of(store, url)


def open_reader(address: RedisAddress, config: Config) -> RedisCrawlReader:
    """Return a connection to the shared crawl at *address*."""
    where = Address.parse(address.url, address.params)
    return RedisCrawlReader(where, config.shared.frontier_name, open_args(config))


def _oldest(
    letters: dict[tuple[int, int], DeadLetter], limit: int
) -> dict[tuple[int, int], DeadLetter]:
    return dict(nsmallest(limit, letters.items(), key=lambda pair: pair[1].at))


Each = TypeVar("Each")


def parts(sequence: Sequence[Each], size: int) -> Iterator[list[Each]]:
    """Yield the elements of *sequence* in lists of up to *size*."""
    rest = iter(sequence)
    while part := list(islice(rest, size)):
        yield part
