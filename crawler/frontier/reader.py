"""A frontier on disk, read while another process may use it, and its counters counted again.

Rule: only `correct_counters` writes. The counters are for display only. How many URLs are done is
only in its counter and cannot be counted again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from crawler.frontier import records as keys
from crawler.frontier.budgets import CAPPED, spilled_urls
from crawler.frontier.port import DurableStore
from crawler.frontier.queues import UrlQueues
from crawler.frontier.records import (
    COUNTED,
    DomainRecord,
    FrontierTotals,
    HostRecord,
    decode_candidate,
    decode_domain,
    decode_host,
    decode_letter,
    decode_open,
    decode_refused,
    decode_totals,
    decode_urls,
    encode,
)
from crawler.frontier.run_files import PAGE_KEYS, Flags, KeyRun, Keys, RunFolder, damaged
from crawler.frontier.seen import seen_manifest, stored_keys
from crawler.frontier.seen_repair import find_damage
from crawler.frontier.shards import Shards
from crawler.frontier.staging import WriteBatch, all_records, records_between
from crawler.model.counts import Counts
from crawler.model.types import Candidate, HostKey

_READ_URLS: Final = 1000


class FrontierReader:
    """The hosts, queues and seen URLs of a frontier."""

    def __init__(self, store: DurableStore, runs: RunFolder, shards: Shards | None = None) -> None:
        """*runs*: the folder of the seen set. *shards* as of WriteBatch."""
        packed = store.get(keys.TOTALS)
        self.totals = decode_totals(packed) if packed else FrontierTotals()
        self._store = store
        self._runs = runs
        # Its records are dropped by commits, and a reader makes none.
        levels = len(self.totals.levels)
        self._batch = WriteBatch(store, levels, known_hosts=0, shards=shards)
        self._queues = UrlQueues(self._batch, _READ_URLS)

    def hosts(self) -> Iterator[tuple[HostKey, HostRecord]]:
        """Yield each known host and its record."""
        for key, packed in all_records(self._store, keys.HOST):
            yield HostKey(keys.name_in_shard(key)), decode_host(packed)

    def host(self, host: HostKey) -> HostRecord | None:
        known = self._store.get(self._batch.key(keys.HOST, host)) is not None
        return self._batch.peek(host) if known else None

    def is_seen(self, key: int) -> bool:
        """Return whether the URL with *key* was ever admitted. Raises DataDirError."""
        wanted = np.array([key], np.uint64)
        return any(key in new for new in self._new_keys()) or bool(self._are_in_runs(wanted)[0])

    def count_seen(self) -> int:
        """Return how many URLs were ever admitted."""
        return seen_manifest(self._store).keys + sum(map(len, self._new_keys()))

    def _new_keys(self) -> Iterator[Keys]:
        """Yield the keys of seen URLs that are in no run."""
        for _, packed in all_records(self._store, keys.ADMITTED_KEYS):
            yield stored_keys(packed)

    def check_runs(self) -> None:
        """Read the runs of the seen set. Raises DataDirError, which names the files, if some are
        damaged or missing."""
        found = find_damage(seen_manifest(self._store), self._runs)
        if found:
            files = ", ".join(str(each.file) for each in found)
            pages, lost = (sum(getattr(each, of) for each in found) for of in ("pages", "keys"))
            raise damaged(files, f"{pages:,} pages with {lost:,} keys, or the index")

    def check_store(self) -> None:
        """Read all of the store, whose blocks have checksums. Raises StoreUnavailable, which names
        the file, if one is damaged."""
        for _ in records_between(self._store, b"", b"\xff"):
            pass

    def admitted_keys(self) -> Iterator[int]:
        """Yield the keys of the URLs that the frontier holds, that passed a seen test and were in a
        run."""
        new = set[int]().union(*(each.tolist() for each in self._new_keys()))
        for each in self.held():
            if each.needs_seen_test and each.key not in new:
                yield each.key

    def held(self) -> Iterator[Candidate]:
        """Yield the URLs that the frontier holds, those that are dead or refused too."""
        for host, _ in self.hosts():
            yield from self.waiting(host)
        for _, packed in all_records(self._store, keys.LATER):
            yield decode_candidate(packed)
        for _, packed in all_records(self._store, keys.OPEN):
            yield decode_open(packed).candidate
        for _, packed in all_records(self._store, keys.DEAD):
            yield decode_letter(packed).candidate
        for _, packed in all_records(self._store, keys.REFUSED):
            yield decode_refused(packed).candidate

    def _opened_runs(self) -> Iterator[KeyRun]:
        for stored in seen_manifest(self._store).runs:
            yield KeyRun(self._runs, stored, None, PAGE_KEYS)

    def _are_in_runs(self, wanted: Keys) -> Flags:
        """Return which of *wanted*, sorted, are in the runs of the seen set."""
        found = np.zeros(len(wanted), np.bool_)
        for run in self._opened_runs():
            found |= run.find(wanted)[0]
        return found

    def domain(self, domain: str) -> DomainRecord:
        """Return what is known of a registered *domain*."""
        packed = self._store.get(self._batch.key(keys.DOMAIN, domain))
        return decode_domain(packed) if packed else DomainRecord()

    def domains(self) -> Iterator[tuple[str, DomainRecord]]:
        """Yield each known registered domain and its record."""
        for key, packed in all_records(self._store, keys.DOMAIN):
            yield keys.name_in_shard(key), decode_domain(packed)

    def spilled(self, domain: str) -> list[Candidate]:
        """Return the URLs of *domain* that wait for its budget, in the order of their turns."""
        shard = self._batch.shards.of(domain)
        chunks = all_records(self._store, keys.spilled_prefix(shard, domain))
        return spilled_urls(chunks, self.domain(domain))

    def counts(self) -> Counts:
        """Return the counters, and how many URLs are undecided and how many hosts active, which
        are counted."""
        active = sum(1 for _ in all_records(self._store, keys.ACTIVE))
        return self.totals.counts(active, sum(1 for _ in self.undecided()))

    def undecided(self) -> Iterator[Candidate]:
        """Yield the URLs of which it is not decided yet whether they are new."""
        for prefix in (keys.UNDECIDED, keys.ARRIVED):
            for _, packed in all_records(self._store, prefix):
                yield from decode_urls(packed)

    def named_records(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the names of the records of *prefix*, and the records, packed."""
        found = all_records(self._store, prefix)
        return ((keys.name_of_record(key), packed) for key, packed in found)

    def waiting(self, host: HostKey) -> Iterator[Candidate]:
        """Yield the waiting URLs of *host*, the best level first, in the order of their turns."""
        for level, ends in enumerate(self._batch.peek(host).queue_ends):
            for at in range(ends.head, ends.tail, _READ_URLS):
                stop = min(at + _READ_URLS, ends.tail)
                yield from map(decode_candidate, self._queues.read(host, level, at, stop))


@dataclass(frozen=True, slots=True)
class RecountedCounter:
    """A counter, and what it should be."""

    name: str
    stored: int
    counted: int
    shard: int | None = None  # of a shared frontier

    @property
    def differs(self) -> bool:
        return self.stored != self.counted


def count_again(store: DurableStore, runs: RunFolder) -> list[RecountedCounter]:
    """Read all, and count the records behind each counter. O(URLs), in bounded memory. Raises
    DataDirError or StoreUnavailable if a file is damaged."""
    reader = FrontierReader(store, runs)
    reader.check_runs()
    reader.check_store()
    waiting = sum(1 for host, _ in reader.hosts() for _ in reader.waiting(host))
    counted = {"waiting": waiting, "seen": reader.count_seen()}
    counted |= count_spilled(record for _, record in reader.domains())
    for name, prefix in COUNTED.items():
        counted[name] = sum(1 for _ in all_records(store, prefix))
    return [
        RecountedCounter(name, getattr(reader.totals, name), number)
        for name, number in counted.items()
    ]


def count_spilled(domains: Iterable[DomainRecord]) -> dict[str, int]:
    """Return the counters of URLs that wait for budgets, by their names in FrontierTotals."""
    counted = dict.fromkeys(("spilled", "capped", "spilled_domains"), 0)
    for record in domains:
        counted["spilled"] += len(record)
        counted["capped"] += len(record) if record.filed == CAPPED else 0
        counted["spilled_domains"] += len(record) > 0
    return counted


def correct_counters(store: DurableStore, counted: list[RecountedCounter]) -> None:
    """Correct the counters in *store*, which no process may have open."""
    packed = store.get(keys.TOTALS)
    totals = decode_totals(packed) if packed else FrontierTotals()
    for each in counted:
        setattr(totals, each.name, each.counted)
    store.write({keys.TOTALS: encode(totals)})
