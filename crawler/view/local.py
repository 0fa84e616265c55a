"""Read a data directory, also while a crawl uses it.

Rule: nothing is written and no lock is taken.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, Protocol, Self

from crawler.config.arguments import read_kept, read_kept_settings
from crawler.config.settings import PatternSettings
from crawler.data.data_dir import (
    ARGUMENTS,
    OUTCOMES,
    SETTINGS,
    kept_file,
    lock_owner,
    read_format,
    refuse_remote,
)
from crawler.data.local_stores import LocalPatternStats
from crawler.data.operator_files import AUDIT, RULES, Act, ActResult, Audit, RulesFile
from crawler.data.outcomes import read_outcomes
from crawler.frontier import records as keys
from crawler.frontier.dead_letters import dead_letters
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.port import FRONTIER, SEEN, OrderedStore, ReadableStore
from crawler.frontier.reader import (
    FrontierReader,
)
from crawler.frontier.records import (
    DeadLetter,
    DomainRecord,
    HostRecord,
    decode_candidate,
    decode_domain,
    decode_gone,
    decode_letter,
    decode_open,
    decode_refused,
)
from crawler.frontier.rocks_store import OpenedStore, RocksStore
from crawler.frontier.run_files import RunFolder
from crawler.frontier.shards import Shards
from crawler.frontier.staging import all_records
from crawler.model.counts import Counts
from crawler.model.types import (
    Candidate,
    DataDirError,
    HostKey,
    Outcome,
)
from crawler.model.url import authority_of
from crawler.policy.patterns import PatternStats
from crawler.shared.codec import WorkerRecord
from crawler.shared.keys import URGENT_LEVEL
from crawler.view.budgets import DomainQuery, domain_figures
from crawler.view.hosts import (
    HostQuery,
    HostSort,
    TopHosts,
    figures_of,
    is_asked_for,
    usual_fetch_s,
)
from crawler.view.port import (
    CrawlIdentity,
    Grounds,
    HostState,
    KnownUrl,
    LastStart,
    LaterUrl,
    LeasedUrl,
    Place,
    SpilledUrl,
    UnfinishedLease,
    UrlRecord,
    VisitTotals,
    WaitingUrl,
)

_SLICE: Final = 10_000  # hosts

# The crawl may remove a file after RocksDB has read its list of files, and before it opens it.
_TRIES: Final = 3
_PAUSE_S: Final = 0.05


class LocalView:
    """Implements view.port.CrawlView. Raises DataDirError if *path* is no data directory, or a
    damaged one."""

    def __init__(
        self, path: Path, store: OpenedStore | None = None, rules: Path | None = None
    ) -> None:
        """*store*: the frontier, if this process has opened it to write. *rules*: the file of the
        operator's rules, if it is not in the data directory."""
        self.path = path
        found = read_format(path)
        self.crawl = CrawlIdentity(str(path), False, found.key_seed, found.identity)
        refuse_remote(path)
        if not (path / FRONTIER).is_dir():
            raise DataDirError(f"{path} holds no frontier: no crawl has begun in it")
        self._rules = rules or path / RULES
        self.store = store or open_read_only(path / FRONTIER)
        self.reader = FrontierReader(self.store, RunFolder(path / SEEN))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def now(self) -> float:
        return max(time.time(), self.reader.totals.clock)

    def last_start(self) -> LastStart:
        arguments, settings = self.path / ARGUMENTS, self.path / SETTINGS
        kept = kept_file(arguments)
        return LastStart(
            None if kept is None else read_kept(kept, str(arguments)),
            read_kept_settings(kept_file(settings), str(settings)),
        )

    def counts(self) -> Counts:
        return self.reader.counts()

    def records(self, folder: Path) -> tuple[ReadableStore, Shards | None]:
        return self.store, None

    def opened_hosts(self) -> set[str]:
        return set()

    def workers(self) -> list[WorkerRecord]:
        return []

    def unowned_shards(self) -> int:
        return 0

    def hosts(self, query: HostQuery) -> list[HostState]:
        """Return the hosts of *query*. 1 us for each known host."""
        states = map(self._host, self._names(query))
        return [state for state in states if state is not None]

    def leases(self) -> list[UnfinishedLease]:
        is_held = lock_owner(self.path) is not None
        opened = [decode_open(packed) for _, packed in self.reader.named_records(keys.OPEN)]
        hosts = {each.candidate.host for each in opened}
        records = {host: self.reader.host(host) for host in hosts}
        usual_s = {
            host: 0.0 if record is None else usual_fetch_s(record.pace)
            for host, record in records.items()
        }
        return [
            UnfinishedLease(each.candidate, each.taken_at, usual_s[each.candidate.host], is_held)
            for each in opened
        ]

    def domains(self, query: DomainQuery) -> list[tuple[str, DomainRecord]]:
        """Return the domains of *query*. 2 us for each known domain."""
        match = query.match.encode()
        known = (
            (keys.name_of_record(key), decode_domain(packed))
            for key, packed in self._each(keys.DOMAIN)
            if match in keys.name_of_record(key)
        )
        first = TopHosts(query.top, query.offset)
        while some := list(islice(known, _SLICE)):
            records = [record for _, record in some]
            first.add([name for name, _ in some], domain_figures(records, query.sort))
        return [(name, self.reader.domain(name)) for name in first.names()]

    def degrees(self) -> list[int]:
        return self.reader.totals.degrees

    def dead(self, limit: int) -> list[DeadLetter]:
        return [letter for _, letter in islice(dead_letters(self.store), limit)]

    def rules(self) -> str:
        return RulesFile(self._rules).read()

    def audit(self) -> list[Act | ActResult]:
        return list(Audit(self.path / AUDIT).read())

    def seen(self, urls: Sequence[KnownUrl]) -> list[bool]:
        return [self.reader.is_seen(url.key) for url in urls]

    def url(self, url: KnownUrl, is_same_url: Callable[[str], bool]) -> UrlRecord:
        place, is_undecided = find_url(self.reader, url)
        outcomes = outcomes_of(self.path, url.host, is_same_url)
        return UrlRecord(place, outcomes, is_undecided=is_undecided)

    def visit_totals(self, url: KnownUrl | None) -> VisitTotals:
        return VisitTotals(self.reader.totals.by_worth, self.reader.totals.worth)

    def visited_again(self, host: HostKey | None) -> Iterator[LaterUrl]:
        return pages_visited_again(self.reader.named_records(keys.LATER), host)

    def grounds(self, url: KnownUrl) -> Grounds:
        remembered = remembered_of(self.store, url)
        return Grounds(remembered, set(), self.reader.domain(url.domain))

    def pattern_stats(self, url: KnownUrl, pattern: str) -> tuple[str, PatternStats]:
        stats = LocalPatternStats(self.store, PatternSettings())
        return stats.pattern_and_stats(url.host, pattern)

    def _names(self, query: HostQuery) -> list[HostKey]:
        if query.host is not None:
            return [query.host]
        known, match = self._each(keys.HOST), query.match.encode()
        if match:
            known = (each for each in known if match in keys.name_of_record(each[0]))
        if query.is_filtered:
            known = (each for each in known if is_asked_for(query, each[1]))
        if query.sort is HostSort.NAME:
            listed = islice(known, query.offset, query.offset + query.top)
            return [HostKey(keys.name_in_shard(key)) for key, _ in listed]
        first = TopHosts(query.top, query.offset)
        while some := list(islice(known, _SLICE)):
            figures = figures_of([packed for _, packed in some], query.sort)
            first.add([keys.name_of_record(key) for key, _ in some], figures)
        return first.names()

    def _host(self, name: HostKey) -> HostState | None:
        record = self.reader.host(name)
        return None if record is None else host_state(name, record)

    def _each(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return all_records(self.store, prefix)


def host_state(host: HostKey, record: HostRecord) -> HostState:
    return HostState(
        host=host,
        waiting=record.waiting(),
        place=record.place.name.lower(),
        rest_until=record.rest_until,
        pace=record.pace,
        admitted=record.admitted,
        address=record.address,
        waits_for_address=record.waits_for_address,
        visits=record.visits,
        tally=record.tally,
    )


class SearchableRecords(Protocol):
    """The records of a frontier, or of one of its shards, in which a URL is searched."""

    def undecided(self) -> Iterator[Candidate]:
        """Yield the URLs of which it is not decided yet whether they are new."""

    def waiting(self, host: HostKey) -> Iterator[Candidate]:
        """Yield the waiting URLs of *host*, the best level first, in the order of their turns."""

    def spilled(self, domain: str) -> list[Candidate]:
        """Return the URLs of *domain* that wait for its budget, in the order of their turns."""

    def named_records(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the records of *prefix*, packed, each with its name in its shard."""


def find_url(found: SearchableRecords, url: KnownUrl, worker: str = "") -> tuple[Place, bool]:
    """Return where *url* is among what was *found*, and whether it is not decided yet if it is new.
    *worker*: that owns its shard. Places are searched in the order in which a URL moves."""
    undecided = next((each for each in found.undecided() if each.key == url.key), None)
    # It may have been found once more, and admitted, while it is spilled still.
    spilled = _spilled_place(found, url)
    place = _waiting_place(found, url, undecided) or _place_elsewhere(found, url, worker)
    return place or spilled, undecided is not None


def _spilled_place(found: SearchableRecords, url: KnownUrl) -> SpilledUrl | None:
    for ahead, candidate in enumerate(found.spilled(url.domain)):
        if candidate.key == url.key:
            return SpilledUrl(candidate, ahead)
    return None


def _waiting_place(
    found: SearchableRecords, url: KnownUrl, undecided: Candidate | None
) -> WaitingUrl | None:
    ahead = Counter[int]()
    for candidate in found.waiting(url.host):
        if candidate.key == url.key:
            return WaitingUrl(candidate, ahead[candidate.level])
        ahead[candidate.level] += 1
    if undecided is None or undecided.level != URGENT_LEVEL:
        return None
    return WaitingUrl(undecided, ahead[undecided.level], is_urgent=True)  # seen or not


def _place_elsewhere(found: SearchableRecords, url: KnownUrl, worker: str) -> Place:
    """Return where *url* is, if it does not wait."""
    name = url.host.encode()

    def of_host(prefix: bytes) -> Iterator[bytes]:
        """Yield the records of its host, and perhaps of others: to decode all takes longer."""
        return (packed for _, packed in found.named_records(prefix) if name in packed)

    for opened in map(decode_open, of_host(keys.OPEN)):
        if opened.candidate.key == url.key:
            return LeasedUrl(opened.taken_at, opened.candidate, worker)
    for at, packed in found.named_records(keys.LATER):
        if name in packed and (later := decode_candidate(packed)).key == url.key:
            return later_url(at, later)
    for gone in map(decode_gone, of_host(keys.GONE)):
        if gone.candidate.key == url.key:
            return gone
    for letter in map(decode_letter, of_host(keys.DEAD)):
        if letter.candidate.key == url.key:
            return letter
    for refused in map(decode_refused, of_host(keys.REFUSED)):
        if refused.candidate.key == url.key:
            return refused
    return None


def later_url(name: bytes, candidate: Candidate) -> LaterUrl:
    """Return a later URL; *name*: of its record in its shard."""
    key = keys.LATER + name
    if not keys.is_without_date(key):
        return LaterUrl(candidate)
    return LaterUrl(candidate, keys.class_of_visited(key), keys.visited_at(key))


def pages_visited_again(
    found: Iterator[tuple[bytes, bytes]], host: HostKey | None
) -> Iterator[LaterUrl]:
    """Yield the later URLs among the records *found*, with their names, that were visited
    before."""
    part = b"" if host is None else host.encode()
    for name, packed in found:
        if part in packed:
            candidate = decode_candidate(packed)
            if candidate.history is not None and host in (None, candidate.host):
                yield later_url(name, candidate)


def outcomes_of(path: Path, host: HostKey, is_same_url: Callable[[str], bool]) -> list[Outcome]:
    """Return the outcomes of the URL of *host* that *is_same_url* accepts, in the log of the data
    directory *path*, which need not exist."""
    log = read_outcomes(path / OUTCOMES)
    return [each for each in log if each.host == host and is_same_url(each.url)]


def remembered_of(store: OrderedStore, url: KnownUrl) -> MemoryStore:
    """Return a copy of what AllowedOrigins and the robots.txt of *url* have put in *store*."""
    copy = MemoryStore()
    robots = keys.named(keys.ROBOTS, authority_of(url.url))
    copy.write({**dict(all_records(store, keys.LOOPBACK)), robots: store.get(robots)})
    return copy


def open_read_only(folder: Path) -> RocksStore:
    """Open the store to read, also while a crawl uses it. Raises DataDirError."""
    for _ in range(_TRIES - 1):
        with suppress(DataDirError):
            return RocksStore(folder, read_only=True)
        time.sleep(_PAUSE_S)
    return RocksStore(folder, read_only=True)
