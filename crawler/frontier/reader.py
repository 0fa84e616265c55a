"""A frontier on disk, read while another process may use it, and its counters counted again.

Rule: only `correct_counters` writes. The counters are for display only. How many URLs are done, or
were ever admitted, is only in its counter and cannot be counted again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from crawler.frontier import records as keys
from crawler.frontier.port import DurableStore, ReadableStore
from crawler.frontier.queues import UrlQueues
from crawler.frontier.records import (
    DomainRecord,
    FrontierTotals,
    HostRecord,
    decode_candidate,
    decode_domain,
    decode_totals,
    decode_urls,
    encode,
    join_urls,
)
from crawler.frontier.run_files import PAGE_KEYS, Flags, KeyRun, Keys, RunFolder
from crawler.frontier.seen import seen_manifest
from crawler.frontier.staging import WriteBatch
from crawler.model.types import Candidate, HostKey

_SLICE: Final = 10_000
_READ_URLS: Final = 1000


def records_between(
    store: ReadableStore, begin: bytes, stop: bytes
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs with begin <= key < stop, in order of key, in bounded memory."""
    while found := store.scan(begin, stop, _SLICE):
        yield from found
        begin = found[-1][0] + b"\0"


class FrontierReader:
    """The hosts and queues of a frontier, with the URLs of entries that no flush has stored."""

    def __init__(self, store: DurableStore, runs: RunFolder) -> None:
        """*runs*: the folder of the seen set."""
        packed = store.get(keys.TOTALS)
        self.totals = decode_totals(packed) if packed else FrontierTotals(front=[])
        self._store = store
        self._runs = runs
        self._batch = WriteBatch(store, len(self.totals.front))
        self._queues = UrlQueues(self._batch, _READ_URLS)
        for number, entry in self._batch.entries():
            for arrived in entry.queued:
                self._queues.replay(arrived, number)

    def hosts(self) -> Iterator[tuple[HostKey, HostRecord]]:
        """Yield each known host and its record."""
        for key, _ in records_between(self._store, keys.HOST, keys.prefix_end(keys.HOST)):
            host = HostKey(keys.name_of(key))
            yield host, self._batch.peek(host)
            self._batch.drop_records()

    def host(self, host: HostKey) -> HostRecord | None:
        known = self._store.get(keys.named(keys.HOST, host)) is not None
        return self._batch.peek(host) if known else None

    def is_seen(self, key: int) -> bool:
        """Return whether the URL with *key* was ever admitted. Raises DataDirError."""
        if any(each.key == key for each in self._new_urls()):
            return True
        return bool(self._are_in_runs(np.array([key], np.uint64))[0])

    def count_seen(self) -> int:
        """Return how many URLs were ever admitted."""
        keys_of_new = {each.key for each in self._new_urls() if each.needs_seen_test}
        new = np.array(sorted(keys_of_new), np.uint64)
        stored = int(np.count_nonzero(self._are_in_runs(new)))
        return seen_manifest(self._store).keys + len(new) - stored

    def check_runs(self) -> None:
        """Read the runs of the seen set. Raises DataDirError, which names the file, if one is
        damaged or missing."""
        for run in self._opened_runs():
            run.check()

    def _opened_runs(self) -> Iterator[KeyRun]:
        for stored in seen_manifest(self._store).runs:
            yield KeyRun(self._runs, stored, None, PAGE_KEYS)

    def _are_in_runs(self, wanted: Keys) -> Flags:
        """Return which of *wanted*, sorted, are in the runs of the seen set."""
        found = np.zeros(len(wanted), np.bool_)
        for run in self._opened_runs():
            found |= run.find(wanted)[0]
        return found

    def admitted_of_domain(self, domain: HostKey) -> int:
        """Return how many URLs of *domain* count against its budget."""
        packed = self._store.get(keys.named(keys.DOMAIN, domain))
        record = decode_domain(packed) if packed else DomainRecord()
        new = self._new_urls(max(record.counted_to, self.totals.stored_to))
        return record.admitted + sum(each.domain == domain for each in new)

    def _new_urls(self, counted_to: int = 0) -> Iterator[Candidate]:
        """Yield the URLs that entries after *counted_to* admitted."""
        for number, entry in self._batch.entries():
            if number > counted_to:
                yield from map(decode_candidate, entry.elsewhere)
                for each in entry.queued:
                    if each.is_new:
                        yield from decode_urls(join_urls(each.count, [each.packed]))

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


_COUNTED: Final[Mapping[str, bytes]] = {
    "later": keys.LATER,
    "leased": keys.OPEN,
    "dead": keys.DEAD,
}


def count_again(store: DurableStore, runs: RunFolder) -> list[RecountedCounter]:
    """Count the records behind each counter. O(URLs), in bounded memory. Raises DataDirError if a
    file of the seen set is damaged."""
    reader = FrontierReader(store, runs)
    reader.check_runs()
    waiting = sum(1 for host, _ in reader.hosts() for _ in reader.waiting(host))
    counted = {"waiting": waiting, "seen": reader.count_seen()}
    for name, prefix in _COUNTED.items():
        counted[name] = sum(1 for _ in records_between(store, prefix, keys.prefix_end(prefix)))
    return [
        RecountedCounter(name, getattr(reader.totals, name), number)
        for name, number in counted.items()
    ]


def correct_counters(store: DurableStore, counted: list[RecountedCounter]) -> None:
    """Correct the counters in *store*, which no process may have open."""
    packed = store.get(keys.TOTALS)
    totals = decode_totals(packed) if packed else FrontierTotals(front=[])
    for each in counted:
        setattr(totals, each.name, each.counted)
    store.write({keys.TOTALS: encode(totals)})
