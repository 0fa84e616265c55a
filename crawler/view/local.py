"""Read a data directory, also while a crawl uses it.

Rule: nothing is written and no lock is taken.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, Self

import numpy as np

from crawler.assembly.build import rules_path
from crawler.config.settings import Config, PatternSettings, read_kept, read_kept_settings
from crawler.data.data_dir import (
    ARGUMENTS,
    OUTCOMES,
    SETTINGS,
    kept_file,
    read_format,
)
from crawler.data.local_stores import LocalPatternStats, RobotsRecords
from crawler.data.operator_files import AUDIT, Act, Audit, RulesFile, Touched
from crawler.data.outcomes import read_outcomes
from crawler.frontier import records as keys
from crawler.frontier.dead_letters import dead_letters
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.port import FRONTIER, SEEN, OrderedStore
from crawler.frontier.reader import (
    FrontierReader,
    RecountedCounter,
    count_again,
)
from crawler.frontier.records import (
    DeadLetter,
    HostFigures,
    HostRecord,
    RefusedRecord,
    decode_candidate,
    decode_figures,
    decode_open,
    decode_refused,
    waiting_of,
)
from crawler.frontier.rocks_store import OpenedStore, RocksStore
from crawler.frontier.run_files import RunFolder
from crawler.frontier.staging import all_records
from crawler.model.counts import Counts
from crawler.model.types import (
    Candidate,
    DataDirError,
    HostKey,
    Outcome,
)
from crawler.policy.patterns import PatternStats
from crawler.view.hosts import HostQuery, HostSort, SortFigures, TopHosts
from crawler.view.port import (
    HostState,
    KnownUrl,
    LeasedUrl,
    WaitingUrl,
)


def logged_outcomes(path: Path, host: HostKey, is_same_url: Callable[[str], bool]) -> list[Outcome]:
    """Return the outcomes, in the log of the data directory *path*, of the URL of *host* that
    *is_same_url* accepts, the oldest first. There need not be a log."""
    log = read_outcomes(path / OUTCOMES)
    return [each for each in log if each.host == host and is_same_url(each.url)]


_SLICE: Final = 10_000  # hosts
_Decoded = Iterator[HostFigures]
_FIGURES: Final[Mapping[HostSort, Callable[[_Decoded], list[float]]]] = {
    HostSort.NEXT: lambda hosts: [each.rest_until for each in hosts],
    HostSort.FAILURES: lambda hosts: [each.pace.failures for each in hosts],
    HostSort.ADMITTED: lambda hosts: [each.admitted for each in hosts],
    HostSort.REST: lambda hosts: [each.pace.gap_s for each in hosts],
}


def _figures(packed: Sequence[bytes], sort: HostSort) -> SortFigures:
    """Return what orders the hosts with these records."""
    if sort is HostSort.WAITING:
        return waiting_of(packed).astype(float)
    return np.array(_FIGURES[sort](map(decode_figures, packed)), float)


# The crawl may remove a file after RocksDB has read its list of files, and before it opens it.
_TRIES: Final = 3
_PAUSE_S: Final = 0.05


class LocalInspection:
    """Implements view.port.Inspection. Raises DataDirError if *path* is no data directory, or a
    damaged one."""

    is_shared = False

    def __init__(self, path: Path, store: OpenedStore | None = None) -> None:
        """*store*: the frontier, if this process has opened it to write."""
        self.path = path
        found = read_format(path)
        self.key_seed, self.identity = found.key_seed, found.identity
        if not (path / FRONTIER).is_dir():
            raise DataDirError(f"{path} holds no frontier: no crawl has begun in it")
        self._store = store or open_read_only(path / FRONTIER)
        self.reader = FrontierReader(self._store, RunFolder(path / SEEN))
        self.robots = RobotsRecords(self._store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    @property
    def where(self) -> str:
        return str(self.path)

    @property
    def arguments(self) -> dict[str, str]:
        return read_kept(kept_file(self.path / ARGUMENTS), str(self.path / ARGUMENTS))

    @property
    def settings(self) -> dict[str, object] | None:
        return read_kept_settings(kept_file(self.path / SETTINGS), str(self.path / SETTINGS))

    def now(self) -> float:
        return time.time()

    def counts(self) -> Counts:
        return self.reader.counts()

    def count_again(self) -> list[RecountedCounter]:
        """Count in the store as it was when opened; each call of the crawl is one write."""
        return count_again(self._store, RunFolder(self.path / SEEN))

    def hosts(self, query: HostQuery) -> list[HostState]:
        """Return the hosts of *query*. 1 us for each known host."""
        known, match = self._each(keys.HOST), query.match.encode()
        if match:
            known = (each for each in known if each[0].find(match, 1) > 0)
        if query.sort is HostSort.NAME:
            listed = islice(known, query.offset, query.offset + query.top)
            names = [HostKey(keys.name_of(key)) for key, _ in listed]
        else:
            first = TopHosts(query)
            while some := list(islice(known, _SLICE)):
                figures = _figures([packed for _, packed in some], query.sort)
                first.add([key[1:] for key, _ in some], figures)
            names = first.names()
        states = map(self.host, names)
        return [state for state in states if state is not None]

    def host(self, host: HostKey) -> HostState | None:
        record = self.reader.host(host)
        return None if record is None else _state(host, record)

    def oldest_dead(self, limit: int) -> list[DeadLetter]:
        return [letter for _, letter in islice(dead_letters(self._store), limit)]

    def is_seen(self, url: KnownUrl) -> bool:
        return self.reader.is_seen(url.key)

    def waiting(self, url: KnownUrl) -> WaitingUrl | None:
        ahead = Counter[int]()
        for candidate in self.reader.waiting(url.host):
            if candidate.key == url.key:
                return WaitingUrl(candidate, ahead[candidate.level])
            ahead[candidate.level] += 1
        undecided = (each for each in self.reader.undecided() if each.key == url.key)
        return next((WaitingUrl(each, ahead[each.level]) for each in undecided), None)

    def leased(self, url: KnownUrl) -> LeasedUrl | None:
        opened = (decode_open(packed) for _, packed in self._each(keys.OPEN))
        taken = (each.taken_at for each in opened if each.candidate.key == url.key)
        return next((LeasedUrl(at) for at in taken), None)

    def later(self, url: KnownUrl) -> Candidate | None:
        put_off = (decode_candidate(packed) for _, packed in self._each(keys.LATER))
        return next((each for each in put_off if each.key == url.key), None)

    def dead(self, url: KnownUrl) -> DeadLetter | None:
        letters = (letter for _, letter in dead_letters(self._store))
        return next((letter for letter in letters if letter.candidate.key == url.key), None)

    def refused(self, url: KnownUrl) -> RefusedRecord | None:
        kept = (decode_refused(packed) for _, packed in self._each(keys.REFUSED))
        return next((each for each in kept if each.candidate.key == url.key), None)

    def duplicate_owner(self, url: KnownUrl, is_same_url: Callable[[str], bool]) -> None:
        """Return None, because the outcome log has the same fact."""

    def outcomes(self, url: KnownUrl, is_same_url: Callable[[str], bool]) -> list[Outcome]:
        return logged_outcomes(self.path, url.host, is_same_url)

    def outbox_counts(self) -> dict[str, int]:
        return {}

    def operator_rules(self, config: Config) -> str:
        return RulesFile(rules_path(config, self.path)).read()

    def audit(self) -> list[Act | Touched]:
        return list(Audit(self.path / AUDIT).read())

    def stored_origins(self) -> MemoryStore:
        return origins_of(self._store)

    def pattern_stats(self, url: KnownUrl, pattern: str) -> tuple[str, PatternStats]:
        return LocalPatternStats(self._store, PatternSettings()).pattern_and_stats(
            url.host, pattern
        )

    def admitted_of_domain(self, url: KnownUrl) -> int:
        return self.reader.admitted_of_domain(HostKey(url.domain))

    def opened_hosts(self, url: KnownUrl) -> set[str]:
        return set()

    def _each(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return all_records(self._store, prefix)


def origins_of(store: OrderedStore) -> MemoryStore:
    """Return a copy of what AllowedOrigins has put in *store*."""
    copy = MemoryStore()
    copy.write(dict(all_records(store, keys.LOOPBACK)))
    return copy


def open_read_only(folder: Path) -> RocksStore:
    """Open the store to read, also while a crawl uses it. Raises DataDirError."""
    for _ in range(_TRIES - 1):
        with suppress(DataDirError):
            return RocksStore(folder, read_only=True)
        time.sleep(_PAUSE_S)
    return RocksStore(folder, read_only=True)


def _state(name: HostKey, record: HostRecord) -> HostState:
    return HostState(
        host=name,
        waiting=record.waiting(),
        place=record.place.name.lower(),
        rest_until=record.rest_until,
        pace=record.pace,
        admitted=record.admitted,
    )
