"""The write batch of the frontier: changes are staged here and written at once.

Rule: reads see staged changes. Nothing reaches the store before `commit`, which writes all of it or
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from crawler.frontier import records as keys
from crawler.frontier.port import DurableStore
from crawler.frontier.records import (
    ArrivedUrls,
    FrontierTotals,
    HostRecord,
    LinkEntry,
    QueueEnds,
    decode_host,
    decode_link_entry,
    decode_totals,
    encode,
)
from crawler.model.types import ConfigError, HostKey, StoreUnavailable

KNOWN_HOSTS: Final = 20_000
"""Records of hosts in memory, 1 kB each, beside those of active hosts and of hosts with new URLs;
of twice as many, half go. The links of a page lead to ten hosts, and a read takes 4 us."""

_STEP: Final = 500  # records of one step of a flush: 2 ms


class WriteBatch:
    """Staged changes over a store, and the records of hosts used lately, one object each.

    A host whose turn, rest or level changes is written by the next commit. One that only has new
    URLs, which `LinkEntry` records carry, is written when they go to the queues: `write_counted`.
    """

    def __init__(self, store: DurableStore, levels: int) -> None:
        self._store = store
        self._levels = levels
        self._staged: dict[bytes, bytes | None] = {}
        self._entry = LinkEntry()
        self._hosts: dict[HostKey, HostRecord] = {}  # in the order in which they were read
        self._active: set[HostKey] = set()
        self._changed: set[HostKey] = set()  # written by the next commit
        self._counted: set[HostKey] = set()  # written with their new URLs
        self._failure: StoreUnavailable | None = None
        self.totals = self._read_totals()

    @property
    def is_empty(self) -> bool:
        return not (self._staged or self._changed or not self._entry.is_empty)

    def get(self, key: bytes) -> bytes | None:
        if key in self._staged:
            return self._staged[key]
        return self._store.get(key)

    def scan(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return up to *limit* pairs with start <= key < stop, in order of key."""
        staged = [key for key in self._staged if start <= key < stop]
        if not staged:
            return self._store.scan(start, stop, limit)
        found = dict(self._store.scan(start, stop, limit + len(staged)))
        for key in staged:
            value = self._staged[key]
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value
        return sorted(found.items())[:limit]

    def put(self, key: bytes, value: bytes) -> None:
        self._staged[key] = value

    def put_all(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        self._staged.update(pairs)

    def delete(self, key: bytes) -> None:
        self._staged[key] = None

    def delete_all(self, names: Iterable[bytes]) -> None:
        self._staged.update(dict.fromkeys(names))

    def host(self, host: HostKey) -> HostRecord:
        """Return the record of *host* to be changed in place; the next commit writes it."""
        self._changed.add(host)
        return self.peek(host)

    def counted_host(self, host: HostKey) -> HostRecord:
        """Return the record of *host* to count new URLs in it, which the entry has too."""
        self._counted.add(host)
        return self._hosts.get(host) or self.peek(host)

    def peek(self, host: HostKey) -> HostRecord:
        """Return the record of *host*, or a new one; changes to it are not written."""
        known = self._hosts.get(host)
        if known is None:
            packed = self._store.get(keys.named(keys.HOST, host))
            known = decode_host(packed) if packed else HostRecord([])
            known.queue_ends += [QueueEnds() for _ in range(self._levels - len(known.queue_ends))]
            self._hosts[host] = known
        return known

    def pin_record(self, host: HostKey) -> None:
        """Keep the record in memory while its host is active."""
        self._active.add(host)

    def unpin_record(self, host: HostKey) -> None:
        self._active.discard(host)

    def note_queued(self, arrived: ArrivedUrls) -> None:
        """Add URLs that have a number in their queue to the entry of this commit."""
        self._entry.queued.append(arrived)

    def note_elsewhere(self, packed: bytes) -> None:
        """Add an admitted URL that waits elsewhere to the entry of this commit."""
        self._entry.elsewhere.append(packed)

    def note_undecided(self, packed: bytes) -> tuple[int, int]:
        """Add a URL that may be seen to the entry of this commit. Returns the number of the entry,
        and its place in it."""
        self._entry.undecided.append(packed)
        return self.totals.next_entry, len(self._entry.undecided) - 1

    def entry(self, number: int) -> LinkEntry:
        packed = self.get(keys.numbered(keys.ENTRY, number))
        assert packed is not None, f"entry {number} is in use, but not in the store"
        return decode_link_entry(packed)

    def end_entry(self) -> int:
        """Stage the entry with the URLs added since the last one, if there are any. Returns the
        number of the last entry."""
        if not self._entry.is_empty:
            self._staged[keys.numbered(keys.ENTRY, self.totals.next_entry)] = encode(self._entry)
            self.totals.next_entry += 1
            self._entry = LinkEntry()
        return self.totals.next_entry - 1

    def store_counted(self) -> Iterator[None]:
        """Stage the records of hosts in which new URLs were counted. Yields after each step."""
        counted = list(self._counted)
        for at in range(0, len(counted), _STEP):
            self._changed.update(counted[at : at + _STEP])
            yield

    def entries(self) -> Iterator[tuple[int, LinkEntry]]:
        """Yield the entries in the store, by their numbers."""
        start = keys.ENTRY
        while found := self._store.scan(start, keys.prefix_end(keys.ENTRY), _STEP):
            for key, packed in found:
                yield keys.number_of(key), decode_link_entry(packed)
            start = found[-1][0] + b"\0"

    def delete_entries(self) -> Iterator[None]:
        """Stage the removal of the entries that are not needed. Yields after each step."""
        last = min(self.totals.stored_to, self.totals.decided_to)
        for at in range(self.totals.first_entry, last + 1, _STEP):
            numbers = range(at, min(at + _STEP, last + 1))
            self.delete_all(keys.all_numbered(keys.ENTRY, numbers))
            self.totals.first_entry = numbers.stop
            yield

    def next_number(self) -> int:
        return self.next_numbers(1)[0]

    def next_numbers(self, count: int) -> range:
        first = self.totals.next_number
        self.totals.next_number += count
        return range(first, first + count)

    def sync(self) -> None:
        """Make what was committed survive a power cut. May run in a thread. Raises
        StoreUnavailable."""
        self._store.sync()

    def _read_totals(self) -> FrontierTotals:
        packed = self._store.get(keys.TOTALS)
        totals = decode_totals(packed) if packed else FrontierTotals(front=[])
        if len(totals.front) > self._levels:
            raise ConfigError(
                f"this crawl was begun with {len(totals.front)} levels, the setting has"
                f" {self._levels}: CRAWLER_LEVEL_SHARES may grow between runs, not shrink"
            )
        for front in totals.fronts():
            front += [QueueEnds() for _ in range(self._levels - len(front))]
        return totals

    def commit(self) -> None:
        """Write all staged changes. Raises StoreUnavailable; from then on memory may be ahead of
        the disk, so every later commit raises it too."""
        if self._failure is not None:
            raise self._failure
        if self.is_empty:
            return
        last_entry = self.end_entry()
        for host in self._changed:
            record = self._hosts[host]
            record.counted_to = last_entry
            self._staged[keys.named(keys.HOST, host)] = encode(record)
        self._staged[keys.TOTALS] = encode(self.totals)
        try:
            self._store.write(self._staged)
        except StoreUnavailable as broken:
            self._failure = broken
            raise
        finally:
            self._staged = {}
            self._counted -= self._changed
            self._changed = set()
        self.drop_records()

    def drop_records(self) -> None:
        """Drop the records that were read first, if there are many: KNOWN_HOSTS at a time. Those
        of hosts that are active, or have new URLs, are kept."""
        if len(self._hosts) <= 2 * KNOWN_HOSTS + len(self._active) + len(self._counted):
            return
        names = list(self._hosts)
        for name in names[:-KNOWN_HOSTS]:
            if name not in self._active and name not in self._counted:
                del self._hosts[name]
